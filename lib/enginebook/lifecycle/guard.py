"""The process that owns an engine's whole process tree, and outlives neither its owner nor it.

Two small processes: the *sentinel* (what the owner starts) forks the *guard*, the guard forks the
engine. Both are child subreapers, so that daemons (setsid, double forks) stay below them.

- The owner dies in any way: the guard reads end-of-file from its stdin (or sees the owner's pid
  gone, where a forked sibling still holds the pipe) and ends the tree.
- The guard is killed: its orphans fall to the sentinel, which ends them.
- The sentinel is killed: the kernel tells the guard (parent-death signal), which ends the tree.
- Both are killed at once: the kernel kills the engine's first process, and the lease file lets
  the next start find what is left.

The engine's settings come as one JSON line on stdin (see order.py), its environment is the
guard's own. Standard library only, no package imports beyond this folder's small ones.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from enginebook.lifecycle import proctree
from enginebook.lifecycle.logpump import LogPump
from enginebook.lifecycle.order import NOT_STARTED, Order
from enginebook.lifecycle.owners import Owners

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_TIMEOUT_S = 10.0
REAP_TIMEOUT_S = 1.0
CLEANUP_TIMEOUT_S = 30.0
REST_GRACE_S = 1.0  # of the grace, what workers get that the engine did not end itself
OWNER_CHECK_S = 1.0
CENSUS_MAX_S = 60.0


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def write_json_file(path: Path, value: Any) -> None:
    """Write a small JSON file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.replace(path)


def exec_engine(order: Order, output: int, trouble: int, parent: int) -> NoReturn:
    """Become the engine; on failure say why through the ``trouble`` pipe."""
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NOT_STARTED)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(order.directory)
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execvpe(order.argv[0], order.argv, os.environ)  # noqa: S606
    except OSError as error:
        os.write(trouble, f"{error.strerror}: {error.filename or order.argv[0]}".encode())
    os._exit(NOT_STARTED)


def clean_up(command: list[str]) -> None:
    """Run the order's last command, if any; it gets no input and may say what it likes."""
    if command:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=CLEANUP_TIMEOUT_S,
                check=False,
            )


