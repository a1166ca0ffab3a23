"""A host that takes part in a load: serves one coordinator after another, one load at a time."""

from __future__ import annotations

import os
import platform
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from enginebook.engines.exposure import is_loopback
from enginebook.errors import EnginebookError, InputError, LoadError
from enginebook.load.clock import now_ns, sharpen_timers
from enginebook.load.remote_squad import Squad
from enginebook.load.remote_wire import Channel, Message, RefusedError, answer_greeting
from enginebook.load.run import default_processes

KEY_VARIABLE = "ENGINEBOOK_API_KEY"
SILENCE_S = 60.0
"""A coordinator looks several times a second; one that is silent for so long is gone."""
_RETRY_S = 1.0

Say = Callable[[str], None]


class Session:
    """One coordinator's orders, each answered at once."""

    def __init__(self, channel: Channel, folder: Path, processes: int | None) -> None:
        self._channel = channel
        self._folder = folder
        self._processes = processes
        self._squad: Squad | None = None
        self.loads = 0
        self._orders: Mapping[str, Callable[[Message], tuple[dict[str, Any], list[bytes]]]] = {
            "ping": lambda _: ({}, []),
            "offer": self._offer,
            "job": self._job,
            "go": self._go,
            "look": lambda _: (self._look(), []),
            "finish": self._finish,
            "fetch": self._fetch,
        }

    def serve(self) -> None:
        """Answer until the coordinator says ``bye``, is gone, or is silent for too long."""
        self._channel.sock.settimeout(SILENCE_S)
        while True:
            message = self._channel.receive()
            order = str(message.values.get("order"))
            if order == "bye":
                return
            answer, blobs = self._obey(order, message)
            # The clock's stamps: when the order was here, and when its answer leaves.
            stamps = {"b1": message.at_ns, "b2": now_ns()}
            self._channel.send({**answer, **stamps}, blobs)

    def _obey(self, order: str, message: Message) -> tuple[dict[str, Any], list[bytes]]:
        if order not in self._orders:
            return {"error": f"unknown order {order!r}"}, []
        try:
            return self._orders[order](message)
        except (EnginebookError, OSError, ValueError, KeyError) as error:
            return {"error": f"{type(error).__name__}: {error}"}, []

    def _offer(self, message: Message) -> tuple[dict[str, Any], list[bytes]]:
        streams = int(message.values["streams"])
        return {
            "name": socket.gethostname(),
            "pid": os.getpid(),
            "machine": platform.platform(),
            "cores": os.cpu_count(),
            "processes": self._processes or default_processes(streams),
        }, []

    def _job(self, message: Message) -> tuple[dict[str, Any], list[bytes]]:
        """Start this host's part; files that the coordinator sent lie beside it."""
        if self._squad is not None:
            raise LoadError("a load is under way already")
        job = dict(message.values["job"])
        for name, blob in zip(message.values["files"], message.blobs, strict=True):
            (self._folder / Path(name).name).write_bytes(blob)
        workload = job["workload"]
        for key in ("trace", "prompt_file"):
            if message.values["sent"].get(key):
                workload[key] = str(self._folder / message.values["sent"][key])
        job["target"]["api_key"] = os.environ.get(KEY_VARIABLE) or None
        tokenizer = job["target"]["tokenizer"]
        if tokenizer and not Path(tokenizer).is_dir():
            raise InputError(f"no tokenizer folder {tokenizer} on this host")
        first, size = int(message.values["first"]), int(message.values["size"])
        self._squad = Squad(job, first, size, self._folder)
        self.loads += 1
        return {}, []

    def _team(self) -> Squad:
        if self._squad is None:
            raise LoadError("no load was given")
        return self._squad

    def _go(self, message: Message) -> tuple[dict[str, Any], list[bytes]]:
        self._team().command(str(message.values["phase"]), message.values.get("at_ns"))
        return {}, []

    def _look(self) -> dict[str, Any]:
        squad = self._team()
        return {"state": squad.look(), "progress": squad.progress()}

    def _finish(self, _: Message) -> tuple[dict[str, Any], list[bytes]]:
        self._team().finish()
        return {}, []

    def _fetch(self, _: Message) -> tuple[dict[str, Any], list[bytes]]:
        squad = self._team()
        return {"reports": squad.reports}, squad.records()

    def end(self) -> None:
        """End the load processes, whatever the reason."""
        if self._squad is not None:
            self._squad.end()


def serve_one(
    sock: socket.socket, secret: bytes, peer: str, say: Say, processes: int | None = None
) -> bool:
    """Serve one connection to its end; return whether it was a coordinator's.

    A coordinator that is lost in the middle takes its load with it: nothing goes on unwatched.
    """
    with sock, tempfile.TemporaryDirectory(prefix="enginebook-worker-") as scratch:
        session: Session | None = None
        try:
            channel = answer_greeting(sock, secret, peer)
            say(f"taking orders from {peer}")
            session = Session(channel, Path(scratch), processes)
            session.serve()
            say(f"{peer} is done")
        except (EOFError, OSError) as error:
            say(f"lost {peer}: {error}")
        except RefusedError as error:
            say(f"refused {peer}: {error.message}")
        finally:
            if session is not None:
                session.end()
    return session is not None


def listen(
    place: tuple[str, int], secret: bytes, say: Say, *, once: bool, processes: int | None
) -> None:
    """Serve coordinators that connect, one after another.

    Raises
    ------
    InputError
        When the address cannot be listened on.
    """
    sharpen_timers()
    with ExitStack() as stack:
        try:
            server = stack.enter_context(socket.create_server(place))
        except OSError as error:
            raise InputError(
                f"cannot listen on {place[0]}:{place[1]}: {error.strerror}",
                "give an address of this host and a port that is free with --listen",
            ) from None
        host, port = server.getsockname()[:2]
        say(f"listening on {host}:{port}")
        if not is_loopback(host):
            say(
                "other hosts reach this address; orders are taken only from who knows the shared "
                "secret, but what is sent is not encrypted: use a network that you trust"
            )
        for sock, address in _connections(server):
            served = serve_one(sock, secret, f"{address[0]}:{address[1]}", say, processes)
            if served and once:
                return


def _connections(server: socket.socket) -> Iterator[tuple[socket.socket, Any]]:
    while True:
        yield server.accept()


def dial(
    place: tuple[str, int], secret: bytes, say: Say, *, wait_s: float, processes: int | None
) -> None:
    """Connect to a coordinator that waits for workers, and serve it once.

    Raises
    ------
    LoadError
        When nobody listens there within the time.
    """
    sharpen_timers()
    deadline = time.monotonic() + wait_s
    peer = f"{place[0]}:{place[1]}"
    while True:
        with suppress(OSError):
            sock = socket.create_connection(place, timeout=10)
            if serve_one(sock, secret, peer, say, processes):
                return
        if time.monotonic() > deadline:
            raise LoadError(
                f"no coordinator took this worker at {peer} within {wait_s:.0f} s",
                "start enginebook load with --worker-listen there, or wait longer with --wait",
            )
        time.sleep(_RETRY_S)
