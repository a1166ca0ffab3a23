"""Who holds on to an engine: the pipe of the process that started it, and those who attached.

Standard library only (part of the guard). An owner is there while its end of a connection is
open; the kernel closes it however the owner dies.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from enginebook.lifecycle import proctree

STDIN = 0


class Owners:
    """The starter's pipe (stdin) and connections to a Unix socket, where there is one.

    Parameters
    ----------
    pid, identity
        The starter. A forked sibling may hold its pipe open after its death, hence it is also
        looked at itself.
    path
        Where to listen for others to attach; None for a server that nobody may take over.
    """

    def __init__(self, pid: int, identity: str, path: Path | None) -> None:
        self._starter = (pid, identity)
        self._pipe_open = True
        self._path = path
        self._attached: dict[int, socket.socket] = {}
        self._listener = self._listen(path) if path is not None else None

    @staticmethod
    def _listen(path: Path) -> socket.socket:
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen()
        return listener

    def watched(self) -> list[int]:
        """Return the file descriptors to select on."""
        listener = [self._listener.fileno()] if self._listener is not None else []
        return [*listener, *self._attached, *([STDIN] if self._pipe_open else [])]

    def handle(self, ready: list[int]) -> None:
        """Take in who comes, and forget who went."""
        if self._listener is not None and self._listener.fileno() in ready:
            connection, _ = self._listener.accept()
            self._attached[connection.fileno()] = connection
            return
        for descriptor in set(ready) & set(self._attached):
            with suppress(OSError):
                if self._attached[descriptor].recv(512):
                    continue
            self._attached.pop(descriptor).close()
        if self._pipe_open and STDIN in ready and not os.read(STDIN, 512):
            self._pipe_open = False

    def present(self) -> bool:
        """Return whether somebody holds on to the engine."""
        if self._pipe_open and not proctree.is_alive(*self._starter):
            self._pipe_open = False
        return self._pipe_open or bool(self._attached)

    def close(self) -> None:
        """Stop listening, so that nobody attaches to an engine that ends."""
        if self._listener is not None and self._path is not None:
            self._listener.close()
            self._listener = None
            self._path.unlink(missing_ok=True)
