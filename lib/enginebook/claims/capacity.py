"""How many requests per second an engine carried within a workload's limits, block by block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

from enginebook.claims.need import Cut, Workload
from enginebook.claims.selection import codes_by_series, scenario_code
from enginebook.stats.metrics import checked_cells

_LENGTHS: Final = ["scenario", "input_tokens", "output_tokens"]
_TTFT: Final = ("ttft_p95_ms", "ttft_p50_ms")
_TPOT: Final = ("tpot_p50_ms", "tpot_mean_ms")
_SCENARIOS: Final = {
    "structured-output": ({"S06"},),
    "shared-prefix": ({"S04"}, {"S05"}),
    "plain": ({"S01"}, {"S15", "S16"}),
}


@dataclass(frozen=True)
class BlockCapacities:
    """Capacity by block, and the cells it was read from; without values `word` says why.

    `cut` is a heavier load that not every engine has, where it could change this capacity.
    """

    values: Mapping[int, float] = field(default_factory=dict)
    scenario: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    word: str = ""
    reason: str = ""
    cut: Cut | None = None


@dataclass(frozen=True)
class _Level:
    """One load: its rate, and each limited metric over its limit (above 1: missed)."""

    concurrency: int
    rate: float
    strain: float


_Curves = Mapping[int, Sequence[_Level]]  # one engine's loads by block


def measured_capacities(
    cells: pl.DataFrame, workload: Workload, loads: pl.DataFrame | None = None
) -> dict[str, BlockCapacities]:
    """Return each engine's capacities, read from the cells whose lengths are nearest.

    In each block only the loads count that all engines of that block have: the highest rate over
    more loads is higher by that alone.

    Parameters
    ----------
    loads
        What each series did; without it a series goes by its name.
    """
    frame = checked_cells(cells)
    engines = frame["engine"].unique(maintain_order=True).to_list()
    usable = _of_kind(frame.filter(pl.col("gate_ok") & (pl.col("value") > 0)), workload, loads)
    series = _nearest(usable, workload, _shares(loads))
    if not series:
        text = f"no valid cell of a {workload.kind} scenario; measure one"
        return {e: BlockCapacities(word="no data", reason=text) for e in engines}
    where = series[0]
    here = _pooled(usable, series)
    note = _distance_note(where[1], where[2], workload)
    measured = set(here["engine"].to_list())
    curves = {e: _curves(here.filter(pl.col("engine") == e), workload, where[2]) for e in engines}
    common = _common(curves)
    found = {e: _of_engine(curves[e], common, where, note) for e in engines if e in measured}
    cuts = {e: _cut(e, curves, common) for e in engines}
    absent = BlockCapacities(word="no data", reason="no valid cell of this engine there")
    return {e: replace(found.get(e, absent), cut=cuts[e]) for e in engines}


def _of_kind(frame: pl.DataFrame, workload: Workload, loads: pl.DataFrame | None) -> pl.DataFrame:
    """Keep the series that did the workload's kind of work; a saturated loop before a given rate.

    An online series tells that its rate was carried, not what could be carried, so it serves only
    where no closed loop was measured.
    """
    codes = codes_by_series(loads)
    for wanted in _SCENARIOS[workload.kind]:
        series = frame["scenario"].unique().to_list()
        names = [n for n in series if codes.get(n, scenario_code(n)) in wanted]
        if names:
            return frame.filter(pl.col("scenario").is_in(names))
    return frame.clear()


def _shares(loads: pl.DataFrame | None) -> dict[str, float]:
    """Return by series which share of its prompts' tokens is common to several of them."""
    if loads is None:
        return {}
    rows = loads.filter(pl.col("prefix_tokens") > 0).iter_rows(named=True)
    return {r["scenario"]: r["prefix_tokens"] * r["prefix_share"] / r["input_tokens"] for r in rows}


def _nearest(
    frame: pl.DataFrame, workload: Workload, shares: Mapping[str, float]
) -> list[tuple[str, int, int]]:
    """Return the series and lengths nearest in ratio, the one to be preferred first.

    A tenth of a prompt shared more or less weighs as much as lengths that differ by 10 %. Of
    series equally near, that with most paired blocks stands first, then that with most loads: a
    curve measured once decides nothing. Others of the same lengths and blocks are added to it.
    """
    groups: dict[tuple[str, int, int], pl.DataFrame] = {
        (str(key[0]), int(str(key[1])), int(str(key[2]))): group
        for key, group in frame.group_by(_LENGTHS, maintain_order=True)
    }

    def distance(where: tuple[str, int, int]) -> float:
        away = abs(math.log(where[1] / workload.input_tokens))
        away += abs(math.log(where[2] / workload.output_tokens))
        return away + abs(shares.get(where[0], workload.prefix_share) - workload.prefix_share)

    def order(where: tuple[str, int, int]) -> tuple[float, int, int, int, str]:
        group = groups[where]
        blocks = group["block"].n_unique()
        paired = group.select("engine", "block").n_unique() - blocks
        return distance(where), -paired, -blocks, -group["concurrency"].n_unique(), where[0]

    if not groups:
        return []
    ordered = sorted(groups, key=order)
    best, blocks = ordered[0], set(groups[ordered[0]]["block"].to_list())
    return [
        w
        for w in ordered
        if (distance(w), *w[1:]) == (distance(best), *best[1:])
        and set(groups[w]["block"].to_list()) == blocks
    ]


