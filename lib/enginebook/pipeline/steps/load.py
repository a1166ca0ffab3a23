"""Stage load: one start of one engine, every load cell of the study that is not measured yet."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import polars as pl

from enginebook.errors import EnginebookError
from enginebook.lifecycle.server import Server
from enginebook.load import read_records
from enginebook.metrics import cell_metrics, summarise
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.steps.cell import measure_cell, store_failure
from enginebook.pipeline.steps.probes import watch_server
from enginebook.pipeline.steps.serving import server_facts, serving
from enginebook.pipeline.steps.values import json_values
from enginebook.store import read_json, write_json
from enginebook.study import Cell

MOST_STARTS = 3
SHOWN = {
    "tokens/s": "output_tokens_per_s",
    "TTFT p50 (ms)": "ttft_p50_ms",
    "TPOT p50 (ms)": "tpot_p50_ms",
}
TABLE_SCHEMA: dict[str, Any] = {
    "cell": pl.String,
    "status": pl.String,
    **dict.fromkeys(SHOWN, pl.Float64),
    "gate": pl.Boolean,
    "flags": pl.List(pl.String),
}


def load_engine(book: Book, *, keep_warm: float | str = 0) -> dict[str, Any]:
    """Measure the cells of the notebook's engine and block that are not there; store a summary.

    A cell that fails is recorded with its reason and the others go on; an engine that died is
    started again, at most `MOST_STARTS` times in all.

    Parameters
    ----------
    keep_warm
        ``"15min"`` leaves the engine running for so long after the cell, and the next call of the
        same study, engine and block takes it over, also after a restart of the kernel. A batch run
        takes no notice. ``enginebook servers`` lists and stops what was kept.

    Returns
    -------
    dict
        ``server`` facts of the first start (null when nothing had to be measured), ``measured``
        and ``found`` counts, ``failed`` cells.
    """
    # Not `once`: when a stored summary stands beside missing cells, these are measured now.
    wanted = [c for c in book.cells() if not _is_there(book, c)]
    path = book.folder / "load.json"
    if wanted or not path.is_file():
        write_json(path, _measure(book, wanted, keep_warm))
    return dict(read_json(path))


def _watched(book: Book) -> bool:
    """Return whether this start's exported figures are looked at, too."""
    wanted = book.study.of_kind("monitoring")
    return book.block == 0 and any(s.wants(book.engine.name) for s in wanted)


def _is_there(book: Book, cell: Cell) -> bool:
    return (book.cell_folder(cell, book.engine) / "cell.json").is_file()


def _measure(book: Book, wanted: list[Cell], keep_warm: float | str) -> dict[str, Any]:
    total = len(book.cells())
    progress = Progress(f"load {book.engine.name}", total)
    progress.update(done=total - len(wanted))
    servers: list[dict[str, Any]] = []
    memory: dict[str, Any] = {}
    probes: list[dict[str, Any]] = []
    left = list(wanted)
    for _ in range(MOST_STARTS):
        if not left and (probes or not _watched(book)):
            break
        with serving(book, progress, keep_warm=keep_warm) as server:
            servers.append(server_facts(server))
            ready = memory_of(server)
            if _watched(book) and not probes:
                probes = watch_server(book, server)
            left = _measure_cells(book, left, server, progress)
            memory = {"ready": ready, "drained": memory_of(server)}
    for cell in left:
        store_failure(book, cell, "the engine died again and again; see its log")
    progress.update(done=total, label=f"load {book.engine.name}")
    cells = [read_json(book.cell_folder(c, book.engine) / "cell.json") for c in book.cells()]
    return {
        "engine": book.engine.name,
        "block": book.block,
        "server": servers[0] if servers else None,
        "starts": len(servers),
        "memory": memory or None,
        "probes": probes,
        "measured": len(wanted),
        "found": total - len(wanted),
        "failed": [c["label"] for c in cells if c["status"] != "ok"],
        "cells": [book.cell_folder(c, book.engine).name for c in book.cells()],
    }


def memory_of(server: Server) -> list[dict[str, Any]]:
    """Return what holds memory now, as JSON values; nothing where the engine has died."""
    return json_values([asdict(part) for part in server.memory()]) if server.alive() else []


def _measure_cells(book: Book, cells: list[Cell], server: Server, progress: Progress) -> list[Cell]:
    """Measure cells until all are done or the engine has died; return those that are left."""
    total = len(book.cells())
    for index, cell in enumerate(cells):
        progress.update(done=total - len(cells) + index, label=cell.label)
        try:
            measure_cell(book, cell, server, progress)
        except EnginebookError as error:
            store_failure(book, cell, _why(error, server))
        if not server.alive():
            return cells[index + 1 :]
    return []


def _why(error: EnginebookError, server: Server) -> str:
    if server.alive():
        return error.message
    return "\n".join(["the engine died under load; its last lines:", *server.log_tail(10)])


def cells_table(book: Book) -> pl.DataFrame:
    """Return the notebook's cells with their main figures, computed from the raw records.

    Returns
    -------
    polars.DataFrame
        ``cell``, ``status``, ``tokens/s``, ``TTFT p50 (ms)``, ``TPOT p50 (ms)``, ``gate`` and
        ``flags``; figures are null where a cell failed or was not measured.
    """
    return pl.DataFrame([_table_row(book, cell) for cell in book.cells()], schema=TABLE_SCHEMA)


def _table_row(book: Book, cell: Cell) -> dict[str, Any]:
    folder = book.cell_folder(cell, book.engine)
    row: dict[str, Any] = dict.fromkeys(TABLE_SCHEMA) | {"cell": cell.label}
    if not (folder / "cell.json").is_file():
        return row | {"status": "not measured"}
    facts = read_json(folder / "cell.json")
    row |= {"status": facts["status"], "gate": facts["gate_ok"], "flags": facts["flags"]}
    if facts["status"] != "ok":
        return row
    metrics = cell_metrics(summarise(read_records(folder)))
    return row | {title: metrics[name][0] for title, name in SHOWN.items()}
