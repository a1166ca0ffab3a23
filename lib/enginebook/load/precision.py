"""When enough has been measured: the interval of throughput and TTFT within a run, as it goes on.

Successive requests of one run depend on each other, so the interval is that of batch means: the run
is cut into as many equal stretches of time as leave the stretches uncorrelated (at least ten), and
their spread gives Student's interval of a ratio (chunks over time; time to the first byte over
answers). It tells how well *this run* is known, not how well a repeated one would agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from enginebook.errors import InputError
from enginebook.load.clock import NS_PER_S
from enginebook.load.control import Progress
from enginebook.metrics.window import mser5

FEWEST_BATCHES = 10
MOST_BATCHES = 30
_CONFIDENCE = 0.975
_GRID = 400  # finest resolution of the history that is looked at
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Precision:
    """A rule for ending early.

    Attributes
    ----------
    half_width
        Of the 95 % intervals, relative to their means.
    min_requests, min_seconds
        At least so many answers and so much time, however tight the intervals.
    """

    half_width: float
    min_requests: int = 32
    min_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not (0 < self.half_width < 1 and self.min_requests >= 1 and self.min_seconds > 0):
            raise InputError(
                f"{self} is no precision",
                "give a half width between 0 and 1, min_requests of 1 or more, min_seconds above 0",
            )

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return the rule that a mapping holds; fields that are no part of it are refused."""
        try:
            return cls(**fields)
        except TypeError as error:
            raise InputError(
                f"precision: {error}", "give half_width, min_requests, min_seconds"
            ) from error


def precision_of(value: Precision | Mapping[str, Any] | None) -> Precision | None:
    """Return a rule given as an object, as a mapping, or not at all."""
    return Precision.of(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class Known:
    """How well a run is known so far; half-widths relative to the mean, None before ten batches."""

    throughput: float | None
    ttft: float | None
    batches: int

    @property
    def widest(self) -> float | None:
        """Return the wider of the two, None while either is unknown."""
        if self.throughput is None or self.ttft is None:
            return None
        return max(self.throughput, self.ttft)


class Watch:
    """Follows the shared counters of a run and says when its rule is met.

    Parameters
    ----------
    total
        How many requests the run will send at the most; what is seen once all were sent is the
        end of the run and not looked at.
    """

    def __init__(self, rule: Precision, total: int | None) -> None:
        self._rule = rule
        self._total = total
        self._rows: list[tuple[int, int, int, int]] = []
        self.known = Known(None, None, 0)

    def add(self, elapsed_ns: int, total: Progress) -> bool:
        """Take the counters of the moment; return whether enough has been measured."""
        if self._total is not None and total.done + total.in_flight >= self._total:
            return False
        row = (elapsed_ns, total.chunks, total.first_bytes, total.first_byte_sum_ns)
        if not self._rows or elapsed_ns > self._rows[-1][0]:
            self._rows.append(row)
        rule = self._rule
        if elapsed_ns < rule.min_seconds * NS_PER_S or total.done < rule.min_requests:
            return False
        self.known = known_of(np.asarray(self._rows, np.float64))
        return self.known.widest is not None and self.known.widest <= rule.half_width

    def report(self) -> dict[str, Any]:
        """Return the rule and what was achieved, as JSON values."""
        known, rule = self.known, self._rule
        return {
            "half_width": rule.half_width,
            "throughput_half_width": known.throughput,
            "ttft_half_width": known.ttft,
            "achieved_half_width": known.widest,
            "batches": known.batches,
            "met": known.widest is not None and known.widest <= rule.half_width,
        }


def known_of(rows: Floats) -> Known:
    """Return how well a history of counters is known.

    Parameters
    ----------
    rows
        Shape (n, 4): ns since the start, and chunks, answers begun, and ns to their first bytes,
        each in total so far.
    """
    if len(rows) <= FEWEST_BATCHES:
        return Known(None, None, 0)
    grid = np.linspace(rows[0, 0], rows[-1, 0], min(len(rows), _GRID))
    totals = np.stack([np.interp(grid, rows[:, 0], rows[:, k]) for k in (1, 2, 3)])
    start = mser5(np.diff(totals[0]))  # the ramp is not part of the run that is judged
    grid, totals = grid[start:], totals[:, start:]
    for count in range(min(MOST_BATCHES, len(grid) - 1), FEWEST_BATCHES - 1, -1):
        edges = np.linspace(grid[0], grid[-1], count + 1)
        chunks, firsts, waits = (np.diff(np.interp(edges, grid, t)) for t in totals)
        if correlated(chunks) and count > FEWEST_BATCHES:
            continue
        return Known(half_width(chunks, np.diff(edges)), half_width(waits, firsts), count)
    return Known(None, None, 0)


def correlated(batches: Floats) -> bool:
    """Return whether neighbouring batches resemble each other: lag-1 correlation above chance."""
    spread = batches - batches.mean()
    power = float(np.dot(spread, spread))
    if power == 0:
        return False
    return bool(np.dot(spread[1:], spread[:-1]) / power > 1.0 / np.sqrt(len(batches)))


def half_width(parts: Floats, sizes: Floats) -> float | None:
    """Return the relative half-width of the 95 % interval of sum(parts) / sum(sizes).

    Parameters
    ----------
    parts, sizes
        Of each batch, shape (n,).

    Returns
    -------
    float or None
        None when there is nothing to divide by, or fewer than ten batches that hold anything.
    """
    n, size = int(np.count_nonzero(sizes)), float(sizes.sum())
    if n < FEWEST_BATCHES or size <= 0 or parts.sum() <= 0:
        return None
    ratio = float(parts.sum()) / size
    left = parts - ratio * sizes  # what each batch has more than its share: the delta method
    error = float(np.sqrt(np.dot(left, left) / (n * (n - 1)))) / (size / n)
    return student(n - 1) * error / ratio


def student(freedom: int) -> float:
    """Return the 97.5 % point of Student's distribution."""
    from scipy.special import stdtrit  # noqa: PLC0415 - a load without a rule needs no scipy

    return float(stdtrit(freedom, _CONFIDENCE))
