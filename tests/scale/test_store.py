"""Results that meet in an object store: kept as stages end, fetched elsewhere, never mixed up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_s3 import fake_s3

from enginebook.errors import EngineError, InputError
from enginebook.pipeline.cells import all_cells, cell_folder
from enginebook.pipeline.executors_store import check_store, fetch, keep, pack, unpack
from enginebook.pipeline.plan import Plan, make_plan
from enginebook.pipeline.state import forget_outdated_markers, is_done
from enginebook.store import write_json
from enginebook.study import Study

PLUGINS = str(Path(__file__).with_name("plugins"))
STUDY = Study.model_validate(
    {
        "study": "t",
        "question": "?",
        "model": "smollm2-135m-instruct",
        "engines": [{"name": "x", "recipe": "simulated"}],
        "scenarios": [{"name": "s", "kind": "closed_loop", "concurrency": [1, 2]}],
        "blocks": 2,
    }
)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    paths = [PLUGINS, *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("SHELF_FOLDER", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


@pytest.fixture
def plan() -> Plan:
    return make_plan(STUDY, {}, "h")


def done(plan: Plan, outputs: Path) -> Path:
    """Lay out what a study leaves; return the plan's file."""
    for stage in plan.stages:
        write_json(outputs / stage.marker, {"digest": stage.digest, "name": stage.name})
        (outputs / stage.folder / "data").mkdir()
        (outputs / stage.folder / "data" / "x.bin").write_bytes(stage.name.encode())
        (outputs / stage.folder / "running.json").write_text("{}")
    for engine, cell in all_cells(STUDY):
        folder = cell_folder(STUDY, plan, outputs, cell=cell, engine=engine)
        write_json(folder / "cell.json", {"status": "ok", "block": cell.block})
    write_json(outputs / "plan.json", plan.to_json())
    return outputs / "plan.json"


def tree(outputs: Path) -> dict[str, bytes]:
    found = [*outputs.glob("stages/**/*"), *outputs.glob("cells/**/*")]
    files = [p for p in found if p.is_file() and p.name != "running.json"]
    return {str(p.relative_to(outputs)): p.read_bytes() for p in files}


def elsewhere(plan: Plan, folder: Path) -> tuple[Path, Path]:
    folder.mkdir()
    write_json(folder / "plan.json", plan.to_json())
    return folder / "plan.json", folder


def assert_what_is_kept_comes_back(plan: Plan, store: str, tmp_path: Path) -> None:
    outputs = tmp_path / "here"
    keep(plan, done(plan, outputs), outputs, store)
    file, other = elsewhere(plan, tmp_path / "there")
    assert fetch(plan, file, other, store) == [s.name for s in plan.stages]
    assert tree(other) == tree(outputs)
    assert fetch(plan, file, other, store) == []
    assert not list(other.glob(".fetch-*"))


def test_what_is_kept_comes_back_elsewhere(plan: Plan, shelf: Path, tmp_path: Path) -> None:
    assert_what_is_kept_comes_back(plan, "shelf://name/prefix", tmp_path)
    kept = {p.stem: p for p in (shelf / "name" / "prefix").iterdir()}
    assert set(kept) == {f"{s.name}-{s.digest}" for s in plan.stages}
    # Where an engine still has something to measure, it is installed.
    kept[f"load-x-b0-{plan.stage('load-x-b0').digest}"].unlink()
    file, third = elsewhere(plan, tmp_path / "third")
    fetched = fetch(plan, file, third, "shelf://name/prefix")
    assert {s.name for s in plan.stages} - set(fetched) == {"load-x-b0", "install-x"}


