"""Every measured figure against its limit: efficiency, and a verdict that can stop a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import polars as pl

from enginebook.errors import EnginebookError
from enginebook.physics.bounds import (
    Bound,
    Placement,
    decode_bound,
    prefill_bound,
    served_rate_limit,
)
from enginebook.physics.hardware import Hardware
from enginebook.physics.precision import BF16, Precision
from enginebook.physics.shapes import ModelShape

Possibility = Literal["impossible", "implausible", "tight", "possible"]
# A measured ceiling is a lower estimate: other work on the host, seen or not (a virtual machine's
# neighbours), may have taken half of it. Only what exceeds it twice over is called impossible.
MEASURED_EXCESS: Final = 1.0
IMPLAUSIBLE: Final = 0.85
TIGHT: Final = 0.70
AUDITED: Final = ("output_tokens_per_s", "ttft_p50_ms", "tpot_p50_ms")
AUDIT_SCHEMA: Final = {
    "engine": pl.String, "scenario": pl.String, "block": pl.Int64, "concurrency": pl.Int64,
    "input_tokens": pl.Int64, "output_tokens": pl.Int64, "metric": pl.String,
    "value": pl.Float64, "limit": pl.Float64, "limited_by": pl.String, "efficiency": pl.Float64,
    "efficiency_here": pl.Float64, "mbu": pl.Float64, "mfu": pl.Float64, "verdict": pl.String,
    "reason": pl.String,
}  # fmt: skip


@dataclass(frozen=True)
class WorkDone:
    """What an engine may have left out of the work that the cell's lengths say.

    Attributes
    ----------
    cached_tokens
        Prompt tokens a scenario lets engines reuse, by scenario; they cost no prefill, and their
        cache rows may be read once for the whole batch.
    tokens_per_step
        Of speculative decoding, by engine; 1 without.
    """

    cached_tokens: Mapping[str, int] = field(default_factory=dict)
    tokens_per_step: Mapping[str, float] = field(default_factory=dict)


def possibility(efficiency: float, excess: float = 0.0) -> Possibility:
    """Return the verdict on limit over observed time.

    What exceeds an uncertain ceiling by no more than the excess is only implausible.
    """
    if efficiency > 1 + excess:
        return "impossible"
    if efficiency > IMPLAUSIBLE:
        return "implausible"
    return "tight" if efficiency > TIGHT else "possible"


def audit_cells(
    cells: pl.DataFrame,
    shape: ModelShape,
    hardware: Hardware,
    precision: Precision | Mapping[str, Precision] = BF16,
    devices: int = 1,
    *,
    work: WorkDone | None = None,
) -> pl.DataFrame:
    """Return the audited figures of a `cells` frame, one row a block, cell and engine.

    Parameters
    ----------
    precision
        One for all engines, or one an engine; BF16 where an engine is not named.
    devices
        Over how many of them each engine is spread.

    Returns
    -------
    polars.DataFrame
        For output_tokens_per_s, ttft_p50_ms and tpot_p50_ms: the limit in the metric's own unit,
        `efficiency` (limit over observed time: above 1 is impossible), `mbu` and `mfu` (bytes and
        FLOPs of the expected work over what the hardware moves and multiplies in that time; null
        where a ceiling is unknown), verdict and reason. `efficiency_here` is the same against the
        rates that this host measured of its GPU, for the reader: no verdict rests on it.

    Notes
    -----
    Columns `batch` and `cached_tokens` of the cells (see `loads.with_work`) stand over
    `concurrency` and `work`.
    """
    done = work or WorkDone()
    rows = []
    kept = cells.filter(pl.col("metric").is_in(AUDITED) & (pl.col("value") > 0))
    for cell in kept.iter_rows(named=True):
        mine = (
            precision if isinstance(precision, Precision) else precision.get(cell["engine"], BF16)
        )
        rows.append(_audit(cell, shape, Placement(hardware, mine, devices), done))
    return pl.DataFrame(rows, schema=AUDIT_SCHEMA)


def _audit(
    cell: Mapping[str, Any], shape: ModelShape, place: Placement, done: WorkDone
) -> dict[str, Any]:
    limit_of = _LIMITS[cell["metric"]]
    limit_s, observed_s, spent = limit_of(cell, shape, place, done)
    here = place.hardware.here
    here_s = None if here is None else limit_of(cell, shape, replace(place, hardware=here), done)[0]
    efficiency = limit_s / observed_s
    verdict = possibility(efficiency, MEASURED_EXCESS if place.hardware.measured else 0.0)
    key = {k: cell[k] for k in AUDIT_SCHEMA if k in cell}
    return key | {
        "limit": _in_unit(cell, limit_s),
        "limited_by": spent.limit,
        "efficiency": efficiency,
        "efficiency_here": None if here_s is None else here_s / observed_s,
        "mbu": spent.read_bytes / place.bandwidth / observed_s,
        "mfu": spent.flops / place.rate / observed_s if place.rate else None,
        "verdict": verdict,
        "reason": _reason(verdict, efficiency, place, spent.limit),
    }


def _in_unit(cell: Mapping[str, Any], limit_s: float) -> float | None:
    """Return the limit in the metric's unit; None where no ceiling limits it."""
    if limit_s == 0:
        return None
    return limit_s * 1e3 if cell["metric"].endswith("_ms") else 1 / limit_s


