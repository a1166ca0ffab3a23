"""The seven notebooks run over a small stored study and give the approved outputs.

The stored study (tests/data/study) was measured on a real machine with llama.cpp and vLLM; the
notebooks find its results and only read them, so no engine is started. After a wanted change:
``pytest tests/notebooks/test_golden.py --nb-force-regen``, then look at the difference in git.
Where large outputs changed, delete the golden notebook first: their difference takes minutes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
import yaml

from enginebook.paths import notebooks_dir, project_root
from enginebook.pipeline.plan import NOTEBOOK_OF, Plan

DATA = project_root() / "tests" / "data" / "study"
GOLDEN = project_root() / "tests" / "golden"
# Figures of these outputs are not the study's own but the checkout's and the moment's.
OF_THE_MOMENT = "/cells/*/outputs/*/data/image~1svg+xml"


@pytest.fixture
def stored_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a copy of the stored study and let notebooks find it."""
    outputs = tmp_path / "outputs"
    shutil.copytree(DATA / "outputs", outputs)
    monkeypatch.setenv("ENGINEBOOK_ROOT", str(DATA))
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENGINEBOOK_OUTPUTS", str(outputs))
    monkeypatch.setenv("ENGINEBOOK_PLAN", str(DATA / "plan.json"))
    return outputs


@pytest.mark.parametrize("kind", list(NOTEBOOK_OF))
def test_outputs_are_as_approved(
    kind: str, stored_study: Path, nb_regression: Any, request: pytest.FixtureRequest
) -> None:
    plan = Plan.read(DATA / "plan.json")
    stage = plan.of_kind(kind)[-1]
    parameters = yaml.safe_load((DATA / "params" / "golden.yaml").read_text())
    source = Path(__file__).parents[2] / "notebooks" / NOTEBOOK_OF[kind]
    prepared = papermill.execute_notebook(
        source, None, parameters={**parameters, **stage.parameters},
        prepare_only=True, progress_bar=False, language="python", kernel_name="python3",
    )  # fmt: skip
    golden = GOLDEN / NOTEBOOK_OF[kind]
    if golden.is_file():
        _lay_outputs(nbformat.read(golden, as_version=4), prepared)
    work = stored_study / NOTEBOOK_OF[kind]
    nbformat.write(prepared, work)
    try:
        nb_regression.check(str(work))
    finally:
        if request.config.getoption("--nb-force-regen"):
            _approve(work, golden)


def _lay_outputs(approved: Any, prepared: Any) -> None:
    for cell, old in zip(prepared.cells, approved.cells, strict=False):
        if cell.cell_type == "code":
            cell.outputs = old.get("outputs", [])


def _approve(work: Path, golden: Path) -> None:
    notebook = nbformat.read(work, as_version=4)
    notebook.metadata.pop("papermill", None)
    golden.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, golden)


def test_the_stored_study_is_small_and_names_no_machine() -> None:
    files = [p for p in DATA.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 3_000_000
    for file in files:
        if file.suffix in {".json", ".yaml"}:
            text = file.read_text()
            assert str(Path.home()) not in text or str(Path.home()) == "/"


def test_golden_notebooks_belong_to_notebooks() -> None:
    names = {p.name for p in notebooks_dir().glob("*.ipynb")}
    assert {p.name for p in GOLDEN.glob("*.ipynb")} == names
