"""Which requests a run sends: a function of the workload alone, the same in every process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from enginebook.load.arrivals import Offsets, open_loop_offsets
from enginebook.load.clock import NS_PER_S
from enginebook.load.synthetic import builtin_trace
from enginebook.load.traces import Trace, read_trace
from enginebook.load.workload import Workload

_LENGTH_STREAM = 32
_WARMUP_STREAMS_OPEN = 16
_UNUSED = np.random.default_rng(0)


@dataclass(frozen=True)
class Planned:
    """One request to be sent; ``offset_ns`` counts from the start, None in a closed loop."""

    index: int
    input_tokens: int
    output_tokens: int
    offset_ns: int | None = None
    block_keys: Sequence[int] = ()
    block_tokens: int = 0
    session: int | None = None
    turn: int = 0

    @property
    def warmup(self) -> bool:
        """Return whether the request is kept out of every figure."""
        return self.index < 0


@dataclass(frozen=True)
class Plan:
    """All requests of a run. Measured requests count from 0, warm-up requests from -1 down.

    ``trace_cut`` says how many lengths of a trace were cut (``input_tokens``, ``output_tokens``) of
    how many ``requests``.
    """

    workload: Workload
    offsets_ns: Offsets | None = None
    trace: Trace | None = None
    trace_cut: Mapping[str, int] | None = None

    @property
    def count(self) -> int | None:
        """Return the number of measured requests; None when only the time limits them."""
        if self.offsets_ns is not None:
            return len(self.offsets_ns)
        return self.workload.requests

    @property
    def streams(self) -> int:
        """Return how many connections to open before the start."""
        w = self.workload
        if w.concurrency is not None:
            return min(w.concurrency, self.count or w.concurrency)
        return min(w.max_concurrency or _WARMUP_STREAMS_OPEN, max(1, self.count or 1))

    def planned(self, index: int) -> Planned:
        """Return request ``index``."""
        if self.trace is not None and index >= 0:
            return self._from_trace(index)
        rng = self._length_rng(index)
        offset = int(self.offsets_ns[index]) if self._timed(index) else None  # type: ignore[index]
        turns = self.workload.turns
        return Planned(
            index=index,
            input_tokens=self.workload.inputs.draw(rng),
            output_tokens=self.workload.outputs.draw(rng),
            offset_ns=offset,
            session=index // turns if turns > 1 and index >= 0 else None,
            turn=index % turns if index >= 0 else 0,
        )

    def _length_rng(self, index: int) -> np.random.Generator:
        if self.workload.inputs.fixed is not None and self.workload.outputs.fixed is not None:
            return _UNUSED  # nothing will be drawn, and making a generator takes a while
        return np.random.default_rng([self.workload.seed, _LENGTH_STREAM, index % 2**32])

    def _timed(self, index: int) -> bool:
        return self.offsets_ns is not None and index >= 0

    def _from_trace(self, index: int) -> Planned:
        assert self.trace is not None  # noqa: S101 - checked by the caller
        assert self.offsets_ns is not None  # noqa: S101
        return Planned(
            index=index,
            input_tokens=int(self.trace.input_tokens[index]),
            output_tokens=int(self.trace.output_tokens[index]),
            offset_ns=int(self.offsets_ns[index]),
            block_keys=self.trace.block_keys[index] if self.trace.block_keys else (),
            block_tokens=self.trace.block_tokens,
        )

    def warmups(self, worker: int, workers: int) -> list[Planned]:
        """Return one worker's share of the warm-up requests."""
        return [self.planned(-1 - i) for i in range(worker, self.workload.warmup_requests, workers)]

    def measured(self, worker: int, workers: int) -> Iterator[int]:
        """Return the indexes of one worker's share; endless when only the time limits them.

        Turns of one session stay with one worker.
        """
        turns = self.workload.turns
        group = worker
        while self.count is None or group * turns < self.count:
            last = (group + 1) * turns
            yield from range(group * turns, last if self.count is None else min(last, self.count))
            group += workers


def make_plan(workload: Workload) -> Plan:
    """Return the plan of a workload."""
    if workload.kind == "closed_loop":
        return Plan(workload)
    if workload.trace is None:
        return Plan(workload, open_loop_offsets(workload))
    trace, cut = _trace_of(workload)
    offsets = np.round(trace.offsets_s / workload.trace_speed * NS_PER_S).astype(np.int64)
    return Plan(workload, offsets, trace, cut)


def _trace_of(workload: Workload) -> tuple[Trace, dict[str, int]]:
    """Return the part of a trace that is replayed, its lengths fitted, and what was cut."""
    place, seconds = workload.trace, workload.duration_s
    in_trace_s = seconds * workload.trace_speed if seconds is not None else None
    if isinstance(place, str):
        trace = builtin_trace(place, workload.seed, workload.requests, in_trace_s)
    else:
        assert place is not None  # noqa: S101 - the workload is a trace
        trace = read_trace(place)
    return trace.first(workload.requests, in_trace_s).fitted(
        workload.length_divisor, workload.max_input_tokens, workload.max_output_tokens
    )
