"""The part of a run's cells that a claim speaks of, as paired log ratios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from enginebook.claims.conditions import Conditions
from enginebook.claims.model import Test
from enginebook.stats import Pairs, better
from enginebook.stats.metrics import checked_cells
from enginebook.stats.pairs import pairs_of_logs

OTHERS: Final = "*"
# Scenarios whose meaning lies in what the prompts share or ask, not in the axes; by name.
_SPECIAL: Final = {
    "S04": ("prefix", "shared", "few_shot", "few-shot"),
    "S05": ("chat", "turn"),
    "S06": ("json", "schema", "structured", "grammar"),
    "S07": ("moe",),
    "S08": ("quant",),
    "S13": ("specul",),
    "S14": ("disagg",),
    "S15": ("online", "slo", "open_loop"),
    "S16": ("trace", "replay"),
}
_PLAIN: Final = ("S01", "S02")
_POINT: Final = ["scenario", "concurrency", "input_tokens", "output_tokens"]
_SHORT_ANSWER: Final = 32  # tokens: up to here a series tells first tokens and no rate


def scenario_code(name: str) -> str:
    """Return the scenario that a study's scenario name stands for; plain sweeps are S01."""
    for code, marks in _SPECIAL.items():
        if any(mark in name.lower() for mark in marks):
            return code
    return "S01"


def codes_by_series(loads: pl.DataFrame | None) -> dict[str, str]:
    """Return which scenario each series of a study stands for, by what it did rather than its name.

    A series without a prefix or a grammar that stands beside others with one is their baseline and
    no scenario of its own: its code is empty. A plain series along more input lengths than streams
    asks for the time to the first token (S02) where its answers are too short to tell a rate.
    """
    if loads is None:
        return {}
    codes = {row["scenario"]: _code(row) for row in loads.iter_rows(named=True)}
    if {"concurrency", "input_tokens", "output_tokens"} <= set(loads.columns):
        for name, streams, lengths, answer in _axes(loads).iter_rows():
            short = answer is not None and answer <= _SHORT_ANSWER
            if codes[name] == "S01" and lengths > streams and short:
                codes[name] = "S02"
    return codes


def _axes(loads: pl.DataFrame) -> pl.DataFrame:
    return loads.group_by("scenario", maintain_order=True).agg(
        pl.col("concurrency").n_unique(),
        pl.col("input_tokens").n_unique(),
        pl.col("output_tokens").max(),
    )


def _code(load: Mapping[str, Any]) -> str:
    named = scenario_code(load["family"] or load["scenario"])
    by_kind = {"sessions": "S05", "open_loop": "S15", "trace": "S16"}.get(load["kind"])
    if by_kind is not None:
        return by_kind
    if load["answer_format"] not in {None, "text"}:
        return "S06"
    if load["prefix_tokens"]:
        return "S04"
    return "" if named in {"S04", "S06"} else named


@dataclass(frozen=True)
class Selection:
    """Values a claim speaks of: columns family, point, block, value; `sign` +1: more is better."""

    frame: pl.DataFrame
    sign: int

    @property
    def families(self) -> list[str]:
        """Return the engines that have values."""
        return self.frame["family"].unique(maintain_order=True).to_list()

    @property
    def points(self) -> list[str]:
        """Return the points, lightest first."""
        return self.frame["point"].unique(maintain_order=True).to_list()

    def gains(self, a: str, b: str) -> dict[str, pl.DataFrame]:
        """Return per point the blocks' log ratios a/b, signed so that more means a is better."""
        left, right = (self.frame.filter(pl.col("family") == f) for f in (a, b))
        both = left.join(right, on=["point", "block"], suffix="_b").with_columns(
            gain=self.sign * (pl.col("value").log() - pl.col("value_b").log())
        )
        return {
            str(point): group.select("block", "gain").sort("block")
            for (point,), group in both.group_by(["point"], maintain_order=True)
        }

    def pairs(self, a: str, b: str, *, each: bool = False) -> dict[str, Pairs]:
        """Return the paired log ratios per point, or pooled: per block the mean over all points."""
        gains = self.gains(a, b)
        if each:
            return {p: pairs_of_logs(g["gain"].to_numpy()) for p, g in gains.items()}
        if not gains:
            return {}
        pooled = pl.concat(gains.values()).group_by("block").agg(pl.len(), pl.col("gain").mean())
        complete = pooled.filter(pl.col("len") == len(gains))["gain"].to_numpy()
        name = next(iter(gains)) if len(gains) == 1 else f"{len(gains)} points"
        return {name: pairs_of_logs(complete)} if complete.size else {}

    def rivals(self, named: str, than: str) -> list[str]:
        """Return the families a name stands for: itself, or all others than one."""
        wanted = self.families if named == OTHERS else [named]
        return [f for f in wanted if f in self.families and f != than]


