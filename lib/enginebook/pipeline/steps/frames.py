"""What a study is made of and how its engines came up, as frames."""

from __future__ import annotations

from typing import Any

import polars as pl

from enginebook.engines.recipes import recipe_for
from enginebook.pipeline.book import Book
from enginebook.pipeline.steps.memory import memory_frame
from enginebook.pipeline.steps.probes import probes_frame
from enginebook.pipeline.steps.service import service_frames
from enginebook.store import canonical_json
from enginebook.study import Cell, Study

LOADS_SCHEMA: dict[str, Any] = {
    "scenario": pl.String,
    "family": pl.String,
    "title": pl.String,
    "kind": pl.String,
    "concurrency": pl.Int64,
    "input_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "rate": pl.Float64,
    "arrival": pl.String,
    "prefix_tokens": pl.Int64,
    "prefix_share": pl.Float64,
    "turns": pl.Int64,
    "think_time_s": pl.Float64,
    "answer_format": pl.String,
    "schema_name": pl.String,
    "trace": pl.String,
    "trace_speed": pl.Float64,
    "cache": pl.String,
    "search": pl.Boolean,
}
ARMS_SCHEMA: dict[str, Any] = {
    "engine": pl.String,
    "engine_id": pl.String,
    "recipe": pl.String,
    "arm": pl.String,
    "model": pl.String,
    "version": pl.String,
    "simulated": pl.Boolean,
    "options": pl.String,
}


def loads_frame(study: Study) -> pl.DataFrame:
    """Return one row a load: what the series' names and nominal axes stand for."""
    titles = {s.name: s.title or s.name for s in study.loads}
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for block, name in study.block_order():
        for cell in study.cells(name, block):
            row = _load_row(cell, titles[cell.of_family])
            key = (cell.scenario, cell.concurrency, cell.input_tokens, cell.output_tokens)
            rows.setdefault(key, row)
    return pl.DataFrame(list(rows.values()), schema=LOADS_SCHEMA)


def _load_row(cell: Cell, title: str) -> dict[str, Any]:
    fields = cell.model_dump()
    row = {name: fields.get(name) for name in LOADS_SCHEMA}
    rate = None if cell.search else cell.rate
    return row | {"family": cell.of_family, "title": title, "rate": rate}


def arms_frame(study: Study) -> pl.DataFrame:
    """Return one row an engine of the study: what it is, in which arm, and its options."""
    rows = []
    for engine in study.engines:
        recipe = recipe_for(engine)
        rows.append(
            {
                "engine": engine.name,
                "engine_id": recipe.engine,
                "recipe": recipe.name,
                "arm": engine.arm or recipe.arm,
                "model": study.model_of(engine).label,
                "version": recipe.version,
                "simulated": "simulated" in recipe.labels,
                "options": canonical_json(recipe.options),
            }
        )
    return pl.DataFrame(rows, schema=ARMS_SCHEMA)


def lifecycle_frames(book: Book) -> dict[str, pl.DataFrame]:
    """Return installs, launches and memory as frames."""
    return {
        "installs": _installs(book),
        "launches": _launches(book),
        "memory": memory_frame(book),
        "probes": probes_frame(book),
        **service_frames(book),
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
