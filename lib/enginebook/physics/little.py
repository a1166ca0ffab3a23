"""Little's law on measured cells: a closed loop's streams are all somewhere."""

from __future__ import annotations

from typing import Final

import polars as pl

TOLERANCE: Final = 0.05
_KEYS: Final = ("engine", "scenario", "block", "concurrency", "input_tokens", "output_tokens")
_NEEDED: Final = ("requests_per_s", "ttft_mean_ms", "tpot_mean_ms")


def littles_law(cells: pl.DataFrame, tolerance: float = TOLERANCE) -> pl.DataFrame:
    """Return, by cell, the requests in flight that rate and latency imply, against those sent.

    In a closed loop ``concurrency = requests/s * (TTFT + (output tokens - 1) * TPOT)`` holds for
    means over the same window. A gap says that the window holds ramp-up or idle streams, or that
    one of the three is not what it is called; the cell is flagged, never dropped.

    Returns
    -------
    polars.DataFrame
        The key columns, `implied` (requests in flight), `gap` (implied over sent, less 1) and
        `consistent`. Cells that lack one of the three means are left out.
    """
    wanted = cells.filter(pl.col("metric").is_in(_NEEDED))
    wide = wanted.pivot(on="metric", index=list(_KEYS), values="value")
    present = [name for name in _NEEDED if name in wide.columns]
    if len(present) < len(_NEEDED):
        return wide.clear().select(
            *_KEYS, implied=pl.lit(0.0), gap=pl.lit(0.0), consistent=pl.lit(value=True)
        )
    residence_ms = pl.col("ttft_mean_ms") + (pl.col("output_tokens") - 1) * pl.col("tpot_mean_ms")
    implied = pl.col("requests_per_s") * residence_ms / 1e3
    return (
        wide.drop_nulls(list(_NEEDED))
        .select(*_KEYS, implied=implied)
        .with_columns(gap=pl.col("implied") / pl.col("concurrency") - 1)
        .with_columns(consistent=pl.col("gap").abs() <= tolerance)
    )
