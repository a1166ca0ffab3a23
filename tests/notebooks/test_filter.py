"""Outputs never land in git: what tools/setup.sh sets up strips them, in a real repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output

from enginebook.paths import notebooks_dir, project_root

ROOT = project_root()
pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="needs git")


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Give a repository with our attributes and the filter, written by the lines of setup.sh."""
    git(tmp_path, "init", "-q")
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    lines = (ROOT / "tools" / "setup.sh").read_text().split("# Outputs never land in git", 1)[1]
    lines = lines.split("\n", 1)[1]
    venv = tmp_path / ".venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(sys.executable)
    (tmp_path / ".gitignore").write_text(".venv\n")
    script = f"set -eu\nvenv=.venv\n{lines}\n"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True)
    return tmp_path


def test_outputs_are_stripped_when_a_notebook_is_added(repository: Path) -> None:
    # The interpreter of a link has no packages of its own, so the filter gets this one's.
    clean = git(repository, "config", "filter.nbstripout.clean").strip()
    git(repository, "config", "filter.nbstripout.clean",
        clean.replace(str(repository / ".venv/bin/python"), sys.executable))  # fmt: skip
    notebook = nbformat.read(notebooks_dir() / "00_host.ipynb", as_version=4)
    shown = [new_output("stream", text="seen in one run\n")]
    notebook.cells.append(new_code_cell("1 + 1", outputs=shown, execution_count=3))
    for place in ("notebooks", "docs/evidence/x/notebooks"):
        (repository / place).mkdir(parents=True)
        nbformat.write(notebook, repository / place / "00_host.ipynb")
    git(repository, "add", "-A")
    assert "seen in one run" not in git(repository, "show", ":notebooks/00_host.ipynb")
    assert "seen in one run" in git(repository, "show", ":docs/evidence/x/notebooks/00_host.ipynb")


def test_our_notebooks_pass_the_filter_unchanged() -> None:
    for path in sorted(notebooks_dir().glob("*.ipynb")):
        argv = [sys.executable, "-m", "nbstripout", "--keep-id"]
        with path.open("rb") as file:
            done = subprocess.run(argv, stdin=file, check=True, capture_output=True)
        assert done.stdout == path.read_bytes(), path.name
