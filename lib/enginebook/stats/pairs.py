"""The paired ratio of two engines over blocks: estimate, interval, and the tests on a margin.

In one block both engines receive the same prompts in the same order, one soon after the other. The
logarithm of the ratio of their results is one observation; its spread holds everything that a
repeat would change (start-up, clocks, autotuning, the host's other work).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from enginebook.stats.intervals import SMALLEST, Interval, Values, mean_interval


@dataclass(frozen=True)
class Pairs:
    """The log ratios of n blocks, as their mean and sample standard deviation."""

    n: int
    mean: float
    sd: float | None  # None with one block

    @property
    def degrees(self) -> int:
        """Return the degrees of freedom of the t statistics."""
        return self.n - 1

    @property
    def standard_error(self) -> float | None:
        """Return the standard error of the mean log ratio."""
        return None if self.sd is None else self.sd / math.sqrt(self.n)

    @property
    def ratio(self) -> float:
        """Return the ratio of the geometric means."""
        return math.exp(self.mean)

    def flipped(self) -> Pairs:
        """Return the ratio the other way round."""
        return Pairs(self.n, -self.mean, self.sd)

    def p_above(self, bound: float) -> float | None:
        """Return the one-sided p value against `mean log ratio <= bound`; None with one block."""
        error = self.standard_error
        if error is None:
            return None
        if error == 0:
            return 0.0 if self.mean > bound else 1.0
        return float(special.stdtr(self.degrees, (bound - self.mean) / error))

    def p_inside(self, bound: float) -> float | None:
        """Return the p value of two one-sided tests against `|mean log ratio| >= bound`."""
        low, high = self.p_above(-bound), self.flipped().p_above(-bound)
        return None if low is None or high is None else max(low, high)


def pairs_of(a: Values, b: Values) -> Pairs:
    """Return the paired log ratios a/b; equal lengths, all values above 0, at least one block."""
    d = np.log(np.asarray(a, dtype=float)) - np.log(np.asarray(b, dtype=float))
    return pairs_of_logs(d)


def pairs_of_logs(logs: Values) -> Pairs:
    """Return the summary of log ratios that exist already."""
    d = np.asarray(logs, dtype=float)
    spread = float(d.std(ddof=1)) if d.size >= SMALLEST else None
    return Pairs(int(d.size), float(d.mean()), spread)


def paired_ratio(a: Values, b: Values, confidence: float = 0.95) -> Interval:
    """Return the ratio a/b of paired blocks and its t interval on the log scale."""
    d = np.log(np.asarray(a, dtype=float)) - np.log(np.asarray(b, dtype=float))
    logs = mean_interval(d, confidence)
    value, low, high = (
        None if v is None else math.exp(v) for v in (logs.value, logs.low, logs.high)
    )
    return Interval(value, low, high, logs.n)


def holm(p_values: Values) -> list[float]:
    """Return Holm's adjusted p values, in the order given (family-wise error, any dependence)."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate((p.size - np.arange(p.size)) * p[order])
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(steps, 1.0)
    return [float(v) for v in adjusted]
