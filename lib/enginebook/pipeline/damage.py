"""Results that a power cut, a full disk or a bad copy left half: found before a run goes on.

Every file is written whole or not at all, yet disks lose tails and copies break off. What cannot
be read any more is removed with the marker of its stage, and so it is measured again; without this
each further run would stop at the same unreadable file.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl

from enginebook.pipeline.cells import all_cells, cell_folder, read_cell
from enginebook.pipeline.plan import PROMISED, Plan
from enginebook.store import read_json
from enginebook.study import Study


def forget_damaged(study: Study, plan: Plan, outputs: Path) -> list[str]:
    """Remove results that cannot be read and what dead runs left; return what was damaged.

    The caller holds the outputs folder: work in progress of others would be taken for a leftover.
    """
    return _damaged_stages(plan, outputs) + _damaged_cells(study, plan, outputs)


def is_whole(path: Path) -> bool:
    """Return whether a JSON or parquet file is there and can be read to its end.

    A parquet file is read as a whole: its footer tells nothing of damage in the middle.
    """
    try:
        if path.suffix == ".parquet":
            pl.read_parquet(path)
        else:
            read_json(path)
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    return True


def _damaged_stages(plan: Plan, outputs: Path) -> list[str]:
    found = []
    for stage in plan.stages:
        folder = outputs / stage.folder
        broken = [f for f in PROMISED[stage.kind] if _is_broken(folder / f)]
        for name in broken:
            (folder / name).unlink()
            found.append(f"{stage.name}: {name} is damaged; the stage runs again")
        if broken:
            (outputs / stage.marker).unlink(missing_ok=True)
    return found


def _is_broken(path: Path) -> bool:
    return path.is_file() and not is_whole(path)


def _damaged_cells(study: Study, plan: Plan, outputs: Path) -> list[str]:
    found = []
    for engine, cell in all_cells(study):
        folder = cell_folder(study, plan, outputs, cell=cell, engine=engine)
        for left in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(left, ignore_errors=True)
        if not folder.is_dir() or _cell_is_whole(folder):
            continue
        shutil.rmtree(folder)
        stage = plan.stage(f"load-{engine.name}-b{cell.block}")
        for name in (stage.marker, f"{stage.folder}/load.json"):
            (outputs / name).unlink(missing_ok=True)
        found.append(f"{engine.name} block {cell.block}: {cell.label} is damaged; taken again")
    return found


def _cell_is_whole(folder: Path) -> bool:
    facts = read_cell(folder)
    if facts is None:
        return False
    if facts["status"] != "ok":
        return True  # a failure is a result without records
    records = {"requests.parquet", *(p.name for p in folder.glob("*.parquet"))}
    return all(is_whole(folder / name) for name in records)
