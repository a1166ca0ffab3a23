"""Results that cannot be read are found before a run goes on; whole ones are left alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from study_support import Scene, halve

from enginebook.pipeline.cells import all_cells, cell_folder
from enginebook.pipeline.damage import forget_damaged
from enginebook.pipeline.manifest import start_manifest
from enginebook.pipeline.plan import PROMISED, Plan, make_plan
from enginebook.store import read_json, write_json
from enginebook.study import Study
from enginebook.study_file import load_study

FRAME = pl.DataFrame({"a": range(1000)})


class Results:
    """All that a finished study leaves, with stand-ins for what it measured."""

    def __init__(self, folder: Path) -> None:
        scene = Scene(folder)
        self.study: Study
        self.study, parameters = load_study(scene.params)
        self.plan: Plan = make_plan(self.study, parameters, "host")
        self.outputs = scene.outputs
        for stage in self.plan.stages:
            write_json(self.outputs / stage.marker, {"digest": stage.digest})
            for name in PROMISED[stage.kind]:
                path = self.outputs / stage.folder / name
                path.parent.mkdir(exist_ok=True)
                FRAME.write_parquet(path) if path.suffix == ".parquet" else write_json(path, [1, 2])
        self.cells = [
            cell_folder(self.study, self.plan, self.outputs, cell=cell, engine=engine)
            for engine, cell in all_cells(self.study)
        ]
        for cell in self.cells:
            write_json(cell / "cell.json", {"status": "ok"})
            FRAME.write_parquet(cell / "requests.parquet")
            FRAME.write_parquet(cell / "chunks.parquet")

    def forget(self) -> list[str]:
        return forget_damaged(self.study, self.plan, self.outputs)

    def marker(self, kind: str) -> Path:
        return self.outputs / self.plan.of_kind(kind)[0].marker


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


def test_whole_results_stay(results: Results) -> None:
    before = sorted(results.outputs.rglob("*"))
    assert results.forget() == []
    assert sorted(results.outputs.rglob("*")) == before


@pytest.mark.parametrize("name", ["cell.json", "requests.parquet", "chunks.parquet"])
def test_a_damaged_cell_is_taken_again(results: Results, name: str) -> None:
    halve(results.cells[0] / name)
    (said,) = results.forget()
    assert "is damaged; taken again" in said
    assert [c.is_dir() for c in results.cells] == [False, True]
    assert not results.marker("load").exists()
    assert results.forget() == []


@pytest.mark.parametrize("name", ["requests.parquet", "chunks.parquet"])
def test_records_that_are_damaged_in_the_middle_are_taken_again(
    results: Results, name: str
) -> None:
    path = results.cells[0] / name
    data = path.read_bytes()
    third = len(data) // 4
    path.write_bytes(data[:third] + bytes(third) + data[2 * third :])
    assert pl.read_parquet_schema(path) == FRAME.schema, "its end is whole"
    assert len(results.forget()) == 1
    assert [c.is_dir() for c in results.cells] == [False, True]


def test_a_cell_without_its_requests_is_damaged_and_a_failed_one_is_not(results: Results) -> None:
    for cell in results.cells:
        (cell / "requests.parquet").unlink()
    write_json(results.cells[1] / "cell.json", {"status": "failed"})
    assert len(results.forget()) == 1
    assert [c.is_dir() for c in results.cells] == [False, True]


@pytest.mark.parametrize("kind", list(PROMISED))
def test_a_damaged_result_of_a_stage_is_made_again(results: Results, kind: str) -> None:
    path = results.marker(kind).parent / PROMISED[kind][0]
    halve(path)
    (said,) = results.forget()
    assert "is damaged; the stage runs again" in said
    assert not path.exists()
    assert not results.marker(kind).exists()


def test_what_a_killed_run_left_of_a_cell_goes(results: Results) -> None:
    left = results.cells[0].with_name(f".{results.cells[0].name}.123")
    left.mkdir()
    assert results.forget() == []
    assert not left.exists()
    assert results.cells[0].is_dir()


def test_a_half_written_manifest_is_written_anew(results: Results) -> None:
    folder = results.outputs / "runs" / results.plan.run_id
    folder.mkdir(parents=True)
    (folder / "params.yaml").write_text("study: broken\n")
    start_manifest(folder, results.study, results.plan, {})
    halve(folder / "manifest.json")
    start_manifest(folder, results.study, results.plan, {})
    assert len(read_json(folder / "manifest.json")["starts_unix"]) == 1
