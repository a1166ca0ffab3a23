"""A checkout in miniature: seven tiny notebooks that leave what the real ones promise."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from enginebook.pipeline.plan import NOTEBOOK_OF
from enginebook.pipeline.stage import PROMISED

PARAMETERS = """\
study: str = "mini"  # name
question: str = "Which?"  # question
language: str = "en"  # language
model: str = "tiny"  # model
engines: list = []  # engines
scenarios: list = []  # scenarios
blocks: int = 1  # blocks
seed: int = 1  # seed
margin: float = 0.03  # margin
port: int = 0  # port
engine: str = "one"  # engine
block: int = 0  # block
"""
WORK = """\
import os, pathlib, time
folder = pathlib.Path(os.environ["ENGINEBOOK_STAGE_FOLDER"])
kind = {kind!r}
diary = pathlib.Path(os.environ["ENGINEBOOK_OUTPUTS"]) / "diary.txt"
with diary.open("a") as file:
    file.write(f"start {{folder.name.rsplit('-', 1)[0]}} {{time.monotonic()}}\\n")
if os.environ.get("FAIL") == kind:
    (folder / "engine.log").write_text("engine says: out of memory\\n")
    raise RuntimeError("planted failure")
time.sleep(float(os.environ.get("SLEEP_" + kind.upper(), "0")))
if os.environ.get("EMPTY") != kind:
    for name in {promised!r}:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if path.suffix == ".parquet":
            from enginebook.report import schema
            schema.empty(path.stem).write_parquet(path)
            continue
        path.write_text('{{"findings": ["One.", "Two.", "Three."]}}')
    if kind == "report":
        html = pathlib.Path(os.environ["ENGINEBOOK_OUTPUTS"]) / "reports"
        html.mkdir(exist_ok=True)
with diary.open("a") as file:
    file.write(f"end {{folder.name.rsplit('-', 1)[0]}} {{time.monotonic()}}\\n")
"""
STUDY = {
    "study": "mini",
    "question": "Which?",
    "model": "tiny",
    "engines": [{"name": "one", "recipe": "fake"}, {"name": "two", "recipe": "fake"}],
    "scenarios": [{"name": "s", "concurrency": [1, 2]}],
    "blocks": 2,
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    (root / "notebooks").mkdir(parents=True)
    (root / "params" / "engines").mkdir(parents=True)
    (root / "params" / "scenarios").mkdir()
    (root / "pyproject.toml").write_text("")
    for kind, name in NOTEBOOK_OF.items():
        parameters = new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
        work = new_code_cell(WORK.format(kind=kind, promised=PROMISED[kind]))
        notebook = new_notebook(cells=[new_markdown_cell(f"# {kind}"), parameters, work])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, root / "notebooks" / name)
    recipe = {
        "engine": "llamacpp",
        "title": "Fake",
        "version": "1.0",
        "environment": {"kind": "existing", "python": sys.executable, "distribution": "pip"},
        "model_format": "gguf",
    }
    (root / "params" / "engines" / "fake.yaml").write_text(yaml.safe_dump(recipe))
    model = {"package": "x", "version": "1", "sha256": "0" * 64}
    (root / "params" / "models.yaml").write_text(yaml.safe_dump({"models": {"tiny": model}}))
    (root / "params" / "mini.yaml").write_text(yaml.safe_dump(STUDY))
    monkeypatch.setenv("ENGINEBOOK_ROOT", str(root))
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    return root
