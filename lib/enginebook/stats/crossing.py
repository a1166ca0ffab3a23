"""Where one engine overtakes another: the load at which their paired curves cross."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from enginebook.stats.intervals import SMALLEST
from enginebook.stats.metrics import better, checked_cells

DRAWS: Final = 4000
CROSSOVER_SCHEMA: Final = {
    "scenario": pl.String, "input_tokens": pl.Int64, "output_tokens": pl.Int64,
    "metric": pl.String, "engine_a": pl.String, "engine_b": pl.String, "n_pairs": pl.Int64,
    "concurrency": pl.Float64, "low": pl.Float64, "high": pl.Float64, "share": pl.Float64,
}  # fmt: skip


@dataclass(frozen=True)
class Crossing:
    """The load from which a leads b.

    Attributes
    ----------
    at
        The crossing of the mean curve; None when it never crosses upward.
    low, high
        95 % limits; None where that side is open (below the first or above the last load).
    share
        Of the draws, how many cross inside the measured loads.
    """

    at: float | None
    low: float | None
    high: float | None
    share: float
    n: int


def crossing_of(loads: NDArray[np.float64], gains: NDArray[np.float64], seed: int = 0) -> Crossing:
    """Return the crossing of paired curves.

    Parameters
    ----------
    loads
        (k,) increasing, such as concurrencies.
    gains
        (blocks, k) log ratios of a over b, signed so that more means that a is better.

    Notes
    -----
    Interpolated linearly in log gain over log load. The interval is a multiplier bootstrap over
    blocks: residual curves are mixed with normal weights and scaled by a chi-squared draw, so that
    at every load the spread is that of the t interval. Resampling 3 to 10 blocks as they are would
    be too narrow.
    """
    blocks = gains.shape[0]
    x = np.log(loads)
    at = _log_crossing(x, gains.mean(axis=0, keepdims=True))[0]
    if blocks < SMALLEST:
        return Crossing(_load(at), None, None, float(np.isfinite(at)), blocks)
    rng = np.random.default_rng(seed)
    residuals = (gains - gains.mean(axis=0)) / math.sqrt(blocks * (blocks - 1))
    weights = rng.standard_normal((DRAWS, blocks))
    scale = np.sqrt((blocks - 1) / rng.chisquare(blocks - 1, (DRAWS, 1)))
    found = _log_crossing(x, gains.mean(axis=0) + weights @ residuals * scale)
    low, high = np.quantile(found, [0.025, 0.975], method="inverted_cdf")
    return Crossing(_load(at), _load(low), _load(high), float(np.isfinite(found).mean()), blocks)


def _load(log_load: float) -> float | None:
    return float(math.exp(log_load)) if math.isfinite(log_load) else None


def _log_crossing(x: NDArray[np.float64], curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return per curve the log load after which it stays above 0 (last upward crossing).

    -inf: a leads everywhere; +inf: a does not lead at the heaviest load.
    """
    behind = curves < 0
    last = curves.shape[1] - 1 - np.argmax(behind[:, ::-1], axis=1)  # last load where a is behind
    out = np.where(behind.any(axis=1), np.inf, -np.inf)
    inside = behind.any(axis=1) & (last < curves.shape[1] - 1)
    rows, at = np.flatnonzero(inside), last[inside]
    y0, y1 = curves[rows, at], curves[rows, at + 1]
    out[rows] = x[at] + (x[at + 1] - x[at]) * (-y0) / (y1 - y0)
    return out


def crossovers(cells: pl.DataFrame, metric: str = "output_tokens_per_s") -> pl.DataFrame:
    """Return where each engine overtakes each other one as concurrency grows.

    Only pairs that cross in the mean curve or in 5 % of the draws are listed; blocks must hold
    both engines at every concurrency, and cells that failed the equal-work gate are left out.
    """
    frame = checked_cells(cells).filter(
        (pl.col("metric") == metric) & pl.col("gate_ok") & (pl.col("value") > 0)
    )
    rows: list[dict[str, Any]] = []
    keys = ["scenario", "input_tokens", "output_tokens"]
    for key, group in frame.group_by(keys, maintain_order=True):
        named = dict(zip(keys, key, strict=True)) | {"metric": metric}
        for a, b in permutations(group["engine"].unique(maintain_order=True).to_list(), 2):
            rows += _row(named, group, a, b)
    return pl.DataFrame(rows, schema=CROSSOVER_SCHEMA)


def _row(named: Mapping[str, Any], group: pl.DataFrame, a: str, b: str) -> list[dict[str, Any]]:
    curves = paired_curves(group, a, b, better(named["metric"]))
    if curves is None:
        return []
    found = crossing_of(*curves)
    if found.at is None and found.share < 1 - 0.95:
        return []
    record = {"n_pairs": found.n, "concurrency": found.at, "low": found.low, "high": found.high}
    return [{**named, "engine_a": a, "engine_b": b, **record, "share": found.share}]


def paired_curves(
    group: pl.DataFrame, a: str, b: str, sign: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return (loads, gains) of two engines over complete blocks, or None without any."""
    sides = (group.filter(pl.col("engine") == n) for n in (a, b))
    left, right = (s.select("block", "concurrency", "value") for s in sides)
    both = left.join(right, on=["block", "concurrency"], suffix="_b").with_columns(
        gain=sign * (pl.col("value").log() - pl.col("value_b").log())
    )
    if both["concurrency"].n_unique() < SMALLEST:
        return None
    wide = both.pivot(on="concurrency", index="block", values="gain").drop_nulls()
    loads = sorted(both["concurrency"].unique().to_list())
    if wide.is_empty():
        return None
    return np.asarray(loads, dtype=float), wide.select(str(v) for v in loads).to_numpy()
