"""Rules for notebooks that a machine can check."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest

from enginebook.paths import notebooks_dir, params_dir, project_root
from enginebook.pipeline.parameters import declared_parameters
from enginebook.pipeline.plan import NOTEBOOK_OF
from enginebook.study import Study
from enginebook.study_file import read_yaml

NOTEBOOKS = sorted(notebooks_dir().glob("*.ipynb"))
MOST_CELLS, MOST_LINES, MOST_PARAMETER_LINES = 30, 12, 18
pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[Any]:
    return [c for c in read(path).cells if c.cell_type == "code"]


def parameters_cell(path: Path) -> Any:
    (cell,) = [c for c in read(path).cells if "parameters" in c.metadata.get("tags", [])]
    return cell


def test_it_is_one_of_the_seven(path: Path) -> None:
    assert path.name in NOTEBOOK_OF.values()
    assert len(NOTEBOOKS) == len(NOTEBOOK_OF)


def test_it_is_valid_and_of_a_readable_length(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= MOST_CELLS
    assert notebook.metadata.kernelspec.name == "python3"


def test_code_cells_are_thin(path: Path) -> None:
    for cell in code_cells(path):
        most = MOST_PARAMETER_LINES if "parameters" in cell.metadata.get("tags", []) else MOST_LINES
        assert len(cell.source.splitlines()) <= most, cell.source
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)), cell.source
        assert "sys.path" not in cell.source


def test_it_holds_no_outputs_and_no_traces_of_a_run(path: Path) -> None:
    notebook = read(path)
    assert "papermill" not in notebook.metadata
    for cell in code_cells(path):
        assert cell.outputs == []
        assert cell.execution_count is None
        assert not {"papermill", "execution"} & set(cell.metadata)


def test_it_starts_with_a_title_and_ends_with_what_next(path: Path) -> None:
    cells = read(path).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    assert cells[-1].cell_type == "markdown"
    assert cells[-1].source.startswith("**What next:**")
    assert "**What people change first:**" in cells[1].source


def test_parameters_are_annotated_literals_with_a_comment_each(path: Path) -> None:
    source = parameters_cell(path).source
    lines = source.splitlines()
    for node in ast.parse(source).body:
        assert isinstance(node, ast.AnnAssign), ast.unparse(node)
        assert node.value is not None
        ast.literal_eval(node.value)
        assert "  # " in lines[node.lineno - 1], lines[node.lineno - 1]


def test_defaults_are_the_quickstart_study(path: Path) -> None:
    values: dict[str, Any] = {}
    exec(parameters_cell(path).source, values)
    quickstart = read_yaml(params_dir() / "quickstart.yaml")
    for name, value in quickstart.items():
        assert values[name] == value, name


def test_every_study_key_is_declared_so_that_papermill_f_works(path: Path) -> None:
    declared = set(declared_parameters(path))
    assert set(Study.model_fields) <= declared
    assert declared - set(Study.model_fields) <= {"engine", "block"}


def test_links_to_other_notebooks_lead_somewhere(path: Path) -> None:

    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([^)#:]+\.ipynb)\)", cell.source):
                assert (path.parent / target).is_file(), target


def test_the_papermill_engine_is_registered(path: Path) -> None:
    project = tomllib.loads((project_root() / "pyproject.toml").read_text())["project"]
    assert "enginebook" in project["entry-points"]["papermill.engine"]
