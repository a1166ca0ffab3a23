"""Who leads at one load, and whether the data can carry it.

Everything that the report says in words or marks in a table goes through `outcome`, so that a
title, a finding and a bold figure can never disagree, and nothing is called better that the
comparison did not call better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from enginebook.report.data import StudyData
from enginebook.stats import better

Kind = Literal["wins", "tie", "undecided", "no verdict", "alone"]
LOAD = ("scenario", "concurrency", "input_tokens", "output_tokens")
PLAIN = (
    (pl.col("kind") == "closed_loop")
    & (pl.col("cache") == "cold")
    & (pl.col("answer_format") == "text")
)
"""Rows of the frame `loads` whose work follows from streams and lengths alone."""
_BETTER = {"faster": "better", "slower": "worse"}
_OPPOSITE = {"better": "worse", "worse": "better"}


@dataclass(frozen=True, order=True)
class Load:
    """One point of load."""

    scenario: str
    concurrency: int
    input_tokens: int
    output_tokens: int

    def rows(self, frame: pl.DataFrame, metric: str) -> pl.DataFrame:
        """Return the frame's rows of this load and metric."""
        same = [pl.col(name) == getattr(self, name) for name in LOAD]
        return frame.filter(*same, pl.col("metric") == metric)


@dataclass(frozen=True)
class Pair:
    """One engine against another; ``advantage`` above 1 is in favour of the first.

    ``verdict`` is ``better``, ``worse``, ``tie``, ``undecided`` or ``no verdict``.
    """

    first: str
    second: str
    verdict: str
    advantage: float | None
    low: float | None
    high: float | None
    reason: str
    blocks_needed: int | None


@dataclass(frozen=True)
class Outcome:
    """What can be said of one metric at one load.

    Attributes
    ----------
    kind
        ``wins``: the leader is better than every other engine. ``tie``, ``undecided``,
        ``no verdict``: what holds between the leader and the nearest engine it does not beat.
        ``alone``: one engine was measured.
    leader
        The engine with the best value, whether or not the lead is carried by the data.
    value, low, high, unit_metric
        The leader's value and interval.
    pair
        Leader against the engine that the sentence speaks of; None when alone.
    """

    load: Load
    metric: str
    kind: Kind
    leader: str
    value: float
    pair: Pair | None

    @property
    def winner(self) -> str | None:
        """Return the engine that is better than all others, if there is one."""
        return self.leader if self.kind == "wins" else None


def higher_is_better(metric: str) -> bool:
    """Return whether more is better: rates yes, times no."""
    return better(metric) > 0


def loads(data: StudyData, metric: str) -> list[Load]:
    """Return the loads at which a metric has a value, lightest first."""
    rows = data.points.filter(pl.col("metric") == metric, pl.col("value").is_not_null())
    return sorted(Load(*row) for row in rows.select(LOAD).unique().iter_rows())


def compare(data: StudyData, load: Load, metric: str, first: str, second: str) -> Pair | None:
    """Return the comparison of two engines, whichever way round it is stored."""
    for row in load.rows(data.comparisons, metric).iter_rows(named=True):
        if (row["engine_a"], row["engine_b"]) == (first, second):
            return _pair(row, metric, swapped=False)
        if (row["engine_a"], row["engine_b"]) == (second, first):
            return _pair(row, metric, swapped=True)
    return None


def _pair(row: dict[str, Any], metric: str, *, swapped: bool) -> Pair:
    """Turn a stored row (a against b, ratio a/b) into an advantage of the engine named first."""
    verdict = _BETTER.get(row["verdict"], row["verdict"])
    first, second = row["engine_a"], row["engine_b"]
    if swapped:
        first, second = second, first
        verdict = _OPPOSITE.get(verdict, verdict)
    numbers = (row["ratio"], row["low"], row["high"])
    if higher_is_better(metric) == swapped:  # b/a for a rate, a/b turned round for a time
        value, low, high = (None if n is None or n <= 0 else 1 / n for n in numbers)
        numbers = (value, high, low)
    return Pair(first, second, verdict, *numbers, row["reason"] or "", row["blocks_needed"])