class Guard:
    """Owns the engine: waits for a reason to end, then ends everything below itself."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.started = time.monotonic()
        self.pump = LogPump(order.log, self.started)
        self.engine = 0
        self.exit_code: int | None = None
        self.owners = Owners(order.owner, order.owner_identity, order.socket)
        self.asked = ""  # the reason to end that a signal gave
        self.warm_until: float | None = None
        self.output, self._output_end = os.pipe()
        self.wake, self._wake_end = os.pipe()
        self.facts: dict[str, Any] = {}
        self._next_census_s = 1.0

    def run(self) -> int:
        """Start the engine, wait, end it, and report."""
        self._listen_to_signals()
        trouble = self._spawn()
        self._tell_owner(trouble)
        reason = trouble or self._wait_for_reason()
        killed, left = self._end_tree(reason)
        self._drain()
        self.pump.close()
        self._report(state="ended", reason=reason, killed=killed, left=[p.pid for p in left])
        if self.order.lease and not left:
            self.order.lease.unlink(missing_ok=True)
        return 0

    def _listen_to_signals(self) -> None:
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_signal)

    def _on_signal(self, number: int, _: Any) -> None:
        self.asked = "stopped" if number == signal.SIGTERM else "sentinel killed"

    def _spawn(self) -> str:
        trouble, trouble_end = os.pipe()
        guard = os.getpid()
        self.started = self.pump.started = time.monotonic()
        self.engine = os.fork()
        if self.engine == 0:
            exec_engine(self.order, self._output_end, trouble_end, guard)
        os.close(self._output_end)
        os.close(trouble_end)
        said = os.read(trouble, 4096).decode(errors="replace")  # EOF as soon as exec succeeds
        os.close(trouble)
        return f"could not start: {said}" if said else ""

    def _tell_owner(self, trouble: str) -> None:
        self.facts = {
            "sentinel_pid": os.getppid(),
            "sentinel_identity": proctree.identity_of(os.getppid()),
            "guard_pid": os.getpid(),
            "guard_identity": proctree.identity_of(os.getpid()),
            "engine_pid": self.engine,
            "engine_identity": proctree.identity_of(self.engine),
            "started_monotonic": self.started,
            "started_unix": time.time(),
            "boot": proctree.boot_id(),
        }
        if self.order.lease:
            self._write_lease(self.order.lease)
        self._report(state="running", reason=trouble)
        with suppress(BrokenPipeError):
            os.write(1, json.dumps({**self.facts, "trouble": trouble}).encode() + b"\n")
        os.close(1)

    def _report(self, **more: Any) -> None:
        code = self.exit_code
        known = {"exit_code": code, "elapsed_s": time.monotonic() - self.started}
        with suppress(OSError):
            write_json_file(self.order.status, {**self.facts, **known, **more})

    # ---- waiting -------------------------------------------------------------------------

    def _turn(self, timeout_s: float) -> None:
        """Wait for an event at most so long; copy output, reap children, watch the pipe."""
        watched = [self.output, self.wake, *self.owners.watched()]
        ready, _, _ = select.select([fd for fd in watched if fd >= 0], [], [], timeout_s)
        if self.wake in ready:
            os.read(self.wake, 512)
        if self.output in ready:
            self._copy_output()
        self.owners.handle(ready)
        self._reap()

    def _copy_output(self) -> bool:
        chunk = os.read(self.output, 1 << 16)
        if chunk:
            self.pump.feed(chunk)
        else:
            os.close(self.output)
            self.output = -1
        return bool(chunk)

    def _drain(self) -> None:
        while self.output >= 0 and select.select([self.output], [], [], 0)[0]:
            self._copy_output()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.engine:
                    self.exit_code = os.waitstatus_to_exitcode(status)

    def _wait_for_reason(self) -> str:
        reason = ""
        while not reason:
            self._turn(OWNER_CHECK_S)
            reason = self._reason()
            if self.order.lease and time.monotonic() - self.started >= self._next_census_s:
                self._write_lease(self.order.lease)
        return reason

    def _write_lease(self, path: Path) -> None:
        """Note who is below, at growing intervals: for the next start, should all guards die."""
        tree = [[p.pid, p.identity] for p in self._below()]
        more = {"tree": tree, "cleanup": self.order.cleanup}
        with suppress(OSError):
            write_json_file(path, {**self.order.about, **self.facts, **more})
        self._next_census_s = min(2 * self._next_census_s, self._next_census_s + CENSUS_MAX_S)

    def _reason(self) -> str:
        if self.exit_code is not None:
            return "engine exited"
        if self.asked:
            return self.asked
        if self.owners.present():
            self.warm_until = None
            return ""
        if not self.order.keep_warm_s:
            return "owner gone"
        if self.warm_until is None:
            self.warm_until = time.monotonic() + self.order.keep_warm_s
        return "time limit" if time.monotonic() >= self.warm_until else ""

    # ---- ending --------------------------------------------------------------------------

    def _below(self) -> list[proctree.Process]:
        alive = proctree.descendants(os.getpid())
        return [p for p in alive if p.state not in proctree.ZOMBIE_STATES]

    def _wait_until_none(self, seconds: float, of: str) -> None:
        """Wait for the engine's first process, or for the whole tree, to go by itself."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (self.exit_code is not None) if of == "engine" else not self._below():
                return
            self._turn(0.05)

    def _end_tree(self, reason: str) -> tuple[int, list[proctree.Process]]:
        """TERM to the engine, which may end its own workers; TERM to the rest; KILL to the rest."""
        self.owners.close()
        grace = self.order.grace_s if reason == "stopped" else self.order.orphan_grace_s
        rest = min(grace / 2, REST_GRACE_S)
        if self.exit_code is None:
            os.kill(self.engine, signal.SIGTERM)
            self._wait_until_none(grace - rest, of="engine")
        for row in self._below():
            proctree.send(row, signal.SIGTERM)
        self._wait_until_none(rest, of="tree")
        outcome = proctree.kill_until_gone(self._below, KILL_TIMEOUT_S, lambda: self._turn(0.02))
        self._reap_the_dead()
        clean_up(self.order.cleanup)
        return outcome

    def _reap_the_dead(self) -> None:
        """Take the exit statuses of all that died, so that no zombie is left to process 1."""
        deadline = time.monotonic() + REAP_TIMEOUT_S
        while proctree.descendants(os.getpid()) and time.monotonic() < deadline:
            self._turn(0.02)


def sentinel(guard: int, order: Order) -> int:
    """Wait for the guard; should it be killed, end what it owned, which falls to this process."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(guard, signal.SIGTERM))
    os.close(1)
    _, status = os.waitpid(guard, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code

    def below() -> list[proctree.Process]:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return proctree.descendants(os.getpid())

    killed, left = proctree.kill_until_gone(below, KILL_TIMEOUT_S)
    clean_up(order.cleanup)
    report = {"state": "ended", "reason": "guard killed", "exit_code": None, "killed": killed}
    write_json_file(order.status, {**report, "left": [p.pid for p in left]})
    if order.lease and not left:
        order.lease.unlink(missing_ok=True)
    return code


def main() -> int:
    """Run as sentinel, guard and engine launcher."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the owner decides, not its terminal
    order = Order.from_stdin()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    parent = os.getpid()
    child = os.fork()
    if child:
        return sentinel(child, order)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # not inherited over a fork
    _prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
    if os.getppid() != parent:
        os._exit(NOT_STARTED)
    os._exit(Guard(order).run())


if __name__ == "__main__":
    sys.exit(main())
