"""Hosts for load tests on one machine: own clocks, own networks, and ways that take their time."""

from __future__ import annotations

import os
import queue
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass


def time_namespace(ahead_s: int) -> tuple[str, ...]:
    """Return the words that run a command with a monotonic clock that is ahead of ours."""
    return ("unshare", "--time", "--monotonic", str(ahead_s))


def reason_against_time_namespaces() -> str:
    """Return why this machine cannot give a process another clock, or nothing."""
    return _reason([*time_namespace(1000), "true"], "time namespaces")


def reason_against_network_namespaces() -> str:
    """Return why this machine cannot give a process another network, or nothing."""
    return _reason(["unshare", "--net", "ip", "link"], "network namespaces")


def _reason(words: list[str], what: str) -> str:
    if os.geteuid() != 0 or shutil.which(words[0]) is None or shutil.which("ip") is None:
        return f"{what} need root, util-linux and iproute2"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{what} do not work here: {done.stderr.strip()}"


@dataclass(frozen=True)
class Net:
    """A network namespace joined to ours by a cable; addresses of both ends."""

    name: str
    here: str
    there: str
    device: str

    def inside(self) -> tuple[str, ...]:
        """Return the words that run a command in it."""
        return ("ip", "netns", "exec", self.name)


@contextmanager
def net(number: int) -> Iterator[Net]:
    """Make a network namespace and its cable, and remove both."""
    tag = f"eb{os.getpid() % 10000}{number}"
    made = Net(f"{tag}n", f"10.213.{number}.1", f"10.213.{number}.2", f"{tag}a")
    with ExitStack() as stack:
        _ip("netns", "add", made.name)
        stack.callback(_ip, "netns", "del", made.name)
        _ip("link", "add", made.device, "type", "veth", "peer", "name", f"{tag}b")
        # The cable's other end goes with its namespace, and this one with it.
        _ip("link", "set", f"{tag}b", "netns", made.name)
        _ip("addr", "add", f"{made.here}/30", "dev", made.device)
        _ip("link", "set", made.device, "up")
        _ip("-n", made.name, "addr", "add", f"{made.there}/30", "dev", f"{tag}b")
        _ip("-n", made.name, "link", "set", f"{tag}b", "up")
        _ip("-n", made.name, "link", "set", "lo", "up")
        yield made


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def add_netem(device: str, delay_ms: float) -> str:
    """Delay what a device sends; return why the kernel cannot, or nothing."""
    words = ["tc", "qdisc", "add", "dev", device, "root", "netem", "delay", f"{delay_ms}ms"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"tc netem: {done.stderr.strip()}"


class Relay:
    """Passes connections on, and holds back what goes there and what comes back for some time."""

    def __init__(
        self, to: tuple[str, int], *, there_ms: float = 0.0, back_ms: float = 0.0,
        at: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        self._to, self._there_s, self._back_s = to, there_ms / 1e3, back_ms / 1e3
        self._server = socket.create_server((at, 0))
        self.place: tuple[str, int] = self._server.getsockname()[:2]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._to)
                for sock in (near, far):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open += [near, far]
                _pass_on(near, far, self._there_s)
                _pass_on(far, near, self._back_s)

    def close(self) -> None:
        """Close it and all connections through it."""
        for sock in (self._server, *self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def _pass_on(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    held: queue.Queue[tuple[float, bytes]] = queue.Queue()

    def read() -> None:
        data = b"x"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            held.put((time.monotonic() + delay_s, data))

    def write() -> None:
        with suppress(OSError):
            while True:
                due, data = held.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)

    for work in (read, write):
        threading.Thread(target=work, daemon=True).start()