def outcome(data: StudyData, load: Load, metric: str) -> Outcome | None:
    """Return who leads at a load and whether that is sure; None where nothing was measured."""
    rows = load.rows(data.points, metric).drop_nulls("value")
    rows = rows.filter(pl.col("engine").is_in(comparable(data, rows["engine"].to_list())))
    ordered = rows.sort("value", descending=higher_is_better(metric), maintain_order=True)
    if ordered.is_empty():
        return None
    engines, value = ordered["engine"].to_list(), float(ordered["value"][0])
    leader, others = engines[0], engines[1:]
    if not others:
        return Outcome(load, metric, "alone", leader, value, None)
    pairs = [
        compare(data, load, metric, leader, other) or _not_compared(leader, other)
        for other in others
    ]
    open_pairs = [p for p in pairs if p.verdict != "better"]
    pair = open_pairs[0] if open_pairs else pairs[0]
    return Outcome(load, metric, _kind(pair), leader, value, pair)


def comparable(data: StudyData, engines: Sequence[str]) -> list[str]:
    """Return those of some engines that an answer may weigh against each other.

    Engines of different arms differ on purpose, and simulated ones measure nothing: neither gets a
    verdict against the others. Real engines go before simulated ones, and of the arms the defaults,
    unless only another arm holds two engines to compare.
    """
    kinds = {
        row["engine"]: (bool(row["simulated"]), str(row["arm"]))
        for row in data.arms.iter_rows(named=True)
    }
    groups: dict[tuple[bool, str], list[str]] = {}
    for engine in engines:
        groups.setdefault(kinds.get(engine, (False, "defaults")), []).append(engine)

    def later(kind: tuple[bool, str]) -> tuple[bool, bool, bool, int]:
        simulated, arm = kind
        return (simulated, len(groups[kind]) < 2, arm != "defaults", -len(groups[kind]))  # noqa: PLR2004

    return groups[min(groups, key=later)] if groups else []


def _not_compared(first: str, second: str) -> Pair:
    return Pair(first, second, "no verdict", None, None, None, "not compared", None)


def _kind(pair: Pair) -> Kind:
    if pair.verdict == "better":
        return "wins"
    if pair.verdict == "tie":
        return "tie"
    # "worse" cannot be said of the engine with the better value: the data contradict themselves
    return "undecided" if pair.verdict in {"undecided", "worse"} else "no verdict"


def outcomes(data: StudyData, metrics: Iterable[str]) -> list[Outcome]:
    """Return the outcome of each load and metric at which at least two engines were measured."""
    found = [outcome(data, load, metric) for metric in metrics for load in loads(data, metric)]
    return [o for o in found if o is not None and o.kind != "alone"]


def sweep(data: StudyData, metric: str, axis: str) -> list[Load]:
    """Return the loads of the scenario in which ``axis`` takes most values, in its order.

    The other axes are held at their commonest values, the lower ones when equal. Loads without a
    number of streams are on no such axis; plain text with cold caches goes before other loads.
    """
    found = [load for load in loads(data, metric) if load.concurrency > 0]
    known = {Load(*row) for row in data.loads.filter(PLAIN).select(LOAD).iter_rows()}
    found = [load for load in found if load in known] or found
    if not found:
        return []
    rest = [name for name in LOAD if name != axis]

    def others(load: Load) -> tuple[Any, ...]:
        return tuple(getattr(load, name) for name in rest)

    groups: dict[tuple[Any, ...], list[Load]] = {}
    for load in found:
        groups.setdefault(others(load), []).append(load)
    wide = Counter(load.scenario for load in found)
    # of equally wide groups, that of the scenario which sweeps most: not a baseline of another kind
    best = max(groups.values(), key=lambda group: (len(group), wide[group[0].scenario]))
    return sorted(best, key=lambda load: int(getattr(load, axis)))


def shared(data: StudyData, found: list[Load], metric: str) -> list[Load]:
    """Return the loads with a value for most engines: a lone survivor of a sweep proves nothing."""
    values = pl.col("value").is_not_null()
    seen = [load.rows(data.points.filter(values), metric)["engine"].n_unique() for load in found]
    return [load for load, n in zip(found, seen, strict=True) if n == max(seen)]
