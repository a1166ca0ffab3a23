"""Who is a process's descendant, and is it still the same process: from /proc, or from ``ps``.

Standard library only: the guard imports this module and has to start at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
ZOMBIE_STATES = frozenset("ZX")


class Process(NamedTuple):
    """One row of the process table.

    ``identity`` is the start time (clock ticks since boot on Linux, a date elsewhere): together
    with the pid it names one process for ever, so that a recycled pid is never mistaken for it.
    """

    pid: int
    parent: int
    state: str
    identity: str


def _from_proc(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command name may hold spaces and brackets: fields are counted after the last ")".
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0].decode(), fields[19].decode())


def _from_ps(pid: int | None = None) -> list[Process]:
    which = ["-ax"] if pid is None else ["-p", str(pid)]
    shown = subprocess.run(
        ["ps", *which, "-o", "pid=,ppid=,state=,lstart="],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    rows = (line.split(None, 3) for line in shown.stdout.splitlines())
    return [Process(int(r[0]), int(r[1]), r[2][0], r[3].strip()) for r in rows if len(r) == 4]  # noqa: PLR2004


def has_proc() -> bool:
    """Return whether the system has Linux's /proc."""
    return Path("/proc/self/stat").exists()


def process(pid: int) -> Process | None:
    """Return one process, or None when there is none; zombies are returned with their state."""
    if has_proc():
        return _from_proc(pid)
    found = _from_ps(pid)
    return found[0] if found else None


def table() -> dict[int, Process]:
    """Return all processes by pid."""
    if not has_proc():
        return {p.pid: p for p in _from_ps()}
    pids = (int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208
    return {p.pid: p for p in map(_from_proc, pids) if p is not None}


def descendants(root: int, processes: dict[int, Process] | None = None) -> list[Process]:
    """Return all processes below ``root``, parents before children; ``root`` is not among them."""
    children: dict[int, list[Process]] = {}
    for row in (processes if processes is not None else table()).values():
        children.setdefault(row.parent, []).append(row)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found.extend(below)
        waiting.extend(p.pid for p in below)
    return found


def is_alive(pid: int, identity: str) -> bool:
    """Return whether this very process still runs (a zombie does not)."""
    row = process(pid)
    return row is not None and row.identity == identity and row.state not in ZOMBIE_STATES


def identity_of(pid: int) -> str:
    """Return the start-time identity of a process, or "" when it is gone."""
    row = process(pid)
    return row.identity if row is not None else ""


def boot_id() -> str:
    """Return what changes when the machine boots, so that leases of an earlier boot are void."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def with_variable(name: str, value: str) -> list[Process]:
    """Return processes whose initial environment holds ``name=value`` (Linux, own user's)."""
    if not has_proc():
        return []
    wanted = f"{name}={value}".encode()
    found = []
    for row in table().values():
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{row.pid}/environ").read_bytes().split(b"\0"):
                found.append(row)
    return found


def send(target: Process, number: signal.Signals) -> None:
    """Send a signal to this very process, and to no other that may have got its pid."""
    if is_alive(target.pid, target.identity):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(target.pid, number)


def kill_until_gone(
    find: Callable[[], Iterable[Process]],
    timeout_s: float,
    between: Callable[[], None] = lambda: time.sleep(0.02),
) -> tuple[int, list[Process]]:
    """Send KILL to what ``find`` finds, again and again, for what was forked meanwhile.

    Returns
    -------
    tuple
        Number of distinct processes that were sent a signal, and those that would not go.
    """
    deadline = time.monotonic() + timeout_s
    hit: set[tuple[int, str]] = set()
    while True:
        left = [p for p in find() if p.state not in ZOMBIE_STATES]
        if not left or time.monotonic() > deadline:
            return len(hit), left
        for row in left:
            send(row, signal.SIGKILL)
            hit.add((row.pid, row.identity))
        between()
