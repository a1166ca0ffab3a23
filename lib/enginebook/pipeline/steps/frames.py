"""Installs, launches and memory as frames, from what the stages of a study left so far."""

from __future__ import annotations

import polars as pl

from enginebook.pipeline.book import Book


def lifecycle_frames(book: Book) -> dict[str, pl.DataFrame]:
    """Return installs, launches and memory as frames."""
    return {
        "installs": _installs(book),
        "launches": _launches(book),
        "memory": _memory(book),
    }


def _installs(book: Book) -> pl.DataFrame:
    schema = {
        "engine": pl.String,
        "version": pl.String,
        "seconds": pl.Float64,
        "bytes": pl.Int64,
        "packages": pl.Int64,
        "torch": pl.String,
        "kind": pl.String,
        "reused": pl.Boolean,
    }
    rows = []
    for value in book.results("install", "install.json").values():
        facts = value["installation"]
        rows.append({"engine": value["engine"]} | {k: facts.get(k) for k in list(schema)[1:]})
    return pl.DataFrame(rows, schema=schema)


def _launches(book: Book) -> pl.DataFrame:
    """Return start-up phases; block -1 is the launch stage, block 0 and up the load stages."""
    schema = {
        "engine": pl.String,
        "block": pl.Int64,
        "phase": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "source": pl.String,
    }
    rows = []
    found = [(-1, v) for v in book.results("launch", "launch.json").values()]
    found += [(int(v["block"]), v) for v in book.results("load", "load.json").values()]
    for block, value in found:
        for phase in (value.get("server") or {}).get("phases", []):
            rest = {key: phase[key] for key in ("start_s", "end_s", "source")}
            rows.append({"engine": value["engine"], "block": block, "phase": phase["name"]} | rest)
    return pl.DataFrame(rows, schema=schema)


def _memory(book: Book) -> pl.DataFrame:
    schema = {
        "engine": pl.String,
        "component": pl.String,
        "bytes": pl.Int64,
        "source": pl.String,
    }
    rows = [
        {"engine": value["engine"], **part}
        for value in book.results("launch", "launch.json").values()
        for part in value["memory"]
    ]
    return pl.DataFrame(rows, schema=schema)
