"""Which engine for a given load: measured points alone, nothing between them interpolated.

The page's script computes the same from the same points (template/guide.js); this module is the
reference that tests hold it against, and fills the table for readers without scripts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from enginebook.report.data import StudyData
from enginebook.report.labels import labels_of
from enginebook.report.outcome import LOAD, PLAIN

RATE, TPOT = "output_tokens_per_s", "tpot_p50_ms"
TTFT, TTFT_TAIL = "ttft_p50_ms", "ttft_p95_ms"
S_PER_HOUR, MILLION = 3600.0, 1e6
DIGITS = 9  # of a distance: two lengths equally far stay so in either language's arithmetic


@dataclass(frozen=True)
class Point:
    """One measured point of an engine: lengths and streams, its rate, and what users wait.

    ``value``, ``low`` and ``high`` are output tokens/s with the 95 % interval over blocks.
    ``open``: a heavier load was measured at these lengths, but not of every engine.
    """

    engine: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    value: float
    low: float | None
    high: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tpot_p50_ms: float | None
    open: bool = False


@dataclass(frozen=True)
class Wanted:
    """What is asked: requests/s, tokens of each, limits in ms and price of a host per hour."""

    rate_per_s: float
    input_tokens: float
    output_tokens: float
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is not positive: there is no answer to it."""
        given = (self.rate_per_s, self.input_tokens, self.output_tokens)
        limits = (self.ttft_ms, self.tpot_ms)
        positive = all(math.isfinite(v) and v > 0 for v in given)
        if not positive or any(v is not None and not v > 0 for v in limits):
            raise ValueError("rates, lengths and limits are positive numbers")
        if self.price is not None and not self.price >= 0:
            raise ValueError("a price is not negative")


@dataclass(frozen=True)
class Choice:
    """What an engine needs for a load.

    Attributes
    ----------
    input_tokens, output_tokens
        The measured lengths that lie nearest to those asked.
    point
        The measured point with most streams that meets the limits; None when none does.
    replicas, replicas_most
        Hosts for the rate, by the measured value and by the lower end of its interval.
    per_hour, per_million
        Price of these hosts, for an hour and for a million output tokens at the asked rate.
    rank
        1 + the number of engines whose interval lies wholly above this one's.
    undecided
        Whether another engine's interval overlaps this one's, or either has none, or a heavier
        load, which not every engine has, could change the order.
    loss
        Which share of the best engine's output is lost by choosing this one; 0 for the best.
    """

    engine: str
    input_tokens: int
    output_tokens: int
    point: Point | None
    replicas: int | None = None
    replicas_most: int | None = None
    per_hour: float | None = None
    per_million: float | None = None
    rank: int | None = None
    undecided: bool = False
    loss: float | None = None


def measured_points(data: StudyData) -> list[Point]:
    """Return the points that may advise: closed loop, gate passed, defaults, not simulated.

    Of each pair of lengths only the loads that all of its engines have: an engine whose heaviest
    cell failed would lose by that alone.
    """
    keys = ["engine", *LOAD]
    failed = data.cells.filter(~pl.col("gate_ok")).select(keys).unique()
    plain = data.points.filter(pl.col("concurrency") > 0, pl.col("value") > 0)
    if not data.loads.is_empty():
        plain = plain.join(data.loads.filter(PLAIN).select(LOAD), on=list(LOAD), how="semi")
    plain = plain.join(failed, on=keys, how="anti").filter(
        ~pl.col("engine").is_in(_set_aside(data))
    )
    rates = plain.filter(pl.col("metric") == RATE)
    for name in (TTFT, TTFT_TAIL, TPOT):
        mine = plain.filter(pl.col("metric") == name).select(*keys, pl.col("value").alias(name))
        rates = rates.join(mine, on=keys, how="left")
    # several scenarios may hold the same point: the one with most blocks is known best
    same = ["engine", "input_tokens", "output_tokens", "concurrency"]
    kept = rates.sort([*same, "n_blocks", "scenario"], descending=[False] * 4 + [True, False])
    kept = kept.unique(same, keep="first", maintain_order=True)
    columns = [*same, "value", "low", "high", TTFT, TTFT_TAIL, TPOT]
    return _in_common([Point(*row) for row in kept.select(columns).iter_rows()])


