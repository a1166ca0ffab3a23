"""Which hardware could have produced a published table? Every hypothesis against every figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from enginebook.physics.audit import IMPLAUSIBLE
from enginebook.physics.bounds import Placement, decode_bound, prefill_bound, weight_bytes
from enginebook.physics.capacity import kv_capacity_tokens, weights_share
from enginebook.physics.hardware import hardware_table
from enginebook.physics.precision import BF16, FP8, INT4_G128, NVFP4, Precision
from enginebook.physics.shapes import ModelShape

TABLE_SCHEMA: Final = {
    "engine": pl.String, "metric": pl.String, "concurrency": pl.Int64,
    "input_tokens": pl.Int64, "value": pl.Float64,
}  # fmt: skip
HYPOTHESIS_SCHEMA: Final = {
    "hypothesis": pl.String, "hardware": pl.String, "devices": pl.Int64, "precision": pl.String,
    "loads": pl.Boolean, "weights_gb_per_device": pl.Float64, "weights_error": pl.Float64,
    "kv_tokens": pl.Float64, "rate_impossible": pl.Int64, "rate_figures": pl.Int64,
    "ttft_impossible": pl.Int64, "ttft_implausible": pl.Int64, "ttft_figures": pl.Int64,
    "rate_efficiency_low": pl.Float64, "rate_efficiency_high": pl.Float64,
    "ttft_efficiency_low": pl.Float64, "ttft_efficiency_high": pl.Float64,
    "verdict": pl.String,
}  # fmt: skip


@dataclass(frozen=True)
class Hypothesis:
    """One way in which the figures may have come about."""

    name: str
    place: Placement


def usual_hypotheses() -> list[Hypothesis]:
    """Return the configurations that an article on one data-centre GPU could have meant."""
    choices: tuple[tuple[str, int, Precision], ...] = (
        ("H100-SXM", 1, BF16), ("H100-SXM", 1, FP8), ("H100-SXM", 1, INT4_G128),
        ("H100-SXM", 2, BF16), ("H100-SXM", 2, FP8), ("H100-SXM", 4, BF16), ("H100-SXM", 4, FP8),
        ("H200", 1, FP8), ("B200", 1, FP8), ("B200", 1, NVFP4),
    )  # fmt: skip
    table = hardware_table()
    return [
        Hypothesis(f"{n} x {key} {p.name}", Placement(table[key], p, n)) for key, n, p in choices
    ]


def fit_hypotheses(
    table: pl.DataFrame,
    shape: ModelShape,
    hypotheses: Iterable[Hypothesis] | None = None,
    *,
    context: float = 0.0,
    weights_gb: float | None = None,
) -> pl.DataFrame:
    """Return how well each hypothesis explains a table of figures, the best first.

    Parameters
    ----------
    table
        Columns engine, metric (output_tokens_per_s or ttft_p50_ms), concurrency, input_tokens,
        value; axes that a metric does not have are null.
    context
        Mean live tokens a request of the rate figures; 0, the kindest reading, where unstated.
    weights_gb
        What the source says of weight memory on one device, to be explained as well.

    Notes
    -----
    A hypothesis *fits* when the model loads and no figure is beyond its limit. Among those that
    fit, the one that explains the stated weight memory best comes first.
    """
    figures = table.select(pl.col(k).cast(t) for k, t in TABLE_SCHEMA.items())
    chosen = usual_hypotheses() if hypotheses is None else list(hypotheses)
    rows = [_row(h, figures, shape, context, weights_gb) for h in chosen]
    frame = pl.DataFrame(rows, schema=HYPOTHESIS_SCHEMA)
    broken = pl.col("rate_impossible") + pl.col("ttft_impossible")
    return frame.sort(
        ~pl.col("loads"),
        broken,
        pl.col("weights_error").abs(),
        nulls_last=True,
        maintain_order=True,
    )


def figure_efficiencies(
    table: pl.DataFrame, shape: ModelShape, hypotheses: Iterable[Hypothesis], context: float = 0.0
) -> pl.DataFrame:
    """Return each figure's efficiency under each hypothesis, for charts: above 1 is impossible."""
    figures = table.select(pl.col(k).cast(t) for k, t in TABLE_SCHEMA.items())
    rows = [
        {**figure, "hypothesis": h.name, "efficiency": _efficiency(figure, shape, h.place, context)}
        for h in hypotheses
        for figure in figures.iter_rows(named=True)
    ]
    return pl.DataFrame(
        rows, schema=TABLE_SCHEMA | {"hypothesis": pl.String, "efficiency": pl.Float64}
    )


def _efficiency(
    figure: Mapping[str, Any], shape: ModelShape, place: Placement, context: float
) -> float:
    """Return limit over observed time of one figure."""
    if figure["metric"] == "output_tokens_per_s":
        batch = int(figure["concurrency"])
        return decode_bound(shape, place, batch, context).seconds / batch * float(figure["value"])
    bound = prefill_bound(shape, place, int(figure["input_tokens"]))
    return bound.seconds * 1e3 / float(figure["value"])


def _row(
    hypothesis: Hypothesis,
    figures: pl.DataFrame,
    shape: ModelShape,
    context: float,
    weights_gb: float | None,
) -> dict[str, Any]:
    place = hypothesis.place
    found: dict[str, list[float]] = {"rate": [], "ttft": []}
    for figure in figures.iter_rows(named=True):
        kind = "rate" if figure["metric"] == "output_tokens_per_s" else "ttft"
        found[kind].append(_efficiency(figure, shape, place, context))
    weights = weight_bytes(shape, place.precision) / place.devices / 1e9
    loads = weights_share(shape, place) <= 1
    broken = sum(e > 1 for es in found.values() for e in es)
    return {
        "hypothesis": hypothesis.name,
        "hardware": place.hardware.name,
        "devices": place.devices,
        "precision": place.precision.name,
        "loads": loads,
        "weights_gb_per_device": weights,
        "weights_error": None if weights_gb is None else weights / weights_gb - 1,
        "kv_tokens": kv_capacity_tokens(shape, place),
        **_counts(found),
        "verdict": _verdict(broken, loads=loads),
    }


def _counts(found: Mapping[str, list[float]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for kind, values in found.items():
        out[f"{kind}_impossible"] = sum(e > 1 for e in values)
        out[f"{kind}_figures"] = len(values)
        out[f"{kind}_efficiency_low"] = min(values, default=None)
        out[f"{kind}_efficiency_high"] = max(values, default=None)
    out["ttft_implausible"] = sum(IMPLAUSIBLE < e <= 1 for e in found["ttft"])
    return out


def _verdict(broken: int, *, loads: bool) -> str:
    if not loads:
        return f"cannot be loaded; {broken} figures beyond the limit"
    return "fits" if broken == 0 else f"{broken} figures beyond the limit"
