"""Parameters are read from the notebook's source and refused when it does not declare them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from enginebook.errors import InputError
from enginebook.pipeline.parameters import check_parameters, declared_parameters


def notebook(folder: Path, *sources: str, tags: tuple[str, ...] = ("parameters",)) -> Path:
    cells = [new_code_cell(s, metadata={"tags": list(tags)}) for s in sources]
    path = folder / "n.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_defaults_with_equals_signs_lists_and_lines_are_read(tmp_path: Path) -> None:
    path = notebook(tmp_path, 'a: str = "x=1"  # one\nb: list = [\n  1,\n]\nc: dict = {"k": "="}')
    assert declared_parameters(path) == {"a": "str", "b": "list", "c": "dict"}


@pytest.mark.parametrize("count", [0, 2])
def test_exactly_one_parameters_cell_is_wanted(tmp_path: Path, count: int) -> None:
    path = notebook(tmp_path, *["a: int = 1"] * count)
    with pytest.raises(InputError, match="exactly one"):
        declared_parameters(path)


def test_an_undeclared_name_is_refused(tmp_path: Path) -> None:
    path = notebook(tmp_path, "engine: str = 'a'")
    with pytest.raises(InputError, match="does not declare the parameter engnie"):
        check_parameters(path, {"engnie": "b"})


@pytest.mark.parametrize(
    "value", [(1, 2), float("nan"), float("inf"), {1: "a"}, Path("x"), {"a": (1,)}, {3}]
)
def test_values_that_papermill_would_bend_are_refused(tmp_path: Path, value: Any) -> None:
    path = notebook(tmp_path, "a: object = None")
    with pytest.raises(InputError, match="parameter a"):
        check_parameters(path, {"a": value})


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "x", [1, "a"], {"a": [{"b": None}]}])
def test_json_values_pass(tmp_path: Path, value: Any) -> None:
    check_parameters(notebook(tmp_path, "a: object = None"), {"a": value})
