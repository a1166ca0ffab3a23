"""One phase of a worker's run, warm-up or measured part: from the start to the last byte."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from enginebook.load.client import Client
from enginebook.load.clock import NS_PER_S, Alarm, now_ns
from enginebook.load.control import Control, Progress
from enginebook.load.drivers import NEVER_SENT, Driver
from enginebook.load.exchange import Exchange, Spool
from enginebook.load.payloads import Payloads
from enginebook.load.plan import Planned

StoppedBy = Literal["requests", "precision", "seconds", "caller"]
TICK_NS = 10_000_000
_TICKS_PER_CHECK = 10
_WRITE_BUDGET_NS = 500_000
_MOST_UNWRITTEN = 4096


def cpu_seconds() -> float:
    """Return the user and system time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass
class Limits:
    """When a phase ends although more could be sent; seconds from its start.

    An ``adaptive`` phase finishes at ``max_s`` what it has begun, and what it has not begun was
    never meant to be sent; any other gives up then, and the rest of its plan is missing.
    """

    duration_s: float | None
    drain_s: float
    max_s: float
    adaptive: bool = False


@dataclass
class PhaseReport:
    """What a phase cost and how punctual its loop was."""

    start_ns: int = 0
    end_ns: int = 0
    cpu_s: float = 0.0
    loop_lag_ns: list[int] = field(default_factory=list)
    made_late: int = 0
    chunks: int = 0
    stopped_by: StoppedBy = "requests"
    stopped_after_s: float | None = None


class Phase:
    """Runs a driver until it is done, ticking a hundred times a second beside it."""

    def __init__(
        self, client: Client, driver: Driver, spool: Spool, control: Control, payloads: Payloads,
    ) -> None:  # fmt: skip
        self._client = client
        self._driver = driver
        self._spool = spool
        self._control = control
        self._payloads = payloads
        self.report = PhaseReport()
        self._ticks = 0
        self._done = 0
        self._failed = 0
        self._first_sum_ns = 0
        self._firsts = 0
        self._finished = False
        self._parent = os.getppid()

    async def run(self, at_ns: int, limits: Limits) -> PhaseReport:
        """Start at ``at_ns`` and return when all is over."""
        loop = asyncio.get_running_loop()
        self._limits = limits
        self._at_ns = at_ns
        self._client.on_end = self._driver.on_end
        self._over: asyncio.Future[None] = loop.create_future()
        self._alarm = Alarm(loop, self._begin)
        with _quiet_memory():
            self._alarm.set(at_ns)
            await self._over
        self._alarm.close()
        self._write_finished(hurry=True)
        self._take_stock(at_ns)
        report = self.report
        report.end_ns, report.made_late = now_ns(), self._payloads.made_late
        return report

    def _take_stock(self, at_ns: int) -> None:
        """Record what was planned and never sent, unless the plan was cut short on purpose."""
        if self._payloads.endless:
            return
        left = list(self._driver.unsent())
        for planned in () if self._finished else left:
            self._spool.write(_never_sent(planned, at_ns))
        if not left and self.report.stopped_by != "caller":
            self.report.stopped_by = "requests"

    def _begin(self) -> None:
        report = self.report
        report.start_ns = now_ns()
        self._cpu_before = cpu_seconds()
        self._due_ns = report.start_ns
        self._alarm.ring = self._tick  # from now on the alarm is the tick
        # The common start, not the moment at which this process came to it: one schedule for all.
        self._driver.start(self._at_ns)
        self._tick()

    def _tick(self) -> None:
        at_ns = now_ns()
        if self._ticks:
            self.report.loop_lag_ns.append(at_ns - self._due_ns)
        self._ticks += 1
        self._write_finished()
        if self._ticks % _TICKS_PER_CHECK == 0:
            self._check(at_ns)
        if self._driver.done:
            self.report.cpu_s = cpu_seconds() - self._cpu_before
            self._publish()
            self._over.set_result(None)
            return
        if self._payloads.endless:
            self._payloads.fill(most=1)
        self._due_ns = max(self._due_ns + TICK_NS, at_ns)
        self._alarm.set(self._due_ns)

    def _check(self, at_ns: int) -> None:
        limits, elapsed_s = self._limits, (at_ns - self.report.start_ns) / NS_PER_S
        self._client.expire(at_ns)
        self._publish()
        if limits.duration_s is not None and elapsed_s >= limits.duration_s:
            self._note("seconds", elapsed_s)
            self._driver.stop()
            if elapsed_s >= limits.duration_s + limits.drain_s:
                self._client.cancel_all("still in flight when the drain time was over")
        if self._control.finishing:
            self._finish("precision", elapsed_s)
        if self._control.stopped or os.getppid() != self._parent:
            self._give_up("caller", elapsed_s, "the run was stopped")
        elif elapsed_s >= limits.max_s:
            self._reach_limit(elapsed_s)

    def _reach_limit(self, elapsed_s: float) -> None:
        limits = self._limits
        if limits.adaptive:
            self._finish("seconds", elapsed_s)
        if not limits.adaptive or elapsed_s >= limits.max_s + limits.drain_s:
            self._give_up("seconds", elapsed_s, "the time limit of the run was reached")

    def _finish(self, reason: StoppedBy, elapsed_s: float) -> None:
        if not self._finished:
            self._finished = True
            self._note(reason, elapsed_s)
            self._driver.finish()

    def _give_up(self, reason: StoppedBy, elapsed_s: float, text: str) -> None:
        self._note(reason, elapsed_s)
        self._driver.stop()
        self._client.cancel_all(text)

    def _note(self, reason: StoppedBy, elapsed_s: float) -> None:
        """Remember what ended the sending first."""
        if self.report.stopped_after_s is None:
            self.report.stopped_by, self.report.stopped_after_s = reason, elapsed_s

    def _write_finished(self, *, hurry: bool = False) -> None:
        """Write ended exchanges, but no longer than a stamp may wait unless they pile up."""
        finished = self._client.finished
        until_ns = now_ns() + _WRITE_BUDGET_NS
        while finished and (hurry or len(finished) > _MOST_UNWRITTEN or now_ns() < until_ns):
            exchange = finished.popleft()
            self._count(exchange)
            self._spool.write(exchange)

    def _count(self, exchange: Exchange) -> None:
        self.report.chunks += len(exchange.stamps)
        self._done += 1
        self._failed += bool(exchange.fault)
        if exchange.stamps:
            self._firsts += 1
            self._first_sum_ns += exchange.stamps[0] - exchange.sent_ns

    def _publish(self) -> None:
        active = self._client.active
        flying = sum(len(e.stamps) for e in active)
        self._control.write(
            Progress(
                self._done, self._failed, self.report.chunks + flying,
                self._firsts, self._first_sum_ns, len(active),
            )
        )  # fmt: skip


def _never_sent(planned: Planned, at_ns: int) -> Exchange:
    exchange = Exchange(planned)
    offset_ns = exchange.planned.offset_ns
    exchange.scheduled_ns = at_ns + offset_ns if offset_ns is not None else 0
    exchange.fault, exchange.fault_text = "cancelled", NEVER_SENT
    return exchange


@contextmanager
def _quiet_memory() -> Iterator[None]:
    """Keep the garbage collector out: a full pass takes as long as many tokens."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
