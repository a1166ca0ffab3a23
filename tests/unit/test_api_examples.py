"""The examples of docs/api.md run as they stand, and name everything that is public."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from enginebook.paths import project_root

PAGE = project_root() / "docs" / "api.md"
BLOCK = re.compile(
    r"^## (?P<title>.+?)$|^```python(?P<mark>.*?)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks() -> list[tuple[str, str, bool]]:
    """Return (section, code, whether it runs) of every block of Python."""
    found, section = [], ""
    for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if match["title"]:
            section = match["title"]
        else:
            found.append((section, match["code"], "notest" not in match["mark"]))
    return found


def test_the_page_has_an_example_of_every_part() -> None:
    titles = ["Load", "Metrics", "Serve", "Physics", "Statistics", "Claims", "Guide", "Runs"]
    assert list(dict.fromkeys(section for section, _, _ in blocks())) == titles
    assert sum(runs for _, _, runs in blocks()) >= 9


def test_the_examples_run_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "api_page"}
    for section, code, runs in blocks():
        if runs:
            exec(compile(code, f"docs/api.md: {section}", "exec"), names)


def test_what_only_finished_runs_can_show_names_things_that_exist() -> None:
    for section, code, runs in blocks():
        tree = ast.parse(code)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert runs or imports, section
        for node in imports:
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                present = hasattr(module, alias.name) or importlib.import_module(
                    f"{node.module}.{alias.name}"
                )
                assert present, f"{node.module}.{alias.name}"


def test_no_block_promises_nothing() -> None:
    """An example without an assertion shows that it runs, not that it is right."""
    silent = [section for section, code, runs in blocks() if runs and "assert " not in code]
    assert silent == []
