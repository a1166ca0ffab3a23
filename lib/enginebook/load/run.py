"""Runs a load: worker processes with one common start, their progress, their records merged.

The caller's process does nothing while the load runs but look at shared counters a few times a
second, so a notebook's kernel can be the caller without disturbing a stamp.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from enginebook.errors import LoadError
from enginebook.load.clock import NS_PER_MS, NS_PER_S, now_ns
from enginebook.load.control import Control, Progress
from enginebook.load.plan import make_plan
from enginebook.load.precision import Watch
from enginebook.load.probe import prompt_overhead
from enginebook.load.prompts import SOURCE_FILE, prompt_source, save_source
from enginebook.load.records import Records, merge, write_records
from enginebook.load.target import Target
from enginebook.load.tokens import tokens_for
from enginebook.load.workload import Workload

_STREAMS_PER_PROCESS = 256
_MOST_PROCESSES = 8
_START_DELAY_NS = 50 * NS_PER_MS
_POLL_S = 0.2
_READY_TIMEOUT_S = 300.0
_EXIT_TIMEOUT_S = 10.0
_LAG_POINTS = (50, 99)


@dataclass(frozen=True)
class LoadProgress:
    """How far a run has come; times and rates are as seen so far.

    ``chunks`` counts pieces of streamed answers, nearly always one a token; ``first_byte_ms`` is
    the mean time to the first of them over finished requests; ``half_width`` says how well the run
    is known so far, where it may end early.
    """

    done: int
    failed: int
    total: int | None
    in_flight: int
    chunks: int
    chunks_per_s: float
    first_byte_ms: float | None
    elapsed_s: float
    half_width: float | None = None


OnProgress = Callable[[LoadProgress], None]


def default_processes(streams: int) -> int:
    """Return how many worker processes a number of streams is spread over on this host."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    wanted = -(-streams // _STREAMS_PER_PROCESS)
    return max(1, min(wanted, _MOST_PROCESSES, (cores or 1) // 2))


def run_load(
    target: Target,
    workload: Workload,
    directory: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Records:
    """Load-test an endpoint and return the wire records.

    Blocks until the run is over; also inside a running event loop, such as a notebook's.

    Parameters
    ----------
    directory
        Where requests.parquet, chunks.parquet and instrument.json are left; None keeps them in
        memory only.
    on_progress
        Called a few times a second from this thread.

    Raises
    ------
    InputError
        When prompts cannot be made, before anything is sent.
    LoadError
        When a worker process dies. Requests that fail are records, not errors.
    """
    with tempfile.TemporaryDirectory(prefix="enginebook-load-") as scratch, ExitStack() as stack:
        crew = Crew(target, workload, Path(scratch), on_progress)
        stack.callback(crew.end)
        records = crew.work()
    return write_records(records, directory) if directory is not None else records


async def run_load_async(
    target: Target,
    workload: Workload,
    directory: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Records:
    """Do the same as ``run_load`` without blocking the event loop."""
    return await asyncio.to_thread(run_load, target, workload, directory, on_progress)


class Crew:
    """The worker processes of one run."""

    def __init__(
        self, target: Target, workload: Workload, scratch: Path, on_progress: OnProgress | None
    ) -> None:
        self._target = target
        self._workload = workload
        self._scratch = scratch
        self._on_progress = on_progress
        self._plan = make_plan(workload)
        self._size = workload.processes or default_processes(self._plan.streams)
        self._controls: list[Control] = []
        self._workers: list[subprocess.Popen[str]] = []
        self._overhead = 0
        rule = workload.stop_rule
        self._enough = False
        self._watch = Watch(rule, self._plan.count) if rule is not None else None

    def work(self) -> Records:
        """Do the whole run."""
        self._prepare()
        for number in range(self._size):
            self._hire(number)
        self._await("ready", _READY_TIMEOUT_S)
        limit_s = self._workload.max_seconds + self._workload.drain_seconds + _READY_TIMEOUT_S
        if self._workload.warmup_requests:
            self._command("warmup", now_ns() + _START_DELAY_NS)
            self._await("done", limit_s)
        for control in self._controls:
            control.write(Progress())  # the warm-up's counters
        start_ns = now_ns() + _START_DELAY_NS
        unix_ns = time.time_ns() - now_ns() + start_ns
        self._command("measure", start_ns)
        self._await("done", limit_s, start_ns)
        self._command("decode")
        reports = [json.loads(line) for line in self._lines()]
        return self._merge(reports, start_ns, unix_ns)

    def _prepare(self) -> None:
        tokens = tokens_for(self._target)
        source = prompt_source(self._workload, tokens)
        save_source(source, self._scratch / SOURCE_FILE)
        self._overhead = prompt_overhead(self._target, self._workload, source, tokens)

    def _hire(self, number: int) -> None:
        self._controls.append(Control(self._scratch / f"control-{number}", create=True))
        with (self._scratch / f"worker-{number}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "enginebook.load.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the controller, which stops us in order
            )
        self._workers.append(process)
        self._tell(process, self._job(number))

    def _job(self, number: int) -> str:
        target = {**self._target.public(), "headers": dict(self._target.headers)}
        # the key goes through the pipe and nowhere else
        target |= {"api_key": self._target.api_key, "verify_tls": self._target.verify_tls}
        return json.dumps(
            {
                "target": target,
                "workload": self._workload.to_dict(),
                "worker": number,
                "workers": self._size,
                "directory": str(self._scratch),
                "overhead_tokens": self._overhead,
            }
        )

    # -- talking

    def _tell(self, process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None  # noqa: S101 - opened as a pipe
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._died(process) from None

    def _command(self, name: str, at_ns: int | None = None) -> None:
        for process in self._workers:
            self._tell(process, name if at_ns is None else f"{name} {at_ns}")

    def _lines(self) -> list[str]:
        found = []
        for process in self._workers:
            assert process.stdout is not None  # noqa: S101 - opened as a pipe
            line = process.stdout.readline()
            if not line:
                raise self._died(process)
            found.append(line.strip())
        return found

    def _await(self, word: str, limit_s: float, start_ns: int | None = None) -> None:
        """Wait until every worker has said a word, and report progress meanwhile."""
        deadline = time.monotonic() + limit_s
        waiting = list(self._workers)
        while waiting:
            ready = _readable(waiting, _POLL_S)
            for process in ready:
                assert process.stdout is not None  # noqa: S101
                line = process.stdout.readline().strip()
                if line != word:
                    raise self._died(process)
                waiting.remove(process)
            if start_ns is not None:
                self._look(start_ns)
            if time.monotonic() > deadline:
                raise LoadError(
                    f"a load process did not answer within {limit_s:.0f} s",
                    "look whether this host is overloaded, and start fewer streams",
                )

    def _look(self, start_ns: int) -> None:
        """Read the shared counters: enough measured? And tell the caller."""
        parts = [control.read() for control in self._controls]
        total = Progress(*(sum(values) for values in zip(*map(_values, parts), strict=True)))
        elapsed_ns = now_ns() - start_ns
        if self._watch is not None and not self._enough and self._watch.add(elapsed_ns, total):
            self._enough = True
            for control in self._controls:
                control.finish()
        if self._on_progress is not None:
            self._on_progress(self._progress(total, elapsed_ns))

    def _progress(self, total: Progress, elapsed_ns: int) -> LoadProgress:
        elapsed_s = max(1e-3, elapsed_ns / NS_PER_S)
        firsts = total.first_bytes
        return LoadProgress(
            done=total.done,
            failed=total.failed,
            total=self._plan.count,
            in_flight=total.in_flight,
            chunks=total.chunks,
            chunks_per_s=total.chunks / elapsed_s,
            first_byte_ms=total.first_byte_sum_ns / firsts / NS_PER_MS if firsts else None,
            elapsed_s=elapsed_s,
            half_width=self._watch.known.widest if self._watch is not None else None,
        )

    def _died(self, process: subprocess.Popen[str]) -> LoadError:
        number = self._workers.index(process) if process in self._workers else 0
        log = self._scratch / f"worker-{number}.log"
        tail = log.read_text(errors="replace").strip().splitlines()[-3:] if log.exists() else []
        return LoadError(
            f"load process {number} died: {' | '.join(tail) or 'it left no message'}",
            "look for an out-of-memory kill, or for a limit on processes or open files",
        )

    # -- the end

    def _merge(self, reports: list[dict[str, Any]], start_ns: int, unix_ns: int) -> Records:
        numbers = range(self._size)
        parts = [
            (
                pl.read_parquet(self._scratch / f"requests-{n}.parquet"),
                pl.read_parquet(self._scratch / f"chunks-{n}.parquet"),
            )
            for n in numbers
        ]
        requests, chunks = merge(parts)
        lags = np.concatenate([np.load(self._scratch / f"lag-{n}.npy") for n in numbers])
        instrument = {
            "start_ns": start_ns,
            "start_unix_ns": unix_ns,
            "processes": self._size,
            "window_cpu_s": sum(r["window_cpu_s"] for r in reports),
            "decode_cpu_s": sum(r["decode_cpu_s"] for r in reports),
            "worker_cpu_share_max": max(_share(r) for r in reports),
            "loop_lag_ms": _lag_summary(lags),
            "made_late": sum(r["made_late"] for r in reports),
            "segments": sum(r["segments"] for r in reports),
            "prompt_overhead_tokens": self._overhead,
            "trace_cut": self._plan.trace_cut,
            **_ending(reports),
            "precision": self._watch.report() if self._watch is not None else None,
            "target": self._target.public(),
            "workload": self._workload.to_dict(),
        }
        return Records(requests, chunks, instrument)

    def end(self) -> None:
        """Leave no process behind, whatever happened."""
        for control in self._controls:
            control.stop()
        for process in self._workers:
            _end_process(process)
        for control in self._controls:
            control.close()


def _values(p: Progress) -> tuple[int, ...]:
    return (p.done, p.failed, p.chunks, p.first_bytes, p.first_byte_sum_ns, p.in_flight)


def _ending(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what ended the sending, and when: the first process to stop tells."""
    cut = [r for r in reports if r["stopped_by"] != "requests"]
    first = min(cut, key=lambda r: float(r["stopped_after_s"]), default=None)
    if first is None:
        return {"stopped_by": "requests", "stopped_after_s": None}
    return {"stopped_by": first["stopped_by"], "stopped_after_s": first["stopped_after_s"]}


def _share(report: dict[str, Any]) -> float:
    span_s = (report["end_ns"] - report["start_ns"]) / NS_PER_S
    return float(report["window_cpu_s"] / span_s) if span_s > 0 else 0.0


def _lag_summary(lags_ns: np.ndarray) -> dict[str, float | None]:
    if len(lags_ns) == 0:
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.percentile(lags_ns, _LAG_POINTS) / NS_PER_MS
    return {"p50": float(p50), "p99": float(p99), "max": float(lags_ns.max() / NS_PER_MS)}


def _readable(
    processes: list[subprocess.Popen[str]], timeout_s: float
) -> list[subprocess.Popen[str]]:
    pipes = [p.stdout for p in processes if p.stdout is not None]
    ready, _, _ = select.select(pipes, [], [], timeout_s)
    return [p for p in processes if p.stdout in ready]


def _end_process(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    try:
        process.wait(timeout=_EXIT_TIMEOUT_S if process.returncode is None else 0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