def select(
    cells: pl.DataFrame,
    test: Test,
    conditions: Conditions,
    refused: Sequence[str] = (),
    *,
    codes: Mapping[str, str] | None = None,
) -> Selection:
    """Return the values that a test speaks of; cells that failed the gate are left out.

    Parameters
    ----------
    refused
        Labels of engines that must not be judged, such as simulated ones.
    codes
        Which scenario each series stands for; those it does not name go by their names.
    """
    metric = test.metric or ""
    frame = checked_cells(cells).filter(
        pl.col("gate_ok") & (pl.col("value") > 0) & ~pl.col("engine").is_in(list(refused))
    )
    frame = _in_scenario(frame, test.scenario, codes or {})
    for axis, (low, high) in test.at.items():
        frame = frame.filter(_within(axis, low, high))
    frame = _one_label_a_family(frame, conditions)
    if test.derive == "tail":
        return Selection(_with_points(_tail(frame, metric)), -1)
    frame = frame.filter(pl.col("metric") == metric)
    if test.derive == "scaling":
        return Selection(_with_points(_scaling(frame)), 1)
    if test.derive == "slope":
        return Selection(_with_points(_slope(frame)), -1)
    return Selection(_with_points(frame), better(metric))


def _in_scenario(frame: pl.DataFrame, code: str, codes: Mapping[str, str]) -> pl.DataFrame:
    """Keep the cells of a scenario.

    S01 and S02 differ by their axes only: where a study has none of one, the other serves.
    """
    if not code:
        return frame
    named = {n: codes.get(n, scenario_code(n)) for n in frame["scenario"].unique().to_list()}
    names = [n for n, c in named.items() if c == code]
    if not names and code in _PLAIN:
        names = [n for n, c in named.items() if c in _PLAIN]
    return frame.filter(pl.col("scenario").is_in(names))


def _within(axis: str, low: float | None, high: float | None) -> pl.Expr:
    value, yes = pl.col(axis), pl.lit(value=True)
    return (yes if low is None else value >= low) & (yes if high is None else value <= high)


def _one_label_a_family(frame: pl.DataFrame, conditions: Conditions) -> pl.DataFrame:
    """Name each engine's family; where two labels share one, the first stands for it."""
    chosen: dict[str, str] = {}
    for label in frame["engine"].unique(maintain_order=True).to_list():
        chosen.setdefault(conditions.family(label), label)
    names = {label: family for family, label in chosen.items()}
    kept = frame.filter(pl.col("engine").is_in(list(names)))
    return kept.with_columns(family=pl.col("engine").replace(names))


def _with_points(frame: pl.DataFrame) -> pl.DataFrame:
    ordered = frame.sort(_POINT, maintain_order=True)
    label = pl.format("{} c={} in={} out={}", *(pl.col(c) for c in _POINT))
    return ordered.select("family", "block", "value", *_POINT, point=label)


def _grouped(
    frame: pl.DataFrame, axis: str, value: Callable[[pl.DataFrame], float | None]
) -> pl.DataFrame:
    """Return one value a family, block and curve along an axis, which keeps its largest value."""
    keys = ["family", "block", *(c for c in _POINT if c != axis)]
    rows = [
        dict(zip(keys, key, strict=True)) | {axis: group[axis].max(), "value": value(group)}
        for key, group in frame.sort(axis).group_by(keys, maintain_order=True)
    ]
    schema = {k: frame.schema[k] for k in (*keys, axis)} | {"value": pl.Float64}
    return pl.DataFrame(rows, schema=schema).drop_nulls("value")


def _scaling(frame: pl.DataFrame) -> pl.DataFrame:
    """Return throughput at the heaviest load over that at the lightest, per stream."""

    def efficiency(curve: pl.DataFrame) -> float | None:
        first, last = curve.row(0, named=True), curve.row(-1, named=True)
        if first["concurrency"] == last["concurrency"]:
            return None
        per_stream = [float(r["value"]) / r["concurrency"] for r in (first, last)]
        return float(per_stream[1] / per_stream[0])

    return _grouped(frame, "concurrency", efficiency)


def _slope(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the least-squares growth of the metric per input token; None unless it grows."""

    def slope(curve: pl.DataFrame) -> float | None:
        x, y = curve["input_tokens"].to_numpy(), curve["value"].to_numpy()
        if len(set(x)) < 2:  # noqa: PLR2004 (a line takes two points)
            return None
        found = float(np.polyfit(x, y, 1)[0])
        return found if found > 0 else None

    return _grouped(frame, "input_tokens", slope)


def _tail(frame: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return a high quantile over the median of the same metric."""
    middle = metric.replace("_p99_", "_p50_").replace("_p95_", "_p50_")
    keys = ["family", "block", *_POINT]
    high, median = (
        frame.filter(pl.col("metric") == m).select(*keys, "value") for m in (metric, middle)
    )
    both = high.join(median, on=keys, suffix="_p50")
    return both.with_columns(value=pl.col("value") / pl.col("value_p50"))
