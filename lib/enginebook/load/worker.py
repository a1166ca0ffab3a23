"""The process that makes the load; started by ``enginebook.load.run``, never imported by it.

It talks in lines: a job comes in, ``ready`` goes out; ``warmup T`` or ``measure T`` (a time of the
monotonic clock) comes in, ``done`` goes out; ``decode`` comes in, a JSON report goes out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from enginebook.load.client import Client
from enginebook.load.clock import Alarm, sharpen_timers
from enginebook.load.control import Control
from enginebook.load.decode import Decoder
from enginebook.load.drivers import ClosedLoop, Driver, OpenLoop, Sessions
from enginebook.load.exchange import Spool
from enginebook.load.payloads import Payloads, Writer, conversations
from enginebook.load.phase import Limits, Phase, PhaseReport, cpu_seconds
from enginebook.load.plan import Plan, make_plan
from enginebook.load.prompts import SOURCE_FILE, load_source
from enginebook.load.records import frames_of
from enginebook.load.target import Target
from enginebook.load.tokens import LocalTokens, tokens_for
from enginebook.load.workload import Workload

_SESSIONS_AHEAD = 256


@dataclass(frozen=True)
class Job:
    """One worker's part of a run."""

    target: Target
    workload: Workload
    worker: int
    workers: int
    directory: Path
    overhead_tokens: int

    @classmethod
    def from_line(cls, line: str) -> Job:
        """Read a job from the controller's first line."""
        fields = json.loads(line)
        target = fields["target"]
        target["tokenizer"] = Path(target["tokenizer"]) if target["tokenizer"] else None
        return cls(
            target=Target(**target),
            workload=Workload.from_dict(fields["workload"]),
            worker=fields["worker"],
            workers=fields["workers"],
            directory=Path(fields["directory"]),
            overhead_tokens=fields["overhead_tokens"],
        )

    def share(self, total: int) -> int:
        """Return this worker's part of a number of streams."""
        return total // self.workers + (self.worker < total % self.workers)


class Worker:
    """Everything that one process holds during a run."""

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.loop = loop
        self.plan = make_plan(job.workload)
        workload = job.workload
        self.client = Client(job.target, workload.request_timeout_s, workload.connect_timeout_s)
        self.spool = Spool(job.directory / f"spool-{job.worker}.bin")
        self.control = Control(job.directory / f"control-{job.worker}")
        self.writer = _writer(job, self.plan)
        self.measured: PhaseReport | None = None
        warmups = (p.index for p in self.plan.warmups(job.worker, job.workers))
        self.warmups = Payloads(warmups, self.writer, endless=False)
        indexes = self.plan.measured(job.worker, job.workers)
        self.payloads = Payloads(indexes, self.writer, endless=self.plan.count is None)
        if workload.turns == 1:
            self.payloads.fill()
        self.driver = self._driver()

    @property
    def streams(self) -> int:
        """Return how many streams this process holds."""
        return self.job.share(self.plan.streams)

    def alarm(self, ring: Callable[[], None]) -> Alarm:
        """Return a new alarm on this process's loop."""
        return Alarm(self.loop, ring)

    def _driver(self) -> Driver:
        workload = self.job.workload
        if workload.turns > 1:
            talks = conversations(
                self.plan.measured(self.job.worker, self.job.workers), self.writer, _SESSIONS_AHEAD
            )
            return Sessions(
                self.client, talks, self.alarm, self.streams, workload.think_time_s,
                endless=self.plan.count is None,
            )  # fmt: skip
        if workload.kind == "closed_loop":
            return ClosedLoop(self.client, self.payloads, self.streams)
        limit = workload.max_concurrency
        share = max(1, self.job.share(limit)) if limit is not None else None
        return OpenLoop(self.client, self.payloads, self.alarm, share)

    async def warm_up(self, at_ns: int) -> None:
        """Send the warm-up requests."""
        self.warmups.fill()
        driver = ClosedLoop(self.client, self.warmups, max(1, self.streams))
        limits = Limits(None, 0.0, self.job.workload.max_seconds)
        await Phase(self.client, driver, self.spool, self.control, self.warmups).run(at_ns, limits)

    async def measure(self, at_ns: int) -> None:
        """Send the measured requests."""
        workload = self.job.workload
        closed = workload.kind == "closed_loop"
        limits = Limits(
            workload.duration_s if closed else None,
            workload.drain_seconds,
            workload.max_seconds,
            adaptive=workload.stop_rule is not None,
        )
        phase = Phase(self.client, self.driver, self.spool, self.control, self.payloads)
        self.measured = await phase.run(at_ns, limits)
        self.client.close()

    def decode(self) -> dict[str, Any]:
        """Write this process's part of the records and return its report."""
        before = cpu_seconds()
        folder = self.job.target.tokenizer
        tokens = LocalTokens(folder) if folder is not None else None
        decoder = Decoder(self.job.worker, tokens, self.job.target.mask())
        for exchange in self.spool.read():
            decoder.add(exchange)
        requests, chunks = frames_of(decoder.columns)
        folder, number = self.job.directory, self.job.worker
        requests.write_parquet(folder / f"requests-{number}.parquet")
        chunks.write_parquet(folder / f"chunks-{number}.parquet", compression="lz4")
        return self._report(cpu_seconds() - before)

    def _report(self, decode_cpu_s: float) -> dict[str, Any]:
        report = self.measured or PhaseReport()
        lags = np.asarray(report.loop_lag_ns, np.int64)
        np.save(self.job.directory / f"lag-{self.job.worker}.npy", lags)
        return {
            "start_ns": report.start_ns,
            "end_ns": report.end_ns,
            "window_cpu_s": report.cpu_s,
            "decode_cpu_s": decode_cpu_s,
            "made_late": report.made_late,
            "segments": report.chunks,
            "stopped_by": report.stopped_by,
            "stopped_after_s": report.stopped_after_s,
        }


def _writer(job: Job, plan: Plan) -> Writer:
    source = load_source(job.directory / SOURCE_FILE, job.workload)
    writer = Writer(job.target, plan, source, None, job.overhead_tokens)
    if writer.as_text:
        writer.tokens = tokens_for(job.target)
    return writer


def main() -> int:
    """Serve one controller until its pipe closes."""
    sharpen_timers()
    job = Job.from_line(sys.stdin.readline())
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = Worker(job, loop)
    loop.run_until_complete(worker.client.open(worker.streams))
    _say("ready")
    while line := sys.stdin.readline():
        command, _, argument = line.strip().partition(" ")
        if command == "warmup":
            loop.run_until_complete(worker.warm_up(int(argument)))
            _say("done")
        elif command == "measure":
            loop.run_until_complete(worker.measure(int(argument)))
            _say("done")
        elif command == "decode":
            _say(json.dumps(worker.decode()))
            return 0
    return 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