def _in_common(points: Sequence[Point]) -> list[Point]:
    """Return the points at loads that all engines with points of the same lengths have."""
    engines: dict[tuple[int, int], set[str]] = {}
    having: dict[tuple[int, int, int], set[str]] = {}
    for p in points:
        engines.setdefault(_lengths(p), set()).add(p.engine)
        having.setdefault((*_lengths(p), p.concurrency), set()).add(p.engine)

    def common(p: Point) -> bool:
        return having[*_lengths(p), p.concurrency] == engines[_lengths(p)]

    kept = [p for p in points if common(p)]
    heaviest, last = _heaviest(points), _heaviest(kept)
    return [
        replace(p, open=p.concurrency == last[_lengths(p)] < heaviest[_lengths(p)]) for p in kept
    ]


def _heaviest(points: Iterable[Point]) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for p in points:
        found[_lengths(p)] = max(found.get(_lengths(p), 0), p.concurrency)
    return found


def _lengths(point: Point) -> tuple[int, int]:
    return point.input_tokens, point.output_tokens


def commonest_lengths(points: Sequence[Point]) -> tuple[int, int]:
    """Return the (input, output) lengths at which most was measured, the shortest of equals."""
    lengths = [_lengths(p) for p in points]
    return max(sorted(set(lengths)), key=lengths.count)


def _set_aside(data: StudyData) -> list[str]:
    """Return simulated engines and those that do not run with their defaults."""
    other = data.arms.filter(pl.col("simulated") | (pl.col("arm") != "defaults"))
    simulated = labels_of(data.arms, data.manifest, data.language).values()
    return sorted({*other["engine"].to_list(), *simulated})


def choose(points: Iterable[Point], wanted: Wanted) -> list[Choice]:
    """Return one choice an engine: those that meet the limits by rank, then the others."""
    by_engine: dict[str, list[Point]] = {}
    for point in points:
        by_engine.setdefault(point.engine, []).append(point)
    found = [_choice(engine, mine, wanted) for engine, mine in by_engine.items()]
    ranked = [_ranked(choice, found) for choice in found]
    return sorted(ranked, key=_order)


def _choice(engine: str, points: Sequence[Point], wanted: Wanted) -> Choice:
    inputs, outputs = nearest(points, wanted)
    fitting = [p for p in points if _lengths(p) == (inputs, outputs) and meets(p, wanted)]
    if not fitting:
        return Choice(engine, inputs, outputs, None)
    best = max(fitting, key=lambda p: p.concurrency)
    tokens_per_s = wanted.rate_per_s * wanted.output_tokens
    hosts = math.ceil(tokens_per_s / best.value)
    most = math.ceil(tokens_per_s / best.low) if best.low is not None and best.low > 0 else None
    per_hour = None if wanted.price is None else hosts * wanted.price
    per_million = None if per_hour is None else per_hour / (tokens_per_s * S_PER_HOUR) * MILLION
    return Choice(engine, inputs, outputs, best, hosts, most, per_hour, per_million)


def nearest(points: Iterable[Point], wanted: Wanted) -> tuple[int, int]:
    """Return the measured (input, output) lengths nearest in log distance, the shorter if equal."""
    lengths = {_lengths(p) for p in points}
    asked = (wanted.input_tokens, wanted.output_tokens)

    def far(pair: tuple[int, int]) -> tuple[float, int, int]:
        parts = [math.log(max(a, b) / min(a, b)) for a, b in zip(pair, asked, strict=True)]
        return (round(sum(part * part for part in parts), DIGITS), *pair)

    return min(lengths, key=far)


def meets(point: Point, wanted: Wanted) -> bool:
    """Return whether a point keeps the limits: TTFT by its 95th percentile, TPOT by its median."""
    ttft = point.ttft_p95_ms if point.ttft_p95_ms is not None else point.ttft_p50_ms
    pairs = ((ttft, wanted.ttft_ms), (point.tpot_p50_ms, wanted.tpot_ms))
    return all(limit is None or (value is not None and value <= limit) for value, limit in pairs)


def _ranked(choice: Choice, others: Sequence[Choice]) -> Choice:
    mine = choice.point
    if mine is None:
        return choice
    rivals = [o.point for o in others if o.point is not None and o is not choice]
    above = sum(_surely_above(rival, mine) for rival in rivals)
    open_ = any(not _surely_above(r, mine) and not _surely_above(mine, r) for r in rivals)
    best = max(rival.value for rival in [mine, *rivals])
    return replace(choice, rank=1 + above, undecided=open_, loss=1 - mine.value / best)


def _surely_above(one: Point, other: Point) -> bool:
    if one.open or other.open:
        return False
    return one.low is not None and other.high is not None and one.low > other.high


def _order(choice: Choice) -> tuple[float, float, str]:
    value = choice.point.value if choice.point else 0.0
    return (choice.rank or math.inf, -value, choice.engine)
