"""Stage load: one start of one engine, every load cell of the study that is not measured yet."""

from __future__ import annotations

import shutil
import time
from typing import Any

import polars as pl

from enginebook.engines.registry import adapter
from enginebook.errors import EnginebookError, EngineError
from enginebook.lifecycle.models import prepare_model
from enginebook.lifecycle.server import Server
from enginebook.load import Sampler, Target, Workload, read_records, run_load
from enginebook.metrics import cell_metrics, summarise
from enginebook.metrics.gate import gate
from enginebook.pipeline.book import Book
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.steps.serving import server_facts, serving
from enginebook.store import read_json, write_json
from enginebook.study import Cell

SCHEMA = 1
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


def load_engine(book: Book) -> dict[str, Any]:
    """Measure the cells of the notebook's engine and block that are not there; store a summary.

    A cell that fails is recorded with its reason and the others go on; an engine that died is
    started again, at most `MOST_STARTS` times in all.

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
        write_json(path, _measure(book, wanted))
    return dict(read_json(path))


def _is_there(book: Book, cell: Cell) -> bool:
    return (book.cell_folder(cell, book.engine) / "cell.json").is_file()


def _measure(book: Book, wanted: list[Cell]) -> dict[str, Any]:
    total = len(book.cells())
    progress = Progress(f"load {book.engine.name}", total)
    progress.update(done=total - len(wanted))
    servers: list[dict[str, Any]] = []
    left = list(wanted)
    for _ in range(MOST_STARTS):
        if not left:
            break
        with serving(book, progress) as server:
            servers.append(server_facts(server))
            left = _measure_cells(book, left, server, progress)
    for cell in left:
        _store_failure(book, cell, "the engine died again and again; see its log")
    progress.update(done=total, label=f"load {book.engine.name}")
    cells = [read_json(book.cell_folder(c, book.engine) / "cell.json") for c in book.cells()]
    return {
        "engine": book.engine.name,
        "block": book.block,
        "server": servers[0] if servers else None,
        "starts": len(servers),
        "measured": len(wanted),
        "found": total - len(wanted),
        "failed": [c["label"] for c in cells if c["status"] != "ok"],
        "cells": [book.cell_folder(c, book.engine).name for c in book.cells()],
    }


def _measure_cells(book: Book, cells: list[Cell], server: Server, progress: Progress) -> list[Cell]:
    """Measure cells until all are done or the engine has died; return those that are left."""
    total = len(book.cells())
    for index, cell in enumerate(cells):
        progress.update(done=total - len(cells) + index, label=cell.label)
        try:
            _measure_cell(book, cell, server, progress)
        except EnginebookError as error:
            _store_failure(book, cell, _why(error, server))
        if not server.alive():
            return cells[index + 1 :]
    return []


def _why(error: EnginebookError, server: Server) -> str:
    if server.alive():
        return error.message
    return "\n".join(["the engine died under load; its last lines:", *server.log_tail(10)])


def _measure_cell(book: Book, cell: Cell, server: Server, progress: Progress) -> None:
    """Run one cell into a temporary folder, and move it to its place when it is whole."""
    final = book.cell_folder(cell, book.engine)
    work = final.with_name(f".{final.name}.{time.time_ns()}")
    work.mkdir(parents=True)
    label = cell.label
    try:
        target, load = target_of(book, server, cell), workload_of(cell)
        started = time.time()
        with Sampler(
            work, server_pids=server.processes, metrics_url=_metrics_url(book, server)
        ) as s:
            records = run_load(
                target,
                load,
                directory=work,
                on_progress=lambda p: progress.update(
                    label=f"{label}, {p.done}/{p.total} requests"
                ),
            )
        verdict = gate(records, load, s.summary())
        if not verdict.completed:
            raise EngineError(f"no request of {label} was completed: {verdict.first_error}")
        facts = _cell_facts(book, cell) | {
            "status": "ok",
            "error": None,
            "started_unix": started,
            "seconds": time.time() - started,
            "gate_ok": verdict.ok,
            "flags": list(verdict.flags),
            "checks": verdict.checks,
            "others_cpu_share": s.summary().get("others_cpu_share"),
            "workload": load.to_dict(),
            "engine_version": server.version,
            "options": dict(server.options),
        }
        write_json(work / "cell.json", facts)
        shutil.rmtree(final, ignore_errors=True)
        work.rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def target_of(book: Book, server: Server, cell: Cell) -> Target:
    """Return a running server as the load generator's target, with fields that force lengths."""
    fields = adapter(book.recipe.engine).sampling_fields(cell.output_tokens)
    model = prepare_model(book.model, book.recipe.model_format)
    return Target(
        base_url=server.base_url,
        model=server.model_id,
        tokenizer=model.tokenizer_dir,
        extra_body=fields,
    )


def workload_of(cell: Cell) -> Workload:
    """Return a cell as the load generator's workload."""
    return Workload(
        concurrency=cell.concurrency,
        requests=cell.requests,
        warmup_requests=cell.warmup_requests,
        input_tokens=cell.input_tokens,
        output_tokens=cell.output_tokens,
        max_seconds=cell.max_seconds,
        seed=cell.seed,
    )


def _metrics_url(book: Book, server: Server) -> str | None:
    return server.base_url.rstrip("/") + "/metrics" if adapter(book.recipe.engine).metrics else None


def _cell_facts(book: Book, cell: Cell) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "engine": book.engine.name,
        "label": cell.label,
        "cell": cell.model_dump(),
        "recipe": book.recipe.name,
        "host_id": book.plan.host_id,
    }


def _store_failure(book: Book, cell: Cell, reason: str) -> None:
    folder = book.cell_folder(cell, book.engine)
    failed = {"status": "failed", "error": reason, "gate_ok": False, "flags": ["failed"]}
    write_json(folder / "cell.json", _cell_facts(book, cell) | failed)


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
