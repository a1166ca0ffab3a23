"""What failed is taken again when that is asked for, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginebook.pipeline.cells import all_cells, cell_folder, forget_failed_cells
from enginebook.pipeline.plan import Plan, make_plan
from enginebook.store import write_json
from enginebook.study import Study
from enginebook.study_file import load_study


@pytest.fixture
def done(checkout: Path) -> tuple[Study, Plan, Path]:
    """Return a study whose every stage and cell is done."""
    study, parameters = load_study(checkout / "params" / "mini.yaml")
    plan, outputs = make_plan(study, parameters, "host-a"), checkout / "outputs"
    for stage in plan.stages:
        (outputs / stage.marker).parent.mkdir(parents=True, exist_ok=True)
        (outputs / stage.marker).write_text("{}")
    for engine, cell in all_cells(study):
        folder = cell_folder(study, plan, outputs, cell=cell, engine=engine)
        write_json(folder / "cell.json", {"status": "ok"})
    for stage in plan.of_kind("launch"):
        write_json(outputs / stage.folder / "launch.json", {"starts": []})
    return study, plan, outputs


def missing(plan: Plan, outputs: Path) -> set[str]:
    return {s.name for s in plan.stages if not (outputs / s.marker).is_file()}


def test_without_a_failure_nothing_is_forgotten(done: tuple[Study, Plan, Path]) -> None:
    study, plan, outputs = done
    assert forget_failed_cells(study, plan, outputs) == []
    assert missing(plan, outputs) == set()


def test_a_failed_cell_goes_with_its_stage_and_what_follows(done: tuple[Study, Plan, Path]) -> None:
    study, plan, outputs = done
    engine, cell = next((e, c) for e, c in all_cells(study) if c.block == 1)
    folder = cell_folder(study, plan, outputs, cell=cell, engine=engine)
    write_json(folder / "cell.json", {"status": "failed", "error": "out of memory"})
    assert forget_failed_cells(study, plan, outputs) == [f"{engine.name} block 1: {cell.label}"]
    assert not folder.exists()
    assert missing(plan, outputs) == {f"load-{engine.name}-b1", "compare", "claims", "report"}
    kept = [cell_folder(study, plan, outputs, cell=c, engine=e) for e, c in all_cells(study)]
    assert sum(f.is_dir() for f in kept) == len(kept) - 1


@pytest.mark.parametrize(
    ("source", "forgotten"),
    [
        ("failed: the engine died 2.3 s after its start", ["launch-two: serve, warm"]),
        ("started before on this host", []),  # a phase that the engine does not tell
    ],
)
def test_a_failed_start_is_taken_again(
    done: tuple[Study, Plan, Path], source: str, forgotten: list[str]
) -> None:
    study, plan, outputs = done
    stage = plan.stage("launch-two")
    start = {"scenario": "serve", "arm": "warm", "seconds": None, "source": source}
    write_json(outputs / stage.folder / "launch.json", {"starts": [start]})
    assert forget_failed_cells(study, plan, outputs) == forgotten
    gone = {"launch-two", "compare", "claims", "report"} if forgotten else set()
    assert missing(plan, outputs) == gone
    assert (outputs / stage.folder / "launch.json").is_file() is not bool(forgotten)
