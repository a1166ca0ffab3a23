"""Stage claims: published claims against physics, and against what this study measured."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from enginebook.claims import judge, load_register
from enginebook.pipeline.book import Book


def judge_claims(book: Book) -> pl.DataFrame:
    """Judge every claim of the register; return and store the frame."""
    data = book.outputs / book.plan.stage("compare").folder / "data"
    host = book.result(book.plan.stage("host"), "host.json")
    more = ("loads", "arms", "probes", "starts", "swaps", "simulations")
    found = {name: _frame(data / f"{name}.parquet") for name in more}
    claims = judge(
        load_register(),
        cells=_frame(data / "cells.parquet"),
        points=_frame(data / "points.parquet"),
        comparisons=_frame(data / "comparisons.parquet"),
        installs=_frame(data / "installs.parquet"),
        memory=_frame(data / "memory.parquet"),
        host=host,
        manifest=book.manifest(),
        frames={name: frame for name, frame in found.items() if frame is not None},
    )
    path = book.folder / "data" / "claims.parquet"
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    claims.write_parquet(temporary)
    temporary.replace(path)
    return claims


def _frame(path: Path) -> pl.DataFrame | None:
    return pl.read_parquet(path) if path.is_file() else None