def _pooled(frame: pl.DataFrame, series: Sequence[tuple[str, int, int]]) -> pl.DataFrame:
    """Return the cells of some series; of a load that several have, those of the first of them.

    One series gives a load for all engines: that which most engines have in most blocks.
    """
    rank = pl.DataFrame(
        [(*where, place) for place, where in enumerate(series)],
        schema=[*_LENGTHS, "place"],
        orient="row",
    ).with_columns(pl.col(c).cast(frame.schema[c]) for c in _LENGTHS)
    mine = frame.join(rank, on=_LENGTHS, how="inner", maintain_order="left")
    held = mine.group_by("concurrency", "place").agg(cells=pl.struct("engine", "block").n_unique())
    first = held.sort(["concurrency", "cells", "place"], descending=[False, True, False])
    chosen = first.unique("concurrency", keep="first").select("concurrency", "place")
    return mine.join(chosen, on=["concurrency", "place"], how="semi", maintain_order="left")


def _distance_note(inputs: int, outputs: int, workload: Workload) -> str:
    """Return a warning when the measured lengths are another workload."""
    if not workload.is_far(inputs, outputs):
        return ""
    return (
        f"measured at {inputs} + {outputs} tokens, far from {workload.input_tokens} + "
        f"{workload.output_tokens}: measure those lengths"
    )


def _curves(frame: pl.DataFrame, workload: Workload, output_tokens: int) -> _Curves:
    """Return one engine's loads by block; blocks without a usable one are left out."""
    found = {
        int(str(block)): _levels(group, workload, output_tokens)
        for (block,), group in frame.group_by(["block"], maintain_order=True)
    }
    return {block: levels for block, levels in found.items() if levels}


def _loads(levels: Sequence[_Level]) -> set[int]:
    return {level.concurrency for level in levels}


def _common(curves: Mapping[str, _Curves]) -> dict[int, set[int]]:
    """Return by block the loads that every engine with loads in that block has."""
    common: dict[int, set[int]] = {}
    for by_block in curves.values():
        for block, levels in by_block.items():
            common[block] = common.get(block, _loads(levels)) & _loads(levels)
    return common


def _cut(engine: str, curves: Mapping[str, _Curves], common: Mapping[int, set[int]]) -> Cut | None:
    """Return a load heavier than the common ones that could change this engine's capacity.

    Where an engine misses its limits at a common load, no heavier one can.
    """
    for block, levels in curves[engine].items():
        if any(v.strain > 1 for v in levels if v.concurrency in common[block]):
            continue
        there = {e: _loads(c[block]) for e, c in curves.items() if block in c}
        heavier = {v for held in there.values() for v in held if v > max(common[block], default=0)}
        if heavier:
            load = min(heavier)
            return Cut(load, tuple(e for e, held in there.items() if load not in held))
    return None


def _of_engine(
    curves: _Curves, common: Mapping[int, set[int]], where: tuple[str, int, int], note: str
) -> BlockCapacities:
    if not curves:
        text = "the limited metrics are not measured"
        return BlockCapacities({}, *where, word="no data", reason=text)
    values: dict[int, float] = {}
    missed = False
    for block, levels in curves.items():
        kept = [level for level in levels if level.concurrency in common[block]]
        capacity = _capacity(kept)
        missed |= bool(kept) and capacity is None
        if capacity is not None:
            values[block] = capacity
    if values and not missed:
        return BlockCapacities(values, *where, reason=note)
    if missed:
        text = "misses the latency limits at every measured load"
        text += " in some blocks" if values else ""
        return BlockCapacities({}, *where, word="misses the limits", reason=text)
    return BlockCapacities({}, *where, word="no data", reason="no load that all engines have")


def _levels(group: pl.DataFrame, workload: Workload, output_tokens: int) -> list[_Level]:
    """Return one block's loads, lightest first; without a limited metric a load is left out."""
    levels = []
    for (concurrency,), cell in group.sort("concurrency").group_by(
        ["concurrency"], maintain_order=True
    ):
        found = dict(zip(cell["metric"].to_list(), cell["value"].to_list(), strict=True))
        rate = found.get("requests_per_s") or found.get("output_tokens_per_s", 0.0) / output_tokens
        strains = [
            _strain(found, _TTFT, workload.ttft_limit_ms),
            _strain(found, _TPOT, workload.tpot_limit_ms),
        ]
        if rate > 0 and None not in strains:
            worst = max(s for s in strains if s is not None)
            levels.append(_Level(int(str(concurrency)), rate, worst))
    return levels


def _strain(found: Mapping[str, float], names: Sequence[str], limit: float | None) -> float | None:
    """Return a metric over its limit; 0 without a limit, None when it was not measured."""
    if limit is None:
        return 0.0
    value = next((found[n] for n in names if found.get(n)), None)
    return None if value is None else value / limit


def _capacity(levels: Sequence[_Level]) -> float | None:
    """Return the highest rate within the limits.

    Between the last load that meets them and the first that does not, the rate is interpolated at
    the load where the worst metric reaches its limit, linearly in logarithms.
    """
    best: float | None = None
    for i, level in enumerate(levels):
        if level.strain > 1:
            if i > 0 and best is not None:
                best = max(best, _at_limit(levels[i - 1], level))
            break
        best = level.rate if best is None else max(best, level.rate)
    return best


def _at_limit(meets: _Level, misses: _Level) -> float:
    if meets.strain <= 0:
        return meets.rate
    share = -math.log(meets.strain) / (math.log(misses.strain) - math.log(meets.strain))
    return math.exp(math.log(meets.rate) + share * (math.log(misses.rate) - math.log(meets.rate)))
