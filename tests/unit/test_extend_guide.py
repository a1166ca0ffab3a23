"""docs/extend.md followed literally in a copy of the repository: files written, commands run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from enginebook.paths import project_root

ROOT = project_root()
GUIDE = ROOT / "docs" / "extend.md"
COPIED = ("lib", "params", "notebooks", "tests/unit/claims", "tests/unit/report", "pyproject.toml")
BLOCK = re.compile(r"(?:<!-- (?P<order>.+?) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```\n", re.DOTALL)
PROGRAMS = {
    ".venv/bin/enginebook": [sys.executable, "-m", "enginebook.cli"],
    ".venv/bin/python": [sys.executable],
}
NOT_SHARED = ("PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS", "ENGINEBOOK_OUTPUTS", "ENGINEBOOK_PLAN")


@dataclass(frozen=True)
class Step:
    """A block of the guide: what is done with it, to which file, at which line."""

    order: str
    kind: str
    body: str

    @property
    def is_command(self) -> bool:
        return self.kind == "sh"

    def place(self) -> tuple[str, str, str]:
        """Return (verb, path, line); empty where the order names none."""
        verb, _, rest = self.order.partition(": ")
        path, _, line = rest.partition(": ")
        return verb, path, line


def steps() -> Iterator[Step]:
    for found in BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
        yield Step(found["order"] or "", found["kind"], found["body"])


def obey(step: Step, root: Path) -> None:
    """Do with a block what the comment before it says."""
    verb, name, line = step.place()
    path = root / name
    if verb == "file":
        assert not path.exists(), f"{name} is there already"
        path.write_text(step.body, encoding="utf-8")
    elif verb == "append":
        path.write_text(path.read_text(encoding="utf-8") + step.body, encoding="utf-8")
    elif verb == "after":
        text = path.read_text(encoding="utf-8")
        assert text.count(f"{line}\n") == 1, f"{name} does not hold {line!r} once"
        path.write_text(text.replace(f"{line}\n", f"{line}\n{step.body}"), encoding="utf-8")
    elif verb == "answers":
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("answers: [", f"answers: [{line}, "), encoding="utf-8")
    else:
        assert step.is_command, f"a block of {step.kind} without an order: {step.order!r}"


def run(body: str, root: Path) -> str:
    """Run a block's commands one by one, with the copy's package in front of the installed one."""
    inherited = {k: v for k, v in os.environ.items() if k not in NOT_SHARED}
    own = {"PYTHONPATH": str(root / "lib"), "ENGINEBOOK_ROOT": str(root)}
    said = []
    for line in body.strip().splitlines():
        program, *arguments = shlex.split(line)
        argv = [*PROGRAMS[program], *arguments]
        done = subprocess.run(
            argv, cwd=root, env=inherited | own, capture_output=True, text=True, timeout=500,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        said.append(done.stdout)
    return "\n".join(said)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    skip = shutil.ignore_patterns("__pycache__", "*.lock")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
        else:
            shutil.copy2(ROOT / name, tmp_path / name)
    for lock in (ROOT / "params" / "engines").glob("*.lock"):
        (tmp_path / "params" / "engines" / lock.name).symlink_to(lock)
    return tmp_path


def follow(root: Path, *, long: bool) -> list[str]:
    """Follow the guide from top to bottom; return what each block of commands printed."""
    said = []
    for step in steps():
        obey(step, root)
        if step.is_command and (long or step.order != "long"):
            said.append(run(step.body, root))
    return said


def test_the_guide_can_be_followed_literally(copy: Path) -> None:
    engines, preview, claims, one, chart = follow(copy, long=False)
    assert "tortoise" in engines
    assert "long_answers" in preview or "tortoise" in preview
    assert "[impossible]" in claims
    assert "At one stream all engines are alike" in one
    assert " passed" in chart


@pytest.mark.soak
def test_the_guides_study_runs_too(copy: Path) -> None:
    said = follow(copy, long=True)
    assert len(said) == 6
    assert list((copy / "outputs" / "reports").glob("tortoise*.html"))
