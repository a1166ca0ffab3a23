"""The frames `points` and `comparisons` of a study, from its `cells`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import polars as pl

from enginebook.stats.families import family_by_series, family_of
from enginebook.stats.intervals import Interval, geometric_interval, mean_interval
from enginebook.stats.metrics import KEYS, PRIMARY, better, checked_cells, is_share
from enginebook.stats.pairs import Pairs, holm, paired_ratio, pairs_of
from enginebook.stats.verdicts import Verdict, judge_pairs, p_of_win

POINT_SCHEMA: Final = {
    "engine": pl.String, "scenario": pl.String, "concurrency": pl.Int64, "input_tokens": pl.Int64,
    "output_tokens": pl.Int64, "metric": pl.String, "n_blocks": pl.Int64, "value": pl.Float64,
    "low": pl.Float64, "high": pl.Float64,
}  # fmt: skip
COMPARISON_SCHEMA: Final = {
    "scenario": pl.String, "concurrency": pl.Int64, "input_tokens": pl.Int64,
    "output_tokens": pl.Int64, "metric": pl.String, "engine_a": pl.String, "engine_b": pl.String,
    "n_pairs": pl.Int64, "ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64,
    "verdict": pl.String, "reason": pl.String, "blocks_needed": pl.Int64,
    "margin": pl.Float64, "p_value": pl.Float64, "p_holm": pl.Float64, "error_family": pl.String,
}  # fmt: skip
_UNKNOWN: Final = ("defaults", False)
NoiseFloor = float | Mapping[str, float] | None


def points(cells: pl.DataFrame) -> pl.DataFrame:
    """Return each engine's value with a 95 % interval over blocks, for every cell and metric.

    Rates and times are geometric means with the t interval of their logarithms; shares and counts
    arithmetic ones. One block gives a value and null limits.
    """
    frame = checked_cells(cells).filter(pl.col("value").is_not_null())
    rows: list[dict[str, Any]] = []
    for key, group in frame.group_by(["engine", *KEYS], maintain_order=True):
        named = dict(zip(("engine", *KEYS), key, strict=True))
        found = _interval(str(named["metric"]), group["value"].to_list())
        rows.append(
            named
            | {"n_blocks": found.n, "value": found.value, "low": found.low, "high": found.high}
        )
    return pl.DataFrame(rows, schema=POINT_SCHEMA)


def _interval(metric: str, values: list[float]) -> Interval:
    ranked = better(metric) != 0 and not is_share(metric) and all(v > 0 for v in values)
    return geometric_interval(values) if ranked else mean_interval(values)


@dataclass(frozen=True)
class _Rules:
    """What all rows of one table are judged by."""

    margin: float
    floor: NoiseFloor
    simulated: frozenset[str]
    groups: Mapping[str, tuple[str, bool]] | None  # engine to (arm, simulated); None: all are one

    def comparable(self, a: str, b: str) -> bool:
        """Return whether two engines are of one arm, and both real or both simulated."""
        if self.groups is None:
            return True
        return self.groups.get(a, _UNKNOWN) == self.groups.get(b, _UNKNOWN)

    def floor_of(self, metric: str) -> float:
        """Return the noise floor of one metric; 0 where none was measured."""
        if self.floor is None:
            return 0.0
        return self.floor.get(metric, 0.0) if isinstance(self.floor, Mapping) else self.floor


@dataclass(frozen=True)
class _Side:
    """One engine's values in a cell by block, and the blocks that failed the gate."""

    values: dict[int, float]
    failed: list[int]


@dataclass(frozen=True)
class _Row:
    """One comparison before and after its verdict."""

    key: Mapping[str, Any]
    engines: tuple[str, str]
    pairs: Pairs | None
    interval: Interval
    margin: float
    refusal: str  # why there can be no verdict, or empty
    by_floor: bool = False  # the margin is the host's noise floor
    p_value: float | None = None
    p_holm: float | None = None
    rivals: int = 1
    family: str | None = None

    @property
    def gain(self) -> Pairs | None:
        """Return the log ratios signed so that more is better."""
        if self.pairs is None:
            return None
        return self.pairs if better(self.key["metric"]) > 0 else self.pairs.flipped()


