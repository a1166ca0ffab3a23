"""How many requests per second an engine carried within a workload's limits, block by block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from enginebook.claims.need import Workload
from enginebook.claims.selection import scenario_code
from enginebook.stats.metrics import checked_cells

FAR: Final = 2.0  # lengths further off than this factor are another workload
_LENGTHS: Final = ["scenario", "input_tokens", "output_tokens"]
_TTFT: Final = ("ttft_p95_ms", "ttft_p50_ms")
_TPOT: Final = ("tpot_p50_ms", "tpot_mean_ms")


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


def measured_capacities(cells: pl.DataFrame, workload: Workload) -> dict[str, BlockCapacities]:
    """Return each engine's capacities, read from the cells whose lengths are nearest."""
    frame = checked_cells(cells)
    engines = frame["engine"].unique(maintain_order=True).to_list()
    usable = _of_kind(frame.filter(pl.col("gate_ok") & (pl.col("value") > 0)), workload)
    nearest = _nearest(usable, workload)
    if nearest is None:
        text = f"no valid cell of a {_kind(workload)} scenario; measure one"
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


def _kind(workload: Workload) -> str:
    if workload.json:
        return "structured-output"
    return "shared-prefix" if workload.shared_prefix else "plain"


def _of_kind(frame: pl.DataFrame, workload: Workload) -> pl.DataFrame:
    wanted = {"structured-output": {"S06"}, "shared-prefix": {"S04", "S05"}}.get(
        _kind(workload), {"S01", "S15", "S16"}
    )
    names = [n for n in frame["scenario"].unique().to_list() if scenario_code(n) in wanted]
    return frame.filter(pl.col("scenario").is_in(names))


def _nearest(frame: pl.DataFrame, workload: Workload) -> tuple[str, int, int] | None:
    """Return the scenario and lengths nearest in ratio; of equals the one with most loads."""
    groups = frame.group_by(_LENGTHS).agg(pl.col("concurrency").n_unique().alias("loads"))
    if groups.is_empty():
        return None

    def order(row: tuple[str, int, int, int]) -> tuple[float, int, str]:
        distance = abs(math.log(row[1] / workload.input_tokens))
        distance += abs(math.log(row[2] / workload.output_tokens))
        return distance, -row[3], row[0]

    best = min(groups.iter_rows(), key=order)
    return best[0], best[1], best[2]


def _distance_note(inputs: int, outputs: int, workload: Workload) -> str:
    """Return a warning when the measured lengths are another workload."""
    pairs = ((inputs, workload.input_tokens), (outputs, workload.output_tokens))
    if all(max(a / b, b / a) <= FAR for a, b in pairs):
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
