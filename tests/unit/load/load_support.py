"""A server that sends exactly the bytes a test wants, and a client driven inside the test."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import uvloop

from enginebook.load.control import Control
from enginebook.load.prompts import SOURCE_FILE, PromptSource, save_source
from enginebook.load.records import Records
from enginebook.load.target import Target
from enginebook.load.worker import Job, Worker
from enginebook.load.workload import Workload

HOLD, CLOSE, RESET = "hold", "close", "reset"
Step = bytes | float | str


@dataclass
class Scripted:
    """A TCP server on loopback that answers the n-th request by the n-th script (or the last)."""

    scripts: Sequence[Sequence[Step]]
    tls: ssl.SSLContext | None = None
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        scheme = "https" if self.tls is not None else "http"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                try:
                    sock = self.tls.wrap_socket(sock, server_side=True)
                except OSError:  # a client that does not trust us
                    continue
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            while (request := self._read(sock)) is not None:
                number = len(self.requests)
                self.requests.append(request)
                if not self._play(sock, self.scripts[min(number, len(self.scripts) - 1)]):
                    break
        except OSError:
            pass
        finally:
            sock.close()

    def _read(self, sock: socket.socket) -> bytes | None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ]
        length = lengths[0] if lengths else 0
        while len(body) < length:
            body += sock.recv(65536)
        return head + b"\r\n\r\n" + body

    def _play(self, sock: socket.socket, script: Sequence[Step]) -> bool:
        for step in script:
            if isinstance(step, bytes):
                sock.sendall(step)
            elif isinstance(step, float):
                if self._over.wait(step):
                    return False
            elif step == HOLD:
                self._over.wait(30)
                return False
            elif step == RESET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                return False
            else:
                return False
        return True

    def stop_listening(self) -> None:
        with suppress(OSError):  # closing alone does not wake a thread that waits in accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        self._over.set()
        self.stop_listening()
        for sock in self._open:
            sock.close()


@pytest.fixture
def serve_script() -> Iterator[Callable[..., Scripted]]:
    started: list[Scripted] = []

    def start(*scripts: Sequence[Step], tls: ssl.SSLContext | None = None) -> Scripted:
        started.append(Scripted(scripts, tls))
        return started[-1]

    yield start
    for server in started:
        server.close()


def source(seed: int = 1) -> PromptSource:
    rng = np.random.default_rng(seed)
    return PromptSource(rng.integers(100, 600, 5000), np.arange(100, 600), seed)


Drive = Callable[..., Records]


@pytest.fixture
def drive(tmp_path: Path) -> Drive:
    """Run a whole worker inside the test: same code as in its own process, without its start."""

    def run(target: Target | str, workload: Workload | None = None, **changes: object) -> Records:
        folder = tmp_path / f"run{time.monotonic_ns()}"
        folder.mkdir()
        if isinstance(target, str):
            target = Target(target, "m")
        base = workload or Workload(concurrency=1, requests=1, input_tokens=8, output_tokens=4)
        load = base.but(**changes)
        save_source(source(), folder / SOURCE_FILE)
        Control(folder / "control-0", create=True).close()
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        worker = Worker(Job(target, load, 0, 1, folder, 0), loop)
        loop.run_until_complete(worker.client.open(worker.streams))
        if load.warmup_requests:
            loop.run_until_complete(worker.warm_up(time.monotonic_ns()))
        loop.run_until_complete(worker.measure(time.monotonic_ns()))
        worker.decode()
        loop.close()
        return Records(
            pl.read_parquet(folder / "requests-0.parquet").sort("request"),
            pl.read_parquet(folder / "chunks-0.parquet").sort("request", "seq"),
            {},
        )

    return run


# -- bytes


def http(
    body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = ""
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse(json: str) -> bytes:
    return chunk(f"data: {json}\n\n".encode())


def text(word: str, finish: str = "null") -> str:
    return f'{{"choices":[{{"index":0,"text":"{word}","finish_reason":{finish}}}]}}'


def delta(fields: str, finish: str = "null") -> str:
    return f'{{"choices":[{{"index":0,"delta":{fields},"finish_reason":{finish}}}]}}'


def usage(tokens: int, prompt: int = 8) -> str:
    counts = f'{{"prompt_tokens":{prompt},"completion_tokens":{tokens}}}'
    return f'{{"choices":[],"usage":{counts}}}'


DONE = chunk(b"data: [DONE]\n\n")
