"""How far another host's clock is from ours, and how well that is known.

Four stamps of one exchange bound the difference for certain: no answer leaves before its question
arrived. Let ``a`` be our clock, ``b`` the other's; a question sent at ``a0`` arrives at
``b1``, its answer leaves at ``b2`` and is here at ``a3``. Then ``b2 - a3 <= offset <= b1 - a0``,
whatever the way there and back took and however unlike the two were. The estimate is the middle of
the narrowest such range of many exchanges, and its error is at most half that range (D. Mills,
RFC 5905, section 8, states the same as offset and half the delay). No narrower bound is claimed:
intersecting the ranges of several exchanges would assume that the clocks run equally fast.

Monotonic clocks of two hosts drift apart by up to some tens of us each second, so the offset is
measured before and after a run and taken to change evenly between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

_PPM = 1e6
_NS_PER_US = 1e3


@dataclass(frozen=True)
class Stamps:
    """One exchange: sent here, received there, sent there, received here. All in ns."""

    a0: int
    b1: int
    b2: int
    a3: int

    @property
    def low(self) -> int:
        """Return the least offset (other minus ours) that agrees with these stamps."""
        return self.b2 - self.a3

    @property
    def high(self) -> int:
        """Return the largest offset that agrees with these stamps."""
        return self.b1 - self.a0

    @property
    def width(self) -> int:
        """Return the time on the way, there and back."""
        return self.high - self.low


@dataclass(frozen=True)
class Offset:
    """The other clock minus ours at one moment of ours, and the most that it can be wrong by."""

    at_ns: int
    offset_ns: int
    bound_ns: int
    round_trip_ns: int
    exchanges: int


def offset_of(exchanges: Sequence[Stamps]) -> Offset:
    """Return the offset by the exchange that was the quickest on its way.

    Raises
    ------
    ValueError
        When there is no exchange.
    """
    best = min(exchanges, key=lambda e: e.width)
    return Offset(
        at_ns=(best.a0 + best.a3) // 2,
        offset_ns=(best.low + best.high) // 2,
        bound_ns=-(-best.width // 2),
        round_trip_ns=best.width,
        exchanges=len(exchanges),
    )


@dataclass(frozen=True)
class Clock:
    """The other clock over a run: a line through two measured offsets.

    ``worst_ns`` is by how much the line leaves the range of any exchange in between: 0 when all
    agree with it, more when a clock was stepped or ran unevenly.
    """

    before: Offset
    after: Offset
    worst_ns: int = 0

    @property
    def drift(self) -> float:
        """Return how much faster the other clock runs, as a share; 0 for a single measurement."""
        span_ns = self.after.at_ns - self.before.at_ns
        return (self.after.offset_ns - self.before.offset_ns) / span_ns if span_ns > 0 else 0.0

    @property
    def bound_ns(self) -> int:
        """Return the most that a converted time can be wrong by."""
        return max(self.before.bound_ns, self.after.bound_ns) + self.worst_ns

    def offset_at(self, ours_ns: int) -> float:
        """Return the offset at a moment of our clock."""
        return self.before.offset_ns + self.drift * (ours_ns - self.before.at_ns)

    def theirs(self, ours_ns: int) -> int:
        """Return a moment of our clock on the other's."""
        return ours_ns + round(self.offset_at(ours_ns))

    def ours(self, theirs: pl.Expr) -> pl.Expr:
        """Return a column of the other clock's times as times of ours; nulls stay nulls."""
        # In differences from a near moment, so that no digit is lost in floating point.
        base = self.before.at_ns + self.before.offset_ns
        since = theirs - base
        slow = (since.cast(pl.Float64) * (self.drift / (1.0 + self.drift))).round(0)
        return theirs - self.before.offset_ns - slow.cast(pl.Int64)

    def report(self) -> dict[str, Any]:
        """Return what is recorded of the clock; drift in parts per million."""
        return {
            "offset_ns": self.before.offset_ns,
            "bound_us": self.bound_ns / _NS_PER_US,
            "drift_ppm": self.drift * _PPM,
            "round_trip_us": self.before.round_trip_ns / _NS_PER_US,
            "beyond_line_us": self.worst_ns / _NS_PER_US,
            "before": asdict(self.before),
            "after": asdict(self.after),
        }


def clock_of(before: Offset, after: Offset | None, between: Iterable[Stamps] = ()) -> Clock:
    """Return the clock over a run, checked by the exchanges that were made meanwhile.

    Parameters
    ----------
    after
        None where the other host was lost before the end; its offset is then taken not to change.
    """
    line = Clock(before, after or before)
    worst = 0.0
    for e in between:
        at = line.offset_at((e.a0 + e.a3) // 2)
        worst = max(worst, at - e.high, e.low - at)
    slack = max(line.before.bound_ns, line.after.bound_ns)
    return Clock(before, after or before, max(0, round(worst) - slack))