def comparisons(
    cells: pl.DataFrame,
    margin: float = 0.03,
    metrics: Collection[str] | None = None,
    noise_floor: NoiseFloor = None,
    simulated_engines: Collection[str] = (),
    *,
    primary: Collection[str] = PRIMARY,
    arms: pl.DataFrame | None = None,
    loads: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return pairs of engines in every cell, with a verdict on the first against the second.

    Parameters
    ----------
    cells
        The `cells` frame: one row a block, cell, engine and metric.
    margin
        Relative difference that does not matter.
    metrics
        Which metrics to compare; None: all that say which way is better.
    noise_floor
        The relative difference that this host shows between an engine and itself, one number or
        one a metric (see `noise_floor`); where it exceeds the margin it takes its place.
    simulated_engines
        Engines that are simulated; they are never ranked against real ones.
    primary
        Metrics that are corrected for their number by Holm's method, within families (see
        `enginebook.stats.families`): a family is one kind of question, such as plain load, and
        its rows share one error rate. The other metrics are exploratory and uncorrected.
    arms
        The `arms` frame (engine, arm, simulated are read). With it only engines of one arm are
        paired, and simulated ones with simulated ones; None: every engine with every other.
    loads
        The `loads` frame, which says what kind of question each series asks; None: all are one
        family.
    """
    frame = checked_cells(cells)
    frame = frame.filter(pl.col("metric").is_in([m for m in frame["metric"].unique() if better(m)]))
    if metrics is not None:
        frame = frame.filter(pl.col("metric").is_in(list(metrics)))
    rules = _Rules(margin, noise_floor, frozenset(simulated_engines), _groups(arms))
    by_series = family_by_series(loads)
    rows: list[_Row] = []
    for key, group in frame.group_by(KEYS, maintain_order=True):
        sides = _sides(group)
        named = dict(zip(KEYS, key, strict=True))
        family = family_of(named["metric"], named["scenario"], by_series, primary)
        rows += [
            replace(_compare(named, sides, names, rules), family=family)
            for names in combinations(sides, 2)
            if rules.comparable(*names)
        ]
    return pl.DataFrame([_record(r) for r in _adjusted(rows)], schema=COMPARISON_SCHEMA)


def _groups(arms: pl.DataFrame | None) -> dict[str, tuple[str, bool]] | None:
    if arms is None:
        return None
    known = arms.select("engine", "arm", pl.col("simulated").fill_null(value=False))
    return {str(engine): (str(arm), bool(simulated)) for engine, arm, simulated in known.rows()}


def _sides(group: pl.DataFrame) -> dict[str, _Side]:
    """Return the blocks of each engine in one cell, engines in the order they come in."""
    out: dict[str, _Side] = {}
    columns = group.select("engine", "block", "value", "gate_ok")
    for engine, block, value, gate_ok in columns.iter_rows():
        side = out.setdefault(engine, _Side({}, []))
        if value is not None:
            side.values[block] = value
        if not gate_ok:
            side.failed.append(block)
    return out


def _compare(
    key: Mapping[str, Any], sides: Mapping[str, _Side], names: tuple[str, str], rules: _Rules
) -> _Row:
    a, b = (sides[name] for name in names)
    common = [block for block in a.values if block in b.values]
    kept = [block for block in common if a.values[block] > 0 and b.values[block] > 0]
    values = [a.values[block] for block in kept], [b.values[block] for block in kept]
    refusal = (
        _mixed(names, rules.simulated)
        or _gate_failure({name: sides[name] for name in names})
        or ("a value of 0 has no ratio" if len(kept) < len(common) else "")
        or ("" if common else "no block holds a value for both engines")
    )
    floor = rules.floor_of(key["metric"])
    row = _Row(
        key=key,
        engines=names,
        pairs=pairs_of(*values) if kept else None,
        interval=paired_ratio(*values),
        margin=max(rules.margin, floor),
        refusal=refusal,
        by_floor=floor > rules.margin,
    )
    if refusal or row.gain is None:
        return row
    return replace(row, p_value=p_of_win(row.gain, row.margin))


def _mixed(names: Sequence[str], simulated: frozenset[str]) -> str:
    """Return why these must not be ranked when just one of them is simulated."""
    mixed = [n for n in names if n in simulated]
    if len(mixed) != 1:
        return ""
    return f"{mixed[0]} is simulated: it is never ranked against a real engine"


def _gate_failure(sides: Mapping[str, _Side]) -> str:
    """Return where the equal-work gate failed, or an empty text."""
    for name, side in sides.items():
        if side.failed:
            blocks = ", ".join(str(block) for block in side.failed)
            return f"the equal-work gate failed for {name} in block {blocks}"
    return ""


def _adjusted(rows: list[_Row]) -> list[_Row]:
    """Return the rows with Holm's p values over the testable rows of each family."""
    families: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if row.family is not None and row.p_value is not None:
            families.setdefault(row.family, []).append(i)
    out = list(rows)
    for members in families.values():
        adjusted = holm([rows[i].p_value or 0.0 for i in members])
        for i, p in zip(members, adjusted, strict=True):
            out[i] = replace(rows[i], p_holm=p, rivals=len(members))
    return out


def _record(row: _Row) -> dict[str, Any]:
    verdict = _verdict(row)
    return {
        **row.key,
        "engine_a": row.engines[0],
        "engine_b": row.engines[1],
        "n_pairs": row.interval.n,
        "ratio": row.interval.value,
        "low": row.interval.low,
        "high": row.interval.high,
        "verdict": verdict.word,
        "reason": verdict.reason,
        "blocks_needed": verdict.blocks_needed,
        "margin": row.margin,
        "p_value": row.p_value,
        "p_holm": row.p_holm,
        "error_family": row.family,
    }


def _verdict(row: _Row) -> Verdict:
    if row.refusal or row.gain is None:
        return Verdict("no verdict", row.refusal)
    verdict = judge_pairs(row.gain, row.margin, row.p_holm, row.rivals)
    if not row.by_floor:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; the margin is this host's noise floor")
