"""Stage claims: published claims against physics, and against what this study measured."""

from __future__ import annotations

import polars as pl

from enginebook.claims import judge, load_register
from enginebook.pipeline.book import Book


def judge_claims(book: Book) -> pl.DataFrame:
    """Judge every claim of the register; return and store the frame."""
    data = book.outputs / book.plan.stage("compare").folder / "data"
    frames = {
        name: pl.read_parquet(data / f"{name}.parquet")
        for name in ("cells", "points", "comparisons")
        if (data / f"{name}.parquet").is_file()
    }
    host = book.result(book.plan.stage("host"), "host.json")
    claims = judge(load_register(), host=host, manifest=dict(book.plan.study), **frames)
    path = book.folder / "data" / "claims.parquet"
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    claims.write_parquet(temporary)
    temporary.replace(path)
    return claims
