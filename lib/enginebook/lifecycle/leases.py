"""Notes on running servers, so that other processes can list, end and clean up after them.

One JSON file a server under the cache's servers/, written by its guard. A note names processes by
pid and start time and the boot they belong to: it never matches a recycled pid.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from enginebook import paths, store
from enginebook.lifecycle import guard, owned, proctree
from enginebook.plain import neutral

END_TIMEOUT_S = 40.0
KILL_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Lease:
    """What is noted of a server before it runs."""

    token: str
    engine: str
    model: str
    port: int
    directory: str
    owner: int
    config: str = ""

    @classmethod
    def new(cls, engine: str, model: str, port: int, directory: Path, *, config: str = "") -> Lease:
        """Return a note with a fresh token; ``config`` is the digest of all that was asked."""
        return cls(secrets.token_hex(8), engine, model, port, str(directory), os.getpid(), config)

    def about(self) -> dict[str, Any]:
        """Return the note as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Running:
    """A server found by its note."""

    path: Path
    facts: dict[str, Any]

    @property
    def label(self) -> str:
        """Return the server in a few words."""
        f = self.facts
        return neutral(f"{f.get('engine')} serving {f.get('model')} on port {f.get('port')}")

    def runs(self, who: str) -> bool:
        """Return whether its ``sentinel``, ``guard`` or ``engine`` runs."""
        pid, identity = self.facts.get(f"{who}_pid"), self.facts.get(f"{who}_identity")
        return isinstance(pid, int) and proctree.is_alive(pid, str(identity))

    def guarded(self) -> bool:
        """Return whether a guard is there that will end it."""
        return self.runs("guard") or self.runs("sentinel")

    def leftovers(self) -> list[proctree.Process]:
        """Return its processes that live: known by start time, by descent, or by its token."""
        if self.facts.get("boot") != proctree.boot_id():
            return []
        noted = [(self.facts.get("engine_pid"), self.facts.get("engine_identity"))]
        noted += [(pid, identity) for pid, identity in self.facts.get("tree", [])]
        roots = [proctree.process(p) for p, i in noted if p and proctree.is_alive(p, str(i))]
        everyone = proctree.table()
        found = {r.pid: r for r in roots if r is not None}
        for root in list(found):
            found.update({p.pid: p for p in proctree.descendants(root, everyone)})
        marked = proctree.with_variable(owned.TOKEN, str(self.facts.get("token")))
        found.update({p.pid: p for p in marked})
        return [p for p in found.values() if p.state not in proctree.ZOMBIE_STATES]

    def uptime_s(self) -> float:
        """Return seconds since the engine's start."""
        return time.time() - float(self.facts.get("started_unix", time.time()))


def servers_dir() -> Path:
    """Return the folder of notes."""
    folder = paths.cache_dir() / "servers"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # sockets: for this user alone
    return folder


def lease_path(token: str) -> Path:
    """Return where the note of a server goes."""
    return servers_dir() / f"{token}.json"


def socket_path(token: str) -> Path:
    """Return where others attach to a server; short, because the system allows 107 bytes."""
    return servers_dir() / f"{token}.sock"


def all_noted() -> list[Running]:
    """Return all servers that are noted, running or not, oldest first."""
    found = []
    for path in servers_dir().glob("*.json"):
        with suppress(OSError, ValueError):
            found.append(Running(path, dict(store.read_json(path))))
    return sorted(found, key=lambda r: float(r.facts.get("started_unix", 0)))


def warm(config: str) -> list[Running]:
    """Return servers of exactly this configuration that can be attached to, newest first."""
    alike = [r for r in all_noted() if config and r.facts.get("config") == config]
    return [r for r in reversed(alike) if r.guarded() and r.runs("engine")]


def end(running: Running) -> list[int]:
    """End a server: through its guard where there is one; returns pids that would not go."""
    for who in ("sentinel", "guard"):
        if running.runs(who):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(running.facts[f"{who}_pid"]), signal.SIGTERM)
            break
    deadline = time.monotonic() + END_TIMEOUT_S
    while running.guarded() and time.monotonic() < deadline:
        time.sleep(0.05)
    _, left = proctree.kill_until_gone(running.leftovers, KILL_TIMEOUT_S)
    guard.clean_up(running.facts.get("cleanup", []))
    if not left and not running.guarded():
        running.path.unlink(missing_ok=True)
    return [p.pid for p in left]


def end_those_in(directory: Path, say: Callable[[str], None]) -> None:
    """End servers whose folder is needed for another one: they would share log and status."""
    for running in all_noted():
        if running.facts.get("directory") == str(directory) and running.guarded():
            say(f"ending {running.label}, which was started from the same folder")
            end(running)


def reap_leftovers(say: Callable[[str], None]) -> int:
    """End what servers without a guard left behind; returns how many processes were killed."""
    count = 0
    for running in all_noted():
        if running.guarded():
            continue
        killed, left = proctree.kill_until_gone(running.leftovers, KILL_TIMEOUT_S)
        guard.clean_up(running.facts.get("cleanup", []))
        count += killed
        if killed:
            say(f"ended {killed} processes that {running.label} had left behind")
        if not left:
            running.path.unlink(missing_ok=True)
    return count
