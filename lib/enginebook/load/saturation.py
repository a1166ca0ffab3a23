"""The highest rate that still meets a service-level objective, by bracketing and bisection."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from enginebook.errors import InputError
from enginebook.load.records import Records
from enginebook.load.run import run_load
from enginebook.load.target import Target
from enginebook.load.workload import Workload
from enginebook.metrics.goodput import goodput, limits_of
from enginebook.metrics.summary import summarise
from enginebook.metrics.window import grows, in_flight

_TOLERANCE = 0.05
_MOST_RUNS = 16
_LEAST_SHARE_OF_LOW = 0.01  # below that share of the first rate the objective is out of reach
_PROBES_EXPECTED = 10  # the time is shared among so many
_LONGEST_PROBE = 3.0  # times its share: an overloaded server is given up then
LEAST_REQUESTS = 30


@dataclass(frozen=True)
class Slo:
    """Limits that a request must keep, and the share of all requests that must keep them.

    Attributes
    ----------
    ttft_ms, e2e_ms
        From the scheduled time, so that waiting for a place counts.
    tpot_ms
        Not applicable to an answer of a single chunk, which it neither passes nor fails.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    share: float = 0.99

    def __post_init__(self) -> None:
        limits = [v for v in (self.ttft_ms, self.tpot_ms, self.e2e_ms) if v is not None]
        if not limits or min(limits) <= 0 or not 0 < self.share <= 1:
            raise InputError(
                "a service-level objective needs a limit above 0 and a share in (0, 1]",
                "give ttft_ms, tpot_ms or e2e_ms",
            )

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by the metric they are held against."""
        return limits_of(asdict(self))


@dataclass(frozen=True)
class Trial:
    """One rate that was tried."""

    rate: float
    good_share: float
    achieved_per_s: float | None
    stable: bool
    ok: bool


Measure = Callable[[float], Trial]


@dataclass(frozen=True)
class Probe:
    """How one rate of a search is measured."""

    number: int
    rate: float
    requests: int
    max_seconds: float


def find_capacity(
    target: Target,
    workload: Workload,
    slo: Slo,
    *,
    name: str,
    directory: Path | None = None,
    max_seconds: float = 600.0,
    low: float | None = None,
    high: float | None = None,
    on_probe: Callable[[Probe], None] | None = None,
) -> dict[str, Any]:
    """Find the highest rate of an open loop that meets an objective, within a given time.

    All rates have common random numbers: the same lengths and the same pattern of arrivals, only
    faster or slower, so that two probes, or the same search on two engines, differ by rate and
    engine and not by the luck of the draw. The words of the prompts differ from probe to probe, or
    a prefix cache would answer the later ones. A rate passes when the share of good requests is
    reached and the number in flight does not grow.

    Parameters
    ----------
    workload
        An open loop; its rate is replaced, and its number of requests follows from rate and time.
    name
        Of the objective, in the result.
    directory
        Each probe's records go into a folder ``probe-NN`` in it; None keeps none.
    max_seconds
        Of the whole search, the last probe included.
    low, high
        Rates to begin with, requests per second; by default the workload's own rate, doubled until
        it fails.
    on_probe
        Called before each probe.

    Returns
    -------
    dict
        ``slo``, ``capacity_per_s`` (highest rate that passed, None if none did),
        ``failed_at_per_s`` (lowest that failed, None if none did), ``ended_by`` (``tolerance``,
        ``seconds``, ``probes`` or ``out of reach``) and ``probes``: ``rate, slo_share,
        achieved_per_s, stable, ok, requests, directory``.
    """
    if workload.kind != "open_loop":
        raise InputError("a search for a rate needs an open loop", "give the workload a rate")
    deadline_s, probes = time.monotonic() + max_seconds, list[Probe]()

    def measure(rate: float) -> Trial:
        left_s = deadline_s - time.monotonic()
        probes.append(probe_of(len(probes), rate, left_s, max_seconds))
        if on_probe is not None:
            on_probe(probes[-1])
        return _measure(target, workload, slo, probes[-1], directory)

    def in_time() -> bool:
        return deadline_s - time.monotonic() > max_seconds / (2 * _PROBES_EXPECTED)

    found = search(measure, low or workload.rate or 1.0, high, in_time)
    return {
        "slo": name,
        "capacity_per_s": found["rate"],
        "failed_at_per_s": found["failed_at"],
        "ended_by": found["ended_by"],
        "probes": [_told(p, t) for p, t in zip(probes, found["trials"], strict=True)],
    }


def probe_of(number: int, rate: float, left_s: float, max_seconds: float) -> Probe:
    """Return how a rate is measured in the time that is left.

    A probe gets a tenth of the time, or as long as its least number of requests takes.
    """
    share_s = max_seconds / _PROBES_EXPECTED
    requests = max(LEAST_REQUESTS, math.ceil(rate * share_s))
    longest_s = max(_LONGEST_PROBE * share_s, 2 * requests / rate)
    return Probe(number, rate, requests, max(share_s / 2, min(left_s, longest_s)))


def _measure(
    target: Target, workload: Workload, slo: Slo, probe: Probe, directory: Path | None
) -> Trial:
    load = workload.but(
        rate=probe.rate,
        requests=probe.requests,
        duration_s=None,
        ramp_to=None,
        precision=None,
        max_seconds=probe.max_seconds,
        prompt_seed=workload.seed * 1000 + probe.number,
    )
    folder = directory / f"probe-{probe.number:02}" if directory is not None else None
    return trial_of(run_load(target, load, folder), probe.rate, slo)


def _told(probe: Probe, trial: Mapping[str, Any]) -> dict[str, Any]:
    kept = {k: trial[k] for k in ("rate", "achieved_per_s", "stable", "ok")}
    place = {"requests": probe.requests, "directory": f"probe-{probe.number:02}"}
    return {**kept, "slo_share": trial["good_share"], **place}


def trial_of(records: Records, rate: float, slo: Slo) -> Trial:
    """Judge the records of one rate."""
    good: Mapping[str, Any] = goodput(records, slo.limits())
    flying = in_flight(records.requests)
    ends = flying.t_ns
    stable = len(ends) > 0 and not grows(flying, int(ends[0]), _last_sending_ns(records))
    ok = stable and good["share"] is not None and good["share"] >= slo.share
    achieved = summarise(records)["requests_per_s"]
    return Trial(rate, float(good["share"] or 0.0), achieved, stable, ok)


def _last_sending_ns(records: Records) -> int:
    return int(records.requests["sent_ns"].drop_nulls().to_numpy().max())


def search(
    measure: Measure,
    low: float,
    high: float | None,
    in_time: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Bracket the highest passing rate by doubling and close in on it to 5 %.

    Parameters
    ----------
    in_time
        Asked before each trial but the first; the search ends when it says no.

    Returns
    -------
    dict
        ``rate`` (highest that passed, or None), ``failed_at`` (lowest that failed, or None),
        ``trials`` and ``ended_by``.
    """
    if low <= 0 or (high is not None and high <= low):
        raise InputError(f"rates {low} to {high} are no interval", "give 0 < low < high")
    trials = [measure(low)]
    best, worst = (low, None) if trials[0].ok else (None, low)
    ended_by = None
    while ended_by is None:
        rate = _next_rate(best, worst, high if best == low else None)
        ended_by = _end(rate, low, len(trials), in_time)
        if rate is not None and ended_by is None:
            trials.append(measure(rate))
            best, worst = (rate, worst) if trials[-1].ok else (best, rate)
    return {
        "rate": best,
        "failed_at": worst,
        "trials": [asdict(t) for t in trials],
        "ended_by": ended_by,
    }


def _next_rate(best: float | None, worst: float | None, high: float | None) -> float | None:
    """Return the rate to try next, or None when the bracket is narrow enough."""
    if worst is None:
        return high or 2 * (best or 0.0)
    if best is not None and worst - best <= _TOLERANCE * worst:
        return None
    return ((best or 0.0) + worst) / 2


def _end(rate: float | None, low: float, done: int, in_time: Callable[[], bool]) -> str | None:
    """Return why a search is over, or None when it goes on."""
    if rate is None:
        return "tolerance"
    if rate < _LEAST_SHARE_OF_LOW * low:
        return "out of reach"
    if done >= _MOST_RUNS:
        return "probes"
    return None if in_time() else "seconds"
