"""The report's notebook: short, translated, and naming only what the report offers."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from enginebook import report
from enginebook.paths import project_root
from enginebook.report import charts, tables
from enginebook.report.page import HIDDEN, translated

NOTEBOOK = project_root() / "notebooks" / "60_report.ipynb"
MOST_CELLS, MOST_LINES = 30, 12


@pytest.fixture(scope="module")
def shown() -> list[Any]:
    """Return the cells that a reader of the page sees."""
    node = nbformat.read(Path(NOTEBOOK), as_version=4)
    assert len(node.cells) <= MOST_CELLS
    return [c for c in node.cells if HIDDEN.isdisjoint(c.metadata.get("tags", []))]


def test_every_text_has_a_translation(shown: list[Any]) -> None:
    texts = [cell.source for cell in shown if cell.cell_type == "markdown"]
    assert len(texts) > 10
    for text in texts:
        assert re.search(r"[\u4e00-\u9fff]", translated(text, "zh")), text[:60]


def test_cells_are_short_and_name_what_there_is(shown: list[Any]) -> None:
    codes = [cell.source for cell in shown if cell.cell_type == "code"]
    assert all(len(code.splitlines()) <= MOST_LINES for code in codes)
    named = {
        (node.value.id, node.attr)
        for code in codes
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert {n for m, n in named if m == "charts"} == set(charts.__all__) - {"Drawing"}
    assert {n for m, n in named if m == "tables"} == set(tables.__all__) - {
        "Column", "Value", "table",
    }  # fmt: skip
    assert any("decision_guide(data)" in code for code in codes)
    assert callable(report.decision_guide)
