"""Summaries of samples: percentiles only where the sample can carry them, null where it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Fewest samples for which some sample lies above the percentile with 95 % confidence whatever the
# distribution: 1 - p**n >= 0.95. Below that a "p99" is only another name for the maximum.
FLOORS = {"p50": 1, "p90": 29, "p95": 59, "p99": 299}
_LEVELS = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_OUTER = 0.025


def distribution(values: Floats, weights: Floats | None = None) -> dict[str, Any]:
    """Return mean, percentiles, maximum, sample count and intervals of samples.

    Percentiles are those of linear interpolation (Hyndman and Fan type 7) for plain samples, and
    of the weighted step function for weighted ones.

    Parameters
    ----------
    values
        Shape (n,); entries that are NaN are undefined and left out.
    weights
        Shape (n,), or None for equal weights.

    Returns
    -------
    dict
        ``mean, p50, p90, p95, p99, max`` (None where undefined or below the floor), ``n`` and
        ``intervals`` of the percentiles (95 %, distribution-free, over independent samples).
    """
    if weights is not None:
        keep = np.isfinite(values) & (weights > 0)
        if not np.all(weights[keep] == 1):
            return _weighted(values[keep], weights[keep])
        values = values[keep]
    values = np.sort(values[np.isfinite(values)])
    n = len(values)
    if n == 0:
        return _empty()
    found: dict[str, Any] = {"mean": float(values.mean()), "max": float(values[-1]), "n": n}
    intervals = {}
    for name, level in _LEVELS.items():
        enough = n >= FLOORS[name]
        found[name] = float(_quantile(values, level)) if enough else None
        intervals[name] = order_interval(values, level) if enough else None
    return found | {"intervals": intervals}


def _empty() -> dict[str, Any]:
    return dict.fromkeys(("mean", *_LEVELS, "max")) | {"n": 0, "intervals": dict.fromkeys(_LEVELS)}


def _quantile(ordered: Floats, level: float) -> float:
    position = level * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (position - low))


def order_interval(ordered: Floats, level: float) -> list[float] | None:
    """Return the 95 % interval of a percentile from two order statistics, or None if n is too few.

    Distribution-free; treats the samples as independent, so inside one run it is a lower bound of
    the uncertainty. Comparisons between engines use intervals over blocks instead.
    """
    n = len(ordered)
    from scipy.stats import binom  # noqa: PLC0415 - takes a second, and few need intervals

    low = int(binom.ppf(_OUTER, n, level)) - 1
    high = int(binom.ppf(1 - _OUTER, n, level))
    if low < 0 or high >= n:
        return None
    return [float(ordered[low]), float(ordered[high])]


def _weighted(values: Floats, weights: Floats) -> dict[str, Any]:
    if len(values) == 0:
        return _empty()
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    past = np.cumsum(weights)
    total = past[-1]
    found: dict[str, Any] = {
        "mean": float(np.dot(values, weights) / total),
        "max": float(values[-1]),
        "n": int(total),
    }
    for name, level in _LEVELS.items():
        at = min(int(np.searchsorted(past, level * total)), len(values) - 1)
        found[name] = float(values[at]) if total >= FLOORS[name] else None
    return found | {"intervals": dict.fromkeys(_LEVELS)}