def _batch(cell: Mapping[str, Any]) -> int:
    """Return how many requests were in flight at most."""
    return int(cell.get("batch") or cell["concurrency"])


def _cached(cell: Mapping[str, Any], done: WorkDone) -> int:
    """Return the prompt tokens that were perhaps not computed."""
    own = cell.get("cached_tokens")
    return done.cached_tokens.get(cell["scenario"], 0) if own is None else int(own)


def _rate_limit(
    cell: Mapping[str, Any], shape: ModelShape, place: Placement, done: WorkDone
) -> tuple[float, float, Bound]:
    """Return seconds per output token: the least, the observed, and the work of one token."""
    batch, inputs, outputs = _batch(cell), cell["input_tokens"], cell["output_tokens"]
    cached = min(_cached(cell, done), inputs)
    step = done.tokens_per_step.get(cell["engine"], 1.0)
    limit = served_rate_limit(shape, place, batch, inputs - cached, outputs) * step
    context = (outputs - 1) / outputs * (inputs + outputs / 2)
    expected = decode_bound(shape, place, batch, context, "expected")
    prompt_flops = shape.prefill_flops(inputs - cached, cached) / outputs
    decoded = (outputs - 1) / outputs  # the first token comes with the prompt
    token = Bound(
        expected.memory_s / batch / step,
        expected.compute_s / batch,
        expected.read_bytes / batch / step,
        decoded * expected.flops / batch + prompt_flops,
    )
    return 1 / limit, 1 / cell["value"], token


def _first_token_limit(
    cell: Mapping[str, Any], shape: ModelShape, place: Placement, done: WorkDone
) -> tuple[float, float, Bound]:
    cached = min(_cached(cell, done), cell["input_tokens"] - 1)
    new = cell["input_tokens"] - cached
    least = prefill_bound(shape, place, new, cached).seconds
    spent = prefill_bound(shape, place, new, cached, "expected")
    return least, cell["value"] / 1e3, spent


def _step_limit(
    cell: Mapping[str, Any], shape: ModelShape, place: Placement, done: WorkDone
) -> tuple[float, float, Bound]:
    """Return the least time per output token: a step alone on the device can be no faster."""
    context = cell["input_tokens"] + cell["output_tokens"] / 2
    step = done.tokens_per_step.get(cell["engine"], 1.0)
    least = decode_bound(shape, place, 1, context).seconds / step
    spent = decode_bound(shape, place, _batch(cell), context, "expected")
    return least, cell["value"] / 1e3, spent


_LIMITS: Final = {
    "output_tokens_per_s": _rate_limit,
    "ttft_p50_ms": _first_token_limit,
    "tpot_p50_ms": _step_limit,
}


def _reason(verdict: Possibility, efficiency: float, place: Placement, limit: str) -> str:
    text = f"{efficiency:.0%} of the {limit} limit of {place.devices} x {place.hardware.name}"
    if verdict == "impossible":
        return (
            f"{text}: the measurement, the lengths, the precision or the hardware is not as stated"
        )
    if place.hardware.measured and efficiency > 1:
        return f"{text}, as measured on this host: was the host busy then? run 00_host again"
    if verdict == "implausible":
        return f"{text}: served engines reach 50-75 % in decode and 35-65 % in prefill"
    return text


def require_possible(audit: pl.DataFrame) -> None:
    """Stop a study that holds a figure beyond its physical limit.

    Raises
    ------
    EnginebookError
        Naming the worst figure, its limit, and what to look for.
    """
    broken = audit.filter(pl.col("verdict") == "impossible").sort("efficiency", descending=True)
    if broken.is_empty():
        return
    row = broken.row(0, named=True)
    where = f"{row['engine']}, {row['scenario']} at concurrency {row['concurrency']}"
    raise EnginebookError(
        f"{len(broken)} measured figures lie beyond the physical limit; the worst: {where}, block "
        f"{row['block']}: {row['metric']} {row['value']:.4g} where the limit is "
        f"{row['limit']:.4g}; {row['reason']}",
        "check that every request produced the stated tokens (equal-work gate), that no prefix was "
        "reused, that the model and precision are the ones served, and the clock of the client",
    )
