"""What the metrics of a study mean to a comparison: which way is better, which ones decide."""

from __future__ import annotations

from typing import Final

import polars as pl

from enginebook.errors import InputError

KEYS: Final = ("scenario", "concurrency", "input_tokens", "output_tokens", "metric")
PRIMARY: Final = ("output_tokens_per_s", "ttft_p50_ms", "tpot_p50_ms")
_MORE_IS_BETTER: Final = ("_per_s", "_per_joule", "_per_usd", "slo_share", "valid_json_share")
_LESS_IS_BETTER: Final = (
    "_ms", "_bytes", "_joules", "_joules_per_token", "_j_per_output_token", "_usd_per_million",
)  # fmt: skip
CELL_SCHEMA: Final = {
    "engine": pl.String,
    "scenario": pl.String,
    "block": pl.Int64,
    "concurrency": pl.Int64,
    "input_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
    "gate_ok": pl.Boolean,
}


def better(metric: str) -> int:
    """Return +1 where more of a metric is better, -1 where less is, 0 where it ranks nothing.

    What follows a dot names an objective (``goodput_per_s.chat``) and has no part in it. A cached
    share and a power ranks nothing: more of the one is no merit without a shorter time, less of the
    other none without the energy of an answer.
    """
    stem = metric.split(".", 1)[0]
    if stem.endswith(_MORE_IS_BETTER):
        return 1
    return -1 if stem.endswith(_LESS_IS_BETTER) else 0


def is_share(metric: str) -> bool:
    """Return whether a metric is a share of something, from 0 to 1."""
    return metric.split(".", 1)[0].endswith("_share")


def checked_cells(cells: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of a `cells` frame that statistics need, with their types.

    Values that are not finite become null: a missing figure is never a number.

    Raises
    ------
    InputError
        When a column is missing, or one engine has two values for one block of one cell.
    """
    missing = [name for name in CELL_SCHEMA if name not in cells.columns]
    if missing:
        raise InputError(
            f"the cells frame has no column {', '.join(missing)}",
            "give the frame that the compare stage writes as data/cells.parquet",
        )
    frame = cells.select(pl.col(name).cast(dtype) for name, dtype in CELL_SCHEMA.items())
    frame = frame.with_columns(
        value=pl.when(pl.col("value").is_finite()).then(pl.col("value")),
        gate_ok=pl.col("gate_ok").fill_null(value=False),
    )
    _refuse_duplicates(frame)
    return frame


def _refuse_duplicates(frame: pl.DataFrame) -> None:
    keys = ["engine", "block", *KEYS]
    twice = frame.group_by(keys, maintain_order=True).len().filter(pl.col("len") > 1)
    if len(twice):
        row = twice.row(0, named=True)
        raise InputError(
            f"{row['engine']}, block {row['block']}, {row['scenario']} at concurrency "
            f"{row['concurrency']} has {row['len']} values of {row['metric']}",
            "compare one study at a time; two runs of one cell are two blocks",
        )
