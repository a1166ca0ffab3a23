"""When requests are due: absolute offsets from the start, never sleeps added one to another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from enginebook.load.clock import NS_PER_S
from enginebook.load.workload import Workload, arrival_cv

Offsets = npt.NDArray[np.int64]
_ARRIVAL_STREAM = 31


def unit_gaps(count: int, cv: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return gaps with mean 1 and the given coefficient of variation, shape (count,)."""
    if cv == 0:
        return np.ones(count)
    shape = 1.0 / cv**2
    return rng.gamma(shape, 1.0 / shape, size=count)


def open_loop_offsets(workload: Workload) -> Offsets:
    """Return the due times of an open loop in ns after its start, shape (n,), ascending.

    With ``duration_s`` all arrivals inside the time; with ``requests`` exactly so many. A ramp
    changes the rate linearly over the run by stretching the same unit-rate process.
    """
    rate = float(workload.rate or 0.0)
    rng = np.random.default_rng([workload.seed, _ARRIVAL_STREAM])
    cv = arrival_cv(workload.arrival)
    last_rate = workload.ramp_to or rate
    if workload.duration_s is not None:
        span_s = workload.duration_s
        expected = (rate + last_rate) / 2 * span_s
        count = int(expected + 10 * (1 + cv) * np.sqrt(expected + 1) + 10)
    else:
        count = int(workload.requests or 0)
        span_s = 2 * count / (rate + last_rate)
    events = np.cumsum(unit_gaps(count, cv, rng)) - (1.0 if cv == 0 else 0.0)
    due_s = _stretch(events, rate, last_rate, span_s)
    if workload.duration_s is not None:
        due_s = due_s[due_s < span_s]
    return np.asarray(np.round(due_s * NS_PER_S), dtype=np.int64)


def _stretch(
    events: npt.NDArray[np.float64], rate: float, last_rate: float, span_s: float
) -> npt.NDArray[np.float64]:
    """Return the times at which the integral of the rate reaches ``events``.

    The rate is rate + slope * t up to ``span_s`` and stays at ``last_rate`` from there on.
    """
    slope = (last_rate - rate) / span_s if span_s else 0.0
    if slope == 0:
        return events / rate
    at_end = (rate + last_rate) / 2 * span_s
    inside = np.minimum(events, at_end)
    root = np.sqrt(np.maximum(rate**2 + 2 * slope * inside, 0.0))
    return (root - rate) / slope + np.maximum(events - at_end, 0.0) / last_rate
