"""A whole study whose notebooks print all they know: no secret and no open port comes of it.

The study is a small one of a simulated engine, in folders whose names would mean something to a
shell, to Snakemake or to a formatter.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
import yaml
from hostile_support import CANARIES, KEY, Watch, files_with, secret_environment
from nbformat.v4 import new_code_cell

from enginebook.paths import project_root

pytestmark = pytest.mark.timeout(400)
ODD = 'we\'ird "$(touch pwned)"; {x} é'
STUDY = {
    "study": "leaks",
    "question": "What do <b>notebooks</b> tell?",
    "model": {"dummy": "llama-3.1-8b"},
    "engines": ["simulated"],
    "scenarios": [
        {"name": "s", "concurrency": [1], "input_tokens": 16, "output_tokens": 4, "min_requests": 2,
         "requests_per_stream": 2, "warmup_per_stream": 0}
    ],
    "blocks": 1,
}  # fmt: skip
LEAK = """\
import os, subprocess, sys
from IPython.display import HTML, JSON, Markdown, display
from enginebook.pipeline.progress import Progress
key = os.environ["ENGINEBOOK_API_KEY"]
print(dict(os.environ))
print(key, file=sys.stderr)
os.write(2, key.encode() + b"\\n")
subprocess.run([sys.executable, "-c", "import os; print(os.environ)"])
display(HTML(f"<b title='{key}'>{key}</b>"), JSON({"key": [key]}), Markdown(key))
Progress(f"asking with {key}", 3).update(done=1)
if os.environ.get("FAIL") and __file_stage == "load":
    raise RuntimeError(f"the server refused {key}")
{"key": key}
"""


@dataclass(frozen=True)
class Studied:
    """What came of the two runs: one that fails in its load, one that goes on to the end."""

    root: Path
    outputs: Path
    failed: subprocess.CompletedProcess[str]
    done: subprocess.CompletedProcess[str]
    watch: Watch


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Studied:
    root = tmp_path_factory.mktemp("study") / ODD
    for name in ("notebooks", "params"):
        shutil.copytree(project_root() / name, root / name)
    (root / "pyproject.toml").write_text("")
    (root / "tmp").mkdir()
    (root / "params" / "leaks.yaml").write_text(yaml.safe_dump(STUDY))
    for path in (root / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        kind = path.stem.split("_", 1)[1]
        notebook.cells.append(new_code_cell(LEAK.replace("__file_stage", repr(kind))))
        nbformat.write(notebook, path)
    with Watch() as watch:
        failed, done = run(root, FAIL="yes"), run(root)
    return Studied(root, root / "outputs", failed, done, watch)


def run(root: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environ = secret_environment(
        ENGINEBOOK_ROOT=str(root), ENGINEBOOK_CACHE=str(root / "cache"), HOME=str(root / "home"),
        TMPDIR=str(root / "tmp"), **more,
    )  # fmt: skip
    words = [sys.executable, "-m", "enginebook.cli", "run", "params/leaks.yaml"]
    words += ["--output", "outputs", "--json", "outcome.json"]
    return subprocess.run(
        words, cwd=root, env=environ, capture_output=True, text=True, timeout=180, check=False
    )


def test_the_study_failed_and_then_went_on_to_its_end(study: Studied) -> None:
    assert study.failed.returncode == 1
    assert "the server refused ***" in study.failed.stderr
    assert study.done.returncode == 0, study.done.stdout + study.done.stderr
    assert "report: " in study.done.stdout


def test_odd_names_of_folders_are_names(study: Studied) -> None:
    assert not list(study.root.parent.rglob("pwned"))
    outcome = json.loads((study.root / "outcome.json").read_text())
    assert Path(outcome["report"]).parent == study.outputs / "reports"
    assert Path(outcome["report"]).is_file()


def test_the_cells_did_print_what_they_knew(study: Studied) -> None:
    """Else the tests below would prove nothing."""
    notebooks = list((study.outputs / "stages").glob("*/notebook.ipynb"))
    assert len(notebooks) == 7
    for path in notebooks:
        text = path.read_text()
        assert "ENGINEBOOK_API_KEY" in text
        assert text.count("***") > 8


def test_no_file_holds_a_secret(study: Studied) -> None:
    assert files_with(study.root, CANARIES) == []


def test_nothing_said_holds_a_secret(study: Studied) -> None:
    for told in (study.failed, study.done):
        assert not any(c in told.stdout + told.stderr for c in CANARIES)


def test_no_command_line_held_a_secret(study: Studied) -> None:
    assert study.watch.looks > 20
    assert study.watch.leaked == set()


def test_everything_listened_on_the_loopback(study: Studied) -> None:
    assert study.watch.addresses == {"127.0.0.1"}


def test_nothing_temporary_is_left(study: Studied) -> None:
    left = [p.name for p in (study.root / "tmp").iterdir()]
    assert left == []


def test_the_report_shows_the_question_as_words(study: Studied) -> None:
    (html,) = (study.outputs / "reports").glob("leaks-*.html")
    text = html.read_text()
    assert "What do &lt;b&gt;notebooks&lt;/b&gt; tell?" in text
    assert KEY not in text
