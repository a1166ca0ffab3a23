"""The highest rate that still meets a service-level objective, by bracketing and bisection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from enginebook.errors import InputError
from enginebook.load.records import Records
from enginebook.load.run import run_load
from enginebook.load.target import Target
from enginebook.load.workload import Workload
from enginebook.metrics.goodput import goodput
from enginebook.metrics.summary import summarise
from enginebook.metrics.window import grows, in_flight

_TOLERANCE = 0.05
_MOST_RUNS = 16


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
        named = {
            "response_ttft_ms": self.ttft_ms,
            "tpot_ms": self.tpot_ms,
            "response_e2e_ms": self.e2e_ms,
        }
        return {k: v for k, v in named.items() if v is not None}


@dataclass(frozen=True)
class Trial:
    """One rate that was tried."""

    rate: float
    good_share: float
    achieved_per_s: float | None
    stable: bool
    ok: bool


Measure = Callable[[float], Trial]


def find_saturation(
    target: Target,
    workload: Workload,
    slo: Slo,
    *,
    low: float,
    high: float | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> dict[str, Any]:
    """Find the highest rate of an open loop that meets an objective.

    Each trial has prompts of its own (the seed differs). A rate passes when the share of good
    requests is reached and the number in flight does not grow.

    Parameters
    ----------
    workload
        An open loop; its rate is replaced.
    low, high
        Rates to begin with, requests per second; without ``high`` the rate doubles until it fails.

    Returns
    -------
    dict
        ``rate`` (highest that passed, or None), ``failed_at`` (lowest that failed, or None) and
        ``trials``.
    """
    seeds = iter(range(workload.seed * 1000, workload.seed * 1000 + _MOST_RUNS + 1))

    def measure(rate: float) -> Trial:
        trial_load = workload.but(rate=rate, seed=next(seeds))
        trial = trial_of(run_load(target, trial_load), rate, slo)
        if on_trial is not None:
            on_trial(trial)
        return trial

    return search(measure, low, high)


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


def search(measure: Measure, low: float, high: float | None) -> dict[str, Any]:
    """Bracket the highest passing rate by doubling and close in on it to 5 %."""
    if low <= 0 or (high is not None and high <= low):
        raise InputError(f"rates {low} to {high} are no interval", "give 0 < low < high")
    trials = [measure(low)]
    best, worst = (low, None) if trials[0].ok else (None, low)
    rate = high or 2 * low
    while best is not None and worst is None and len(trials) < _MOST_RUNS:
        trials.append(measure(rate))
        best, worst = (rate, None) if trials[-1].ok else (best, rate)
        rate *= 2
    while _wide(best, worst) and len(trials) < _MOST_RUNS:
        middle = ((best or 0.0) + (worst or 0.0)) / 2
        trials.append(measure(middle))
        best, worst = (middle, worst) if trials[-1].ok else (best, middle)
    return {"rate": best, "failed_at": worst, "trials": [asdict(t) for t in trials]}


def _wide(best: float | None, worst: float | None) -> bool:
    if worst is None:
        return False
    # nothing has passed yet: go down until a hundredth of the failing rate would be next
    return worst - (best or 0.0) > _TOLERANCE * worst
