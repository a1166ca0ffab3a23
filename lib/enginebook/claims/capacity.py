"""How many requests per second an engine carried within a workload's limits, block by block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from enginebook.claims.need import Workload
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
    """Capacity by block, and the cells it was read from; without values `word` says why."""

    values: Mapping[int, float] = field(default_factory=dict)
    scenario: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    word: str = ""
    reason: str = ""


@dataclass(frozen=True)
class _Level:
    """One load: its rate, and each limited metric over its limit (above 1: missed)."""

    concurrency: int
    rate: float
    strain: float


def measured_capacities(
    cells: pl.DataFrame, workload: Workload, loads: pl.DataFrame | None = None
) -> dict[str, BlockCapacities]:
    """Return each engine's capacities, read from the cells whose lengths are nearest.

    Parameters
    ----------
    loads
        What each series did; without it a series goes by its name.
    """
    frame = checked_cells(cells)
    engines = frame["engine"].unique(maintain_order=True).to_list()
    usable = _of_kind(frame.filter(pl.col("gate_ok") & (pl.col("value") > 0)), workload, loads)
    nearest = _nearest(usable, workload, _shares(loads))
    if nearest is None:
        text = f"no valid cell of a {workload.kind} scenario; measure one"
        return {e: BlockCapacities(word="no data", reason=text) for e in engines}
    scenario, inputs, outputs = nearest
    here = usable.filter(
        (pl.col("scenario") == scenario)
        & (pl.col("input_tokens") == inputs)
        & (pl.col("output_tokens") == outputs)
    )
    note = _distance_note(inputs, outputs, workload)
    return {
        e: _of_engine(here.filter(pl.col("engine") == e), nearest, note, workload) for e in engines
    }


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
) -> tuple[str, int, int] | None:
    """Return the scenario and lengths nearest in ratio; of equals the one with most loads.

    A tenth of a prompt shared more or less weighs as much as lengths that differ by 10 %.
    """
    groups = frame.group_by(_LENGTHS).agg(pl.col("concurrency").n_unique().alias("loads"))
    if groups.is_empty():
        return None

    def order(row: tuple[str, int, int, int]) -> tuple[float, int, str]:
        distance = abs(math.log(row[1] / workload.input_tokens))
        distance += abs(math.log(row[2] / workload.output_tokens))
        distance += abs(shares.get(row[0], workload.prefix_share) - workload.prefix_share)
        return distance, -row[3], row[0]

    best = min(groups.iter_rows(), key=order)
    return best[0], best[1], best[2]


def _distance_note(inputs: int, outputs: int, workload: Workload) -> str:
    """Return a warning when the measured lengths are another workload."""
    if not workload.is_far(inputs, outputs):
        return ""
    return (
        f"measured at {inputs} + {outputs} tokens, far from {workload.input_tokens} + "
        f"{workload.output_tokens}: measure those lengths"
    )


def _of_engine(
    frame: pl.DataFrame, where: tuple[str, int, int], note: str, workload: Workload
) -> BlockCapacities:
    if frame.is_empty():
        return BlockCapacities(word="no data", reason="no valid cell of this engine there")
    values: dict[int, float] = {}
    missed = False
    for (block,), group in frame.group_by(["block"], maintain_order=True):
        levels = _levels(group, workload, where[2])
        capacity = _capacity(levels)
        missed |= bool(levels) and capacity is None
        if capacity is not None:
            values[int(str(block))] = capacity
    if values and not missed:
        return BlockCapacities(values, *where, reason=note)
    if missed:
        text = "misses the latency limits at every measured load"
        text += " in some blocks" if values else ""
        return BlockCapacities({}, *where, word="misses the limits", reason=text)
    return BlockCapacities(
        {}, *where, word="no data", reason="the limited metrics are not measured"
    )


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
