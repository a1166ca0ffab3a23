"""Where measured load cells lie, and which of them failed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enginebook.cells import Cell
from enginebook.pipeline.plan import Plan, cell_digest
from enginebook.store import read_json
from enginebook.study import EngineSpec, Study

FAILED = "failed: "  # begins the source of a start that gave no time


def cell_folder(study: Study, plan: Plan, outputs: Path, *, cell: Cell, engine: EngineSpec) -> Path:
    """Return the place of one measured cell; equal cells of other studies share it."""
    digest = cell_digest(cell, engine, study.model_of(engine), plan.host_id)
    return outputs / "cells" / digest


def all_cells(study: Study) -> Iterator[tuple[EngineSpec, Cell]]:
    """Yield every load cell of a study with its engine, in running order."""
    for block, name in study.block_order():
        engine = study.engine(name)
        for cell in study.cells(name, block):
            yield engine, cell


def read_cell(folder: Path) -> dict[str, Any] | None:
    """Return a cell's facts, or None when it is not there or was cut off in the middle."""
    try:
        facts = read_json(folder / "cell.json")
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and "status" in facts else None


def forget_failed_cells(study: Study, plan: Plan, outputs: Path) -> list[str]:
    """Remove cells and starts that failed and the markers of their stages; return their labels."""
    forgotten = _forget_failed_starts(plan, outputs)
    for engine, cell in all_cells(study):
        folder = cell_folder(study, plan, outputs, cell=cell, engine=engine)
        facts = read_cell(folder)
        if facts is None or facts["status"] == "ok":
            continue
        shutil.rmtree(folder)
        stage = plan.stage(f"load-{engine.name}-b{cell.block}")
        (outputs / stage.marker).unlink(missing_ok=True)
        (outputs / stage.folder / "load.json").unlink(missing_ok=True)
        forgotten.append(f"{engine.name} block {cell.block}: {cell.label}")
    if forgotten:
        for kind in ("compare", "claims", "report"):
            for stage in plan.of_kind(kind):
                (outputs / stage.marker).unlink(missing_ok=True)
    return forgotten


def _forget_failed_starts(plan: Plan, outputs: Path) -> list[str]:
    """Remove what launch stages measured when one of their timed starts failed."""
    forgotten = []
    for stage in plan.of_kind("launch"):
        stored = outputs / stage.folder / "launch.json"
        if not stored.is_file():
            continue
        failed = [s for s in read_json(stored).get("starts") or [] if s["seconds"] is None]
        if any(str(start["source"]).startswith(FAILED) for start in failed):
            (outputs / stage.marker).unlink(missing_ok=True)
            stored.unlink()
            forgotten.append(f"{stage.name}: {failed[0]['scenario']}, {failed[0]['arm']}")
    return forgotten
