"""Intervals over blocks and, for a single block, over its requests.

The unit of replication is the block: one start of an engine with one set of prompts. Requests of
one block share its batch, clocks, caches and allocator, so an interval over requests says how well
a block was read, never how well the engine is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.stats as st
from numpy.typing import NDArray
from scipy import special

Values = Sequence[float] | NDArray[np.float64]
CONFIDENCE: Final = 0.95
SMALLEST: Final = 2  # blocks below which nothing is known of the spread


@dataclass(frozen=True)
class Interval:
    """A value with its limits; the limits are None where the data cannot carry any."""

    value: float | None
    low: float | None
    high: float | None
    n: int


def mean_interval(values: Values, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean and its t interval; n below 2 gives no limits."""
    x = np.asarray(values, dtype=float)
    if x.size == 0:
        return Interval(None, None, None, 0)
    mean = float(x.mean())
    if x.size < SMALLEST:
        return Interval(mean, None, None, int(x.size))
    half = float(x.std(ddof=1)) / math.sqrt(x.size) * t_quantile(confidence, x.size - 1)
    return Interval(mean, mean - half, mean + half, int(x.size))


def geometric_interval(values: Values, confidence: float = CONFIDENCE) -> Interval:
    """Return the geometric mean and the t interval of the logarithms; all values above 0.

    Used for rates and times: the limits stay positive, and the ratio of two such means over the
    same blocks is exactly the paired ratio that `paired_ratio` reports.
    """
    logs = mean_interval(np.log(np.asarray(values, dtype=float)), confidence)
    value, low, high = (
        None if v is None else math.exp(v) for v in (logs.value, logs.low, logs.high)
    )
    return Interval(value, low, high, logs.n)


def t_quantile(confidence: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t."""
    return float(special.stdtrit(degrees, 0.5 + confidence / 2))


def proportion_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Return a share and its Wilson interval, such as failed requests of one block."""
    if trials == 0:
        return Interval(None, None, None, 0)
    found = st.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return Interval(successes / trials, float(found.low), float(found.high), trials)


def quantile_floor(quantile: float, confidence: float = CONFIDENCE) -> int:
    """Return how many independent values any upper limit on a quantile needs (1 - q**n >= c)."""
    return math.ceil(math.log(1 - confidence) / math.log(quantile))


def quantile_interval(values: Values, quantile: float, confidence: float = CONFIDENCE) -> Interval:
    """Return a sample quantile and limits read from the order statistics (no distribution assumed).

    The two ranks are interpolated so that the coverage is the one asked for and not the next larger
    step of the binomial (Nyblom 1992). A limit that the sample is too short for is None.
    """
    x = np.sort(np.asarray(values, dtype=float))
    if x.size == 0:
        return Interval(None, None, None, 0)
    tail = (1 - confidence) / 2
    value = float(np.quantile(x, quantile))
    return Interval(
        value,
        _order_limit(x, quantile, tail),
        _negated(_order_limit(-x[::-1], 1 - quantile, tail)),
        int(x.size),
    )


def _order_limit(ordered: NDArray[np.float64], quantile: float, tail: float) -> float | None:
    """Return the lower limit: P(limit > true quantile) = tail, between two order statistics.

    P(x_(r) > quantile) = P(fewer than r values below it) = binom.cdf(r - 1, n, q).
    """
    n = len(ordered)
    above = st.binom.cdf(np.arange(n), n, quantile)  # above[r-1] belongs to rank r
    rank = int(np.searchsorted(above, tail, side="right"))  # largest rank with above <= tail
    if rank == 0:
        return None
    if rank == n:
        return float(ordered[-1])
    lower, upper = above[rank - 1], above[rank]
    share = (tail - lower) / (upper - lower)
    weight = (rank * share) / (rank * share + (n - rank) * (1 - share))
    return float((1 - weight) * ordered[rank - 1] + weight * ordered[rank])


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def bca_interval(
    values: Values,
    statistic: Callable[..., NDArray[np.float64]],
    *,
    confidence: float = CONFIDENCE,
    draws: int = 4000,
    seed: int = 0,
) -> Interval:
    """Return a statistic of many blocks and its BCa bootstrap interval (scipy).

    For statistics without a t interval and 20 blocks or more: below that a bootstrap of means is
    too narrow (see docs/method-statistics.md), and `mean_interval` is used instead.

    Parameters
    ----------
    statistic
        Called as ``statistic(sample, axis=-1)``.
    """
    x = np.asarray(values, dtype=float)
    value = float(statistic(x, axis=-1))
    if x.size < SMALLEST or float(np.ptp(x)) == 0:
        return Interval(value, None, None, int(x.size))
    found = st.bootstrap(
        (x,), statistic, confidence_level=confidence, n_resamples=draws, method="BCa",
        rng=np.random.default_rng(seed), axis=-1,
    ).confidence_interval  # fmt: skip
    return Interval(value, float(found.low), float(found.high), int(x.size))
