"""The noise floor of a host: how different an engine looks from itself (an A/A study)."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import scipy.stats as st
from numpy.typing import NDArray

from enginebook.errors import InputError
from enginebook.stats.intervals import CONFIDENCE
from enginebook.stats.metrics import KEYS, better, checked_cells


def noise_floor(cells: pl.DataFrame, engine_a: str, engine_b: str) -> dict[str, float]:
    """Return, by metric, the relative difference that means nothing on this host.

    Parameters
    ----------
    cells
        A study in which both labels are the same engine with the same options.

    Returns
    -------
    dict
        For `comparisons(noise_floor=...)`. The truth being no difference, the floor is the 95 %
        limit on a cell's mean log ratio: from the spread of single blocks, and from the cells'
        means themselves, which also show what all blocks of a cell share (such as running order);
        the larger of the two.
    """
    frame = checked_cells(cells).filter(pl.col("value") > 0)
    sides = (frame.filter(pl.col("engine") == name) for name in (engine_a, engine_b))
    left, right = (s.select("block", *KEYS, "value") for s in sides)
    both = left.join(right, on=["block", *KEYS], suffix="_b").with_columns(
        d=pl.col("value").log() - pl.col("value_b").log()
    )
    if both.is_empty():
        raise InputError(
            f"no block holds both {engine_a} and {engine_b}",
            "an A/A study names one engine twice, under two labels",
        )
    return {
        str(metric): _floor(group)
        for (metric,), group in both.group_by(["metric"], maintain_order=True)
        if better(str(metric)) != 0
    }


def _floor(group: pl.DataFrame) -> float:
    cells = group.group_by([k for k in KEYS if k != "metric"]).agg(pl.len(), pl.col("d").mean())
    blocks = float(cells["len"].mean())  # type: ignore[arg-type]
    by_blocks = _limit(group["d"].to_numpy()) / math.sqrt(blocks)
    return math.expm1(max(by_blocks, _limit(cells["d"].to_numpy())))


def _limit(d: NDArray[np.float64]) -> float:
    """Return the 95 % limit on one draw of a law with mean 0, from the root mean square of d."""
    rms = float(np.sqrt(np.mean(np.square(d))))
    return rms * float(st.t.ppf(0.5 + CONFIDENCE / 2, d.size))
