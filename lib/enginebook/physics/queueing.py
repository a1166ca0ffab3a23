"""Two devices, prefill and decode on both or on one each: a queue of measured step times.

An estimate, not a measurement. A request arrives (Poisson), its prompt is computed in chunks, and
its tokens come from decode steps that it shares with others. Colocated, each of the two devices
does both: a chunk lengthens the step that it rides in. Disaggregated, one device computes prompts
one after the other, and the other decodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enginebook.errors import InputError

Floats = NDArray[np.float64]
CHUNK_TOKENS: Final = 2048
_WARM: Final = 0.1  # of the requests, left out at the start


@dataclass(frozen=True)
class StepTimes:
    """What was measured of one engine on one device.

    Attributes
    ----------
    prefill_s
        Seconds to compute one whole prompt.
    batches, step_s
        Decode steps: requests in flight (increasing) and seconds a step; linear in between, and
        the last is the largest batch that is ever formed.
    """

    prefill_s: float
    batches: tuple[int, ...]
    step_s: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.batches, self.batches[1:], strict=False))
        positive = self.prefill_s > 0 and all(s > 0 for s in self.step_s)
        if not self.batches or len(self.batches) != len(self.step_s) or not (rising and positive):
            raise InputError("step times are positive, one for each of increasing batches")

    @property
    def most(self) -> int:
        """Return the largest batch."""
        return self.batches[-1]

    def table(self) -> Floats:
        """Return seconds a step by batch, from 0 (nothing to decode) to the largest."""
        sizes = np.arange(self.most + 1)
        steps = np.interp(sizes, self.batches, self.step_s)
        steps[0] = 0.0
        return np.asarray(steps)

    def requests_per_s(self, output_tokens: int) -> float:
        """Return what one device that does both carries at its largest batch."""
        decode = (output_tokens - 1) * self.step_s[-1] / self.most
        return 1 / (self.prefill_s + decode)


@dataclass(frozen=True)
class Served:
    """Latencies of all requests, in order of arrival."""

    ttft_s: Floats
    tpot_s: Floats

    def share(self, limits: tuple[float | None, ...], output_tokens: int) -> float:
        """Return the share of requests within (TTFT, time per token, whole time) limits in s.

        None is no limit.
        """
        total = self.ttft_s + (output_tokens - 1) * self.tpot_s
        ok = np.ones(self.ttft_s.size, dtype=bool)
        for values, limit in zip((self.ttft_s, self.tpot_s, total), limits, strict=True):
            if limit is not None:
                ok &= values <= limit
        return float(ok.mean())


@dataclass
class _Device:
    """One device on its own clock, working through a queue of requests in order of arrival."""

    steps: Floats
    chunk_s: Sequence[float]  # prefill seconds of each chunk of a prompt; empty: decodes only
    output_tokens: int
    now: float = 0.0
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    active: list[list[float]] = field(default_factory=list)  # [tokens left, request]
    chunk: int = 0
    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)

    def run(self, arrivals: Sequence[tuple[float, int]]) -> None:
        """Serve all requests: (arrival time, number), in order of time."""
        self.waiting.extend(arrivals)
        while self.waiting or self.active:
            arrived = bool(self.waiting) and self.waiting[0][0] <= self.now
            if arrived and len(self.active) < len(self.steps) - 1:
                self._admit()
            elif self.active:
                self._decode(self._steps_ahead())
            else:
                self.now = self.waiting[0][0]

    def _admit(self) -> None:
        """Compute one chunk of the oldest waiting prompt in a step of the running batch."""
        time = self.chunk_s[self.chunk] if self.chunk_s else 0.0
        if time:
            self._decode(1, time)
        self.chunk += 1
        if self.chunk < len(self.chunk_s):
            return
        self.chunk = 0
        _, number = self.waiting.popleft()
        self.first[number] = self.now
        if self.output_tokens > 1:
            self.active.append([self.output_tokens - 1, number])
        else:
            self.last[number] = self.now

    def _steps_ahead(self) -> int:
        """Return how many steps pass until a request ends or one arrives that has a place."""
        least = int(min(left for left, _ in self.active))
        if not self.waiting or len(self.active) >= len(self.steps) - 1:
            return least
        until = self.waiting[0][0] - self.now
        step = float(self.steps[len(self.active)])
        return max(1, min(least, int(np.ceil(until / step))))

    def _decode(self, steps: int, extra_s: float = 0.0) -> None:
        self.now += steps * float(self.steps[len(self.active)]) + extra_s
        for request in self.active:
            request[0] -= steps
        for left, number in self.active:
            if left <= 0:
                self.last[int(number)] = self.now
        self.active = [r for r in self.active if r[0] > 0]


def poisson_arrivals(requests: int, rate: float, seed: int) -> Floats:
    """Return arrival times in seconds at a mean rate a second."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, requests))


def colocated(times: StepTimes, arrivals: Floats, input_tokens: int, output_tokens: int) -> Served:
    """Return latencies on two devices that each prefill and decode; requests go by turns."""
    whole, rest = divmod(input_tokens, CHUNK_TOKENS)
    sizes = [CHUNK_TOKENS] * whole + ([rest] if rest else [])
    chunks = [times.prefill_s * size / input_tokens for size in sizes]
    first, last = np.empty(arrivals.size), np.empty(arrivals.size)
    for half in (0, 1):
        device = _Device(times.table(), chunks, output_tokens)
        device.run([(float(arrivals[i]), i) for i in range(half, arrivals.size, 2)])
        for number, moment in device.first.items():
            first[number], last[number] = moment, device.last[number]
    return _latencies(arrivals, first, last, output_tokens)


def disaggregated(
    times: StepTimes, arrivals: Floats, output_tokens: int, transfer_s: float = 0.0
) -> Served:
    """Return latencies with one device for prompts and one for tokens.

    The first token comes with the prompt; the second waits for the cache to be moved and for a
    place among those that decode.
    """
    first = np.empty(arrivals.size)
    free = 0.0
    for i, moment in enumerate(arrivals):
        free = max(free, float(moment)) + times.prefill_s
        first[i] = free
    device = _Device(times.table(), (), output_tokens)
    device.run([(float(moment) + transfer_s, i) for i, moment in enumerate(first)])
    last = np.asarray([device.last[i] for i in range(arrivals.size)])
    return _latencies(arrivals, first, last, output_tokens)


def _latencies(arrivals: Floats, first: Floats, last: Floats, output_tokens: int) -> Served:
    kept = slice(int(_WARM * arrivals.size), None)
    per_token = (last - first) / max(1, output_tokens - 1)
    return Served((first - arrivals)[kept], per_token[kept])
