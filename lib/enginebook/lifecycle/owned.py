"""The owner's side of the guard: start an engine under it, watch it, have it ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import enginebook
from enginebook import store
from enginebook.errors import EngineError
from enginebook.lifecycle import proctree

GRACE_S = 10.0
ORPHAN_GRACE_S = 3.0
BEYOND_GRACE_S = 15.0
LOG_NAME, STATUS_NAME = "engine.log", "guard.json"
TOKEN = "ENGINEBOOK_SERVER"  # noqa: S105 - a variable's name
LIBRARY = str(Path(enginebook.__file__).parent.parent)
# -I -S: no site-packages, no user settings; the guard starts in some 60 ms.
START = (
    f"import sys; sys.path.insert(0, {LIBRARY!r}); "
    "from enginebook.lifecycle import guard; sys.exit(guard.main())"
)


@dataclass(frozen=True)
class StopReport:
    """How an engine went.

    Attributes
    ----------
    seconds
        From the request to stop until no process was left, the port was closed, and the GPU's
        memory was free again where there is one.
    killed
        Number of processes that ignored TERM and were killed.
    reason
        ``stopped``, ``engine exited``, ``owner gone`` ...
    left
        Pids that even KILL did not end (in uninterruptible sleep); empty in all but rare cases.
    note
        What else is worth saying, such as GPU memory that stays taken.
    """

    seconds: float
    killed: int
    reason: str = "stopped"
    left: tuple[int, ...] = ()
    note: str = ""


class Hold(Protocol):
    """A live connection to a guard; closing it says that this owner is gone."""

    def ask_to_end(self) -> None:
        """Have the guard end the engine."""

    def gone(self, timeout_s: float) -> bool:
        """Return whether the sentinel is gone, waiting for at most so long."""

    def release(self) -> None:
        """Let go: the engine ends, or stays warm for its time."""


class PipeHold:
    """The hold of the process that started the guard: the write end of its stdin."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    def ask_to_end(self) -> None:
        """Send TERM to the sentinel; a child that was not waited for keeps its pid."""
        with suppress(ProcessLookupError):
            self._popen.terminate()

    def gone(self, timeout_s: float) -> bool:
        """Wait for the sentinel as its parent."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)
        return self._popen.poll() is not None

    def release(self) -> None:
        """Close the pipe."""
        if self._popen.stdin is not None:
            with suppress(OSError):
                self._popen.stdin.close()
        RELEASED.append(self._popen)


class SocketHold:
    """The hold of a process that attached later: a connection to the guard's socket."""

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(os.fspath(path))

    def ask_to_end(self) -> None:
        """Send TERM to the sentinel, and to no process that may have got its pid."""
        row = proctree.process(int(self._facts["sentinel_pid"]))
        if row is not None and row.identity == self._facts["sentinel_identity"]:
            proctree.send(row, signal.SIGTERM)

    def gone(self, timeout_s: float) -> bool:
        """Look at the sentinel from outside."""
        deadline = time.monotonic() + timeout_s
        pid, identity = int(self._facts["sentinel_pid"]), self._facts["sentinel_identity"]
        while proctree.is_alive(pid, identity) and time.monotonic() < deadline:
            time.sleep(0.02)
        return not proctree.is_alive(pid, identity)

    def release(self) -> None:
        """Close the connection."""
        self._connection.close()


# Children that were let go while they run on: kept, so that their pids are not reaped unseen.
RELEASED: list[subprocess.Popen[bytes]] = []


