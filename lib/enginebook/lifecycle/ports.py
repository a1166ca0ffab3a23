"""TCP ports on the loopback: a free one, and who listens on a taken one."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from enginebook.errors import InputError

HOST = "127.0.0.1"
# Below the kernel's usual range of ephemeral ports, so that no outgoing connection of the load
# generator takes the port between this choice and the engine's bind.
FIRST, LAST = 20_000, 32_000
LISTENING = "0A"


@dataclass(frozen=True)
class Holder:
    """The process that listens on a port; pid None when the system does not tell."""

    pid: int | None
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})" if self.pid else "another user's process"


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses now.

    Raises
    ------
    InputError
        When a hundred random ports are all taken.
    """
    for port in random.SystemRandom().sample(range(FIRST, LAST), 100):
        if can_bind(port):
            return port
    raise InputError(
        f"no free port between {FIRST} and {LAST} on {HOST}", "end servers that are not needed"
    )


def can_bind(port: int) -> bool:
    """Return whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            probe.listen()
            return True
    return False


def require_free(port: int) -> None:
    """Refuse a port that is in use.

    Raises
    ------
    InputError
        Naming the process that holds it.
    """
    if not can_bind(port):
        raise InputError(
            f"port {port} of {HOST} is in use by {holder(port)}",
            "end that process, or set port: 0 to have a free one chosen",
        )


def holder(port: int) -> Holder:
    """Return who listens on a port."""
    pids = listeners(port)
    if not pids:
        return Holder(None, "")
    with contextlib.suppress(psutil.Error):
        line = " ".join(psutil.Process(pids[0]).cmdline())
        return Holder(pids[0], line[:120])
    return Holder(pids[0], "?")


def listeners(port: int, among: Iterable[int] | None = None) -> list[int]:
    """Return the pids that hold a listening socket on a port.

    Parameters
    ----------
    port
        TCP port, any local address.
    among
        Look only at these pids, which is much quicker; None looks at all that can be seen.
    """
    if not Path("/proc/net/tcp").exists():
        return _listeners_by_psutil(port, among)
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not wanted:
        return []
    return [pid for pid in (psutil.pids() if among is None else among) if _has_fd(pid, wanted)]


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            rows = Path(name).read_text(encoding="ascii").splitlines()[1:]
            fields = (row.split() for row in rows)
            suffix = f":{port:04X}"
            found |= {f[9] for f in fields if f[1].endswith(suffix) and f[3] == LISTENING}
    return found


def _has_fd(pid: int, wanted: set[str]) -> bool:
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(entry.path) in wanted:  # noqa: PTH115 - thousands of them
                    return True
    return False


def _listeners_by_psutil(port: int, among: Iterable[int] | None) -> list[int]:
    pids = psutil.pids() if among is None else among
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            rows = psutil.Process(pid).net_connections(kind="tcp")
            if any(r.laddr.port == port and r.status == psutil.CONN_LISTEN for r in rows):
                found.append(pid)
    return found
