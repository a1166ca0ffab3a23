"""Stage compare: raw records of all engines and blocks to cells, points and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from enginebook.errors import EnginebookError
from enginebook.load import read_records
from enginebook.metrics import cell_metrics, summarise
from enginebook.physics import require_possible
from enginebook.pipeline.book import Book
from enginebook.pipeline.steps.answers import judged
from enginebook.pipeline.steps.frames import arms_frame, lifecycle_frames, loads_frame
from enginebook.pipeline.steps.physics import Audited, audit_study
from enginebook.pipeline.steps.simulations import simulate
from enginebook.stats import comparisons, noise_floor_of_run, points, run_folder
from enginebook.store import read_json, write_json
from enginebook.study import Cell, EngineSpec

AUDIT_KEYS = ["engine", "scenario", "block", "concurrency", "input_tokens", "output_tokens"]
WRONG_ANSWERS = "wrong_answers"
CELLS_SCHEMA: dict[str, Any] = {
    "engine": pl.String,
    "scenario": pl.String,
    "block": pl.Int64,
    "concurrency": pl.Int64,
    "input_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
    "n": pl.Int64,
    "gate_ok": pl.Boolean,
    "flags": pl.List(pl.String),
    "cell": pl.String,
}


@dataclass(frozen=True)
class Compared:
    """The frames of a comparison; see docs/method.md for their columns."""

    cells: pl.DataFrame
    points: pl.DataFrame
    comparisons: pl.DataFrame
    greedy: list[dict[str, Any]]
    accuracy: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    missing: list[str]
    audited: Audited


def compare_engines(book: Book) -> Compared:
    """Read all cells of the study, summarise and compare them, and store the frames.

    Raises
    ------
    EnginebookError
        When not a single cell has been measured.
    """
    rows, failures, missing = _read_cells(book)
    failures += [
        {
            "engine": failure["stage"].parameters.get("engine"),
            "cell": failure["stage"].name,
            "reason": failure["error"],
        }
        for failure in book.stage_failures()
    ]
    if not rows:
        raise EnginebookError(
            "no load cell of this study has been measured on this host",
            "run 30_load for each engine and block, or the whole study with `enginebook run`",
        )
    launches = book.results("launch", "launch.json")
    greedy, accuracy = judged(book, launches)
    wrong = [row["engine"] for row in accuracy if row["wrong"]]
    cells = without_trust(pl.DataFrame(rows, schema=CELLS_SCHEMA), wrong)
    audited = audit_study(book, cells)
    if not audited.audit.is_empty():
        # A cell that failed its gate is known not to have done the work; it proves nothing.
        passed = cells.filter("gate_ok").select(*AUDIT_KEYS).unique()
        require_possible(audited.audit.join(passed, on=AUDIT_KEYS, how="semi"))
    compared = Compared(
        cells=cells,
        points=points(cells),
        comparisons=_comparisons(book, cells),
        greedy=greedy,
        accuracy=accuracy,
        failures=failures,
        missing=missing,
        audited=audited,
    )
    _store(book, compared)
    return compared


def without_trust(cells: pl.DataFrame, wrong: Sequence[str]) -> pl.DataFrame:
    """Return the cells with those of engines that answer wrongly failing the equal-work gate.

    What does not compute the model has not done the work, however fast it was.
    """
    lost = pl.col("engine").is_in(list(wrong))
    flagged = pl.col("flags").list.concat(pl.lit([WRONG_ANSWERS]))
    return cells.with_columns(
        gate_ok=pl.col("gate_ok") & ~lost,
        flags=pl.when(lost).then(flagged).otherwise(pl.col("flags")),
    )


def _comparisons(book: Book, cells: pl.DataFrame) -> pl.DataFrame:
    """Return comparisons within each arm: defaults with defaults, equalised with equalised.

    Engines of different arms differ on purpose, and simulated ones stand for none: their figures
    stand side by side without a verdict.
    """
    return comparisons(
        cells,
        margin=book.study.margin,
        noise_floor=_noise_floor(book),
        arms=arms_frame(book.study),
        loads=loads_frame(book.study),
    )


def _noise_floor(book: Book) -> Mapping[str, float] | None:
    """Return the floor by metric of the A/A run that the study names; None where it names none."""
    if book.study.noise_floor is None:
        return None
    folder = run_folder(book.study.noise_floor, book.outputs)
    return noise_floor_of_run(folder, book.plan.host_id).by_metric


def _read_cells(book: Book) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    rows: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    missing: list[str] = []
    for block, name in book.study.block_order():
        engine = book.study.engine(name)
        for cell in book.study.cells(name, block):
            folder = book.cell_folder(cell, engine)
            if not (folder / "cell.json").is_file():
                missing.append(f"{name} block {block}: {cell.label}")
                continue
            facts = read_json(folder / "cell.json")
            if facts["status"] != "ok":
                failures.append({"engine": name, "cell": cell.label, "reason": facts["error"]})
                continue
            rows += cell_rows(cell, engine, folder, facts)
    return rows, failures, missing


def cell_rows(
    cell: Cell, engine: EngineSpec, folder: Path, facts: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return one row a metric for a measured cell, computed anew from its raw records."""
    records = read_records(folder)
    samples = folder / "samples.parquet"
    metrics = dict(
        cell_metrics(
            summarise(records),
            cell.model_dump(),
            pl.read_parquet(samples) if samples.is_file() else None,
            records=records,
            search=facts.get("search"),
        )
    )
    metrics["others_cpu_share"] = (facts.get("others_cpu_share"), 1)
    key = {
        "engine": engine.name,
        "scenario": cell.scenario,
        "block": cell.block,
        "concurrency": cell.concurrency,
        "input_tokens": cell.input_tokens,
        "output_tokens": cell.output_tokens,
        "gate_ok": facts["gate_ok"],
        "flags": facts["flags"],
        "cell": folder.name,
    }
    return [key | {"metric": m, "value": v, "n": n} for m, (v, n) in metrics.items()]


def _store(book: Book, compared: Compared) -> None:
    data = book.folder / "data"
    data.mkdir(exist_ok=True)
    frames = {
        "audit": compared.audited.audit,
        "limits": compared.audited.limits,
        "cells": compared.cells,
        "points": compared.points,
        "comparisons": compared.comparisons,
        "loads": loads_frame(book.study),
        "arms": arms_frame(book.study),
        "simulations": simulate(book.study, compared.points, compared.cells),
        **lifecycle_frames(book),
    }
    for name, frame in frames.items():
        if frame.width == 0:  # no audit was possible: no file, and the report says why
            continue
        _write_parquet(frame, data / f"{name}.parquet")
    write_json(
        data / "checks.json",
        {
            "greedy": compared.greedy,
            "accuracy": compared.accuracy,
            "failures": compared.failures,
            "missing": compared.missing,
            "no_limits": compared.audited.reason,
            "not_audited": compared.audited.gaps.to_dicts(),
        },
    )


def _write_parquet(frame: pl.DataFrame, path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    frame.write_parquet(temporary)
    temporary.replace(path)