class OwnedProcess:
    """An engine below its guard. Made by :func:`start` or :func:`attach`."""

    def __init__(
        self,
        hold: Hold,
        facts: dict[str, Any],
        directory: Path,
        elsewhere: Callable[[], list[int]] | None = None,
    ) -> None:
        self._hold = hold
        self.facts = facts
        self.directory = directory
        self._elsewhere = elsewhere  # pids of a container, which a daemon started for us
        self.log = directory / LOG_NAME
        self._status = directory / STATUS_NAME

    @property
    def pid(self) -> int:
        """Return the engine's first process."""
        return int(self.facts["engine_pid"])

    @property
    def started(self) -> float:
        """Return the start on the system's monotonic clock, in seconds."""
        return float(self.facts["started_monotonic"])

    @property
    def in_container(self) -> bool:
        """Return whether a container runtime runs the engine's processes."""
        return self._elsewhere is not None

    def elapsed_s(self) -> float:
        """Return seconds since the engine's start."""
        return time.monotonic() - self.started

    def alive(self) -> bool:
        """Return whether the engine's first process runs."""
        return proctree.is_alive(self.pid, self.facts["engine_identity"])

    def pids(self) -> list[int]:
        """Return the engine's live processes, daemons and containers included."""
        below = proctree.descendants(int(self.facts["guard_pid"]))
        alive = [p.pid for p in below if p.state not in proctree.ZOMBIE_STATES]
        return alive + (self._elsewhere() if self._elsewhere is not None else [])

    def status(self) -> dict[str, Any]:
        """Return the guard's last report; empty while there is none."""
        with suppress(OSError, ValueError):
            return dict(store.read_json(self._status))
        return {}

    def wait_report(self, timeout_s: float) -> dict[str, Any]:
        """Wait until the guards are gone, which end everything first; return their report."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._hold.gone(0.05) and not self._guard_alive():
                break
            time.sleep(0.01)
        return self.status()

    def _guard_alive(self) -> bool:
        return proctree.is_alive(int(self.facts["guard_pid"]), self.facts["guard_identity"])

    def stop(self, grace_s: float = GRACE_S) -> StopReport:
        """End the engine and everything below it; returns when nothing is left."""
        begun = time.monotonic()
        self._hold.ask_to_end()
        report = self.wait_report(grace_s + BEYOND_GRACE_S)
        self._hold.release()
        left = tuple(report.get("left", ()))
        reason = str(report.get("reason", "no report of the guard"))
        return StopReport(time.monotonic() - begun, int(report.get("killed", 0)), reason, left)

    def release(self) -> None:
        """Let go of an engine that is kept warm."""
        self._hold.release()


def attach(path: Path, facts: dict[str, Any], directory: Path) -> OwnedProcess:
    """Take hold of an engine that is kept warm.

    Raises
    ------
    OSError
        When its guard does not listen any more.
    """
    return OwnedProcess(SocketHold(path, facts), facts, directory)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    directory: Path,
    lease: Path | None = None,
    about: Mapping[str, Any] | None = None,
    grace_s: float = GRACE_S,
    orphan_grace_s: float = ORPHAN_GRACE_S,
    keep_warm_s: float = 0.0,
    socket_path: Path | None = None,
    cleanup: Sequence[str] = (),
    elsewhere: Callable[[], list[int]] | None = None,
) -> OwnedProcess:
    """Start a program under a guard of its own.

    Parameters
    ----------
    argv, env
        Command line and whole environment.
    directory
        Working folder; engine.log, guard.log and guard.json are written there.
    lease, about
        File by which later starts find the engine, and what is noted in it.
    grace_s, orphan_grace_s
        Seconds between TERM and KILL, when stopped in order and when the owner is gone.
    keep_warm_s, socket_path
        Seconds for which the engine outlives its owners, and where new ones attach.
    cleanup
        Command that is run when everything is ended.
    elsewhere
        Tells the pids of a container that a daemon runs for the program.

    Raises
    ------
    EngineError
        When the program cannot be started at all.
    """
    directory.mkdir(parents=True, exist_ok=True)
    directory = directory.resolve()
    log, status = directory / LOG_NAME, directory / STATUS_NAME
    status.unlink(missing_ok=True)
    order = {
        "argv": list(argv),
        "directory": str(directory),
        "log": str(log),
        "status": str(status),
        "lease": str(lease) if lease else "",
        "owner": os.getpid(),
        "owner_identity": proctree.identity_of(os.getpid()),
        "grace_s": grace_s,
        "orphan_grace_s": orphan_grace_s,
        "keep_warm_s": keep_warm_s,
        "socket": os.fspath(socket_path) if socket_path else "",
        "cleanup": list(cleanup),
        "about": dict(about or {}),
    }
    popen = _start_guard(order, env, directory / "guard.log")
    try:
        facts = _first_word(popen, directory / "guard.log")
    except BaseException:
        # A traceback that somebody keeps would keep the pipe open, and so the engine alive.
        popen.terminate()
        PipeHold(popen).release()
        raise
    if facts["trouble"]:
        popen.wait()
        raise EngineError(
            f"the engine {facts['trouble']} (command: {argv[0]})", "install it again, or correct it"
        )
    return OwnedProcess(PipeHold(popen), {**dict(about or {}), **facts}, directory, elsewhere)


def _start_guard(
    order: dict[str, Any], env: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    with log.open("wb") as errors:
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(env),
            start_new_session=True,
        )
    assert popen.stdin is not None  # noqa: S101 - it is a pipe
    with suppress(BrokenPipeError):
        popen.stdin.write(json.dumps(order).encode() + b"\n")
        popen.stdin.flush()
    return popen


def _first_word(popen: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    assert popen.stdout is not None  # noqa: S101 - it is a pipe
    with popen.stdout:
        line = popen.stdout.readline()
    if not line:
        popen.wait()
        raise EngineError(
            f"the guard process did not start: {log.read_text(errors='replace')[-800:]}",
            f"see {log}",
        )
    return dict(json.loads(line))