@pytest.mark.skipif(
    find_spec("snakemake_storage_plugin_s3") is None,
    reason="pip install snakemake-storage-plugin-s3",
)
def test_what_is_kept_in_s3_comes_back(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_s3() as (url, objects):
        settings = {"ENDPOINT_URL": url, "ACCESS_KEY": "key", "SECRET_KEY": "of this test"}
        for name, value in settings.items():
            monkeypatch.setenv(f"SNAKEMAKE_STORAGE_S3_{name}", value)
        store = check_store("s3://bucket/some/prefix/")
        assert_what_is_kept_comes_back(plan, store, tmp_path)
    assert {f"bucket/some/prefix/{s.name}-{s.digest}.tar" for s in plan.stages} <= set(objects)


def test_a_store_that_fails_is_told_and_keeps_nothing_half(
    plan: Plan, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = tmp_path / "here"
    file = done(plan, outputs)
    with monkeypatch.context() as patch:
        patch.setenv("SHELF_BROKEN", "1")
        with pytest.raises(EngineError, match="the shelf is broken") as error:
            keep(plan, file, outputs, "shelf://name")
    assert "done here stays done" in error.value.remedy
    assert not list(shelf.rglob("*.tar"))
    keep(plan, file, outputs, "shelf://name")
    assert len(list(shelf.rglob("*.tar"))) == len(plan.stages)


# -- archives


def test_an_archive_holds_the_cells_of_its_stage_alone(plan: Plan, tmp_path: Path) -> None:
    done(plan, tmp_path)
    pack(plan, plan.stage("load-x-b0"), tmp_path, tmp_path / "x.tar")
    with tarfile.open(tmp_path / "x.tar") as archive:
        cells = [n for n in archive.getnames() if n.startswith("cells/")]
        assert len(cells) == 2
        assert not [n for n in archive.getnames() if n.endswith("running.json")]
    for name in cells:
        assert json.loads((tmp_path / name).read_text())["block"] == 0


def test_what_was_measured_here_stays(plan: Plan, tmp_path: Path) -> None:
    done(plan, tmp_path / "a")
    pack(plan, plan.stage("load-x-b0"), tmp_path / "a", tmp_path / "x.tar")
    with tarfile.open(tmp_path / "x.tar") as archive:
        name = next(n for n in archive.getnames() if n.startswith("cells/"))
    own = tmp_path / "b" / name
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    unpack(tmp_path / "x.tar", tmp_path / "b")
    assert own.read_text() == "mine"
    assert (tmp_path / "b" / plan.stage("load-x-b0").marker).is_file()


def test_what_derives_from_a_lost_stage_is_derived_anew(plan: Plan, tmp_path: Path) -> None:
    done(plan, tmp_path)
    forget_outdated_markers(plan, tmp_path)
    assert all(is_done(s, tmp_path) for s in plan.stages)
    (tmp_path / plan.stage("load-x-b0").marker).unlink()
    forget_outdated_markers(plan, tmp_path)
    lost = {s.name for s in plan.stages if not is_done(s, tmp_path)}
    assert lost == {"load-x-b0", "compare", "claims", "report"}


def wrong_archives(plan: Plan, folder: Path) -> Iterator[Callable[[tarfile.TarFile], None]]:
    stage = plan.stage("host")
    yield lambda archive: None
    yield lambda archive: archive.add(folder / "plan.json", "plan.json")
    yield lambda archive: archive.add(folder / "plan.json", f"{stage.folder}/x.json")
    yield lambda archive: archive.add(folder / stage.marker, "stages/host-0123456789ab/stage.json")
    yield lambda archive: archive.add(folder / stage.marker, "../stages/host/stage.json")


def test_other_archives_are_refused(plan: Plan, tmp_path: Path) -> None:
    done(plan, tmp_path / "a")
    (tmp_path / "b").mkdir()
    for number, fill in enumerate(wrong_archives(plan, tmp_path / "a")):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as archive:
            fill(archive)
        with pytest.raises((InputError, tarfile.FilterError)):
            unpack(tmp_path / f"{number}.tar", tmp_path / "b")
        assert not list((tmp_path / "b").iterdir())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/some/folder", "not the address of an object store"),
        ("s3://", "not the address of an object store"),
        ("s3://key:secret@bucket", "would stand in logs"),
        ("nowhere://bucket", "needs Snakemake's storage plugin nowhere"),
        ("gs://bucket", "pip install snakemake-storage-plugin-gcs"),
    ],
)
def test_wrong_stores(url: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        check_store(url)
    assert said in str(error.value)
    assert "secret@" not in str(error.value)


# -- a whole run


def run(root: Path, outputs: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "enginebook.cli", "run", "params/mini.yaml", "--output", outputs]
    words += ["--store", "shelf://name", "--json", "out.json"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((root / "out.json").read_text()))


@pytest.mark.timeout(600)
def test_a_second_machine_measures_what_the_store_has_not(checkout: Path, shelf: Path) -> None:
    file = checkout / "params" / "mini.yaml"
    small = {"engines": [{"name": "one", "recipe": "fake"}], "blocks": 1}
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | small))
    first = run(checkout, "here")
    assert len(list((shelf / "name").glob("*.tar"))) == len(first["stages"])
    (lost,) = shelf.glob("name/load-one-b0-*.tar")
    lost.unlink()
    second = run(checkout, "there")
    diary = (checkout / "there" / "diary.txt").read_text().splitlines()
    started = {line.split()[1] for line in diary if line.startswith("start ")}
    # The engine's environment is made here too; what was measured there is not taken again.
    assert started == {"install-one", "load-one-b0", "compare", "claims", "report"}
    before, after = [{s["name"]: s for s in run["stages"]} for run in (first, second)]
    for name in ("host", "launch-one"):
        assert after[name] == before[name]
    assert Path(second["report"]).is_file()
    assert lost.is_file()
    # A marker that a power cut left half: the store has the stage, and nothing is measured again.
    (marker,) = (checkout / "there").glob("stages/load-one-b0-*/stage.json")
    marker.write_bytes(marker.read_bytes()[:40])
    run(checkout, "there")
    again = (checkout / "there" / "diary.txt").read_text().splitlines()[len(diary) :]
    assert not [line for line in again if line.startswith("start load-")]
    outcome = json.loads(next((checkout / "there").glob("runs/*/manifest.json")).read_text())
    assert outcome["outcome"]["exit_status"] == 0
