"""A notebook that owns an engine dies in every way papermill knows: the engine goes with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest

from enginebook.lifecycle import leases, proctree

FAKE = Path(__file__).parents[1] / "unit" / "lifecycle" / "fake_engine.py"
LIMIT_S = 15.0
START = """
import os, sys, time
from pathlib import Path
from enginebook.lifecycle import leases, owned

folder = Path({folder!r})
lease = leases.Lease.new("fake", "fake", 0, folder)
process = owned.start(
    [sys.executable, "-S", {fake!r}, "--fault", "fork,setsid,double-fork"],
    env={{**os.environ, owned.TOKEN: lease.token}},
    directory=folder,
    lease=leases.lease_path(lease.token),
    about=lease.about(),
    orphan_grace_s=1.0,
)
while "listening" not in process.log.read_text():
    time.sleep(0.05)
(folder / "kernel").write_text(str(os.getpid()))
"""


class Run:
    """papermill on a notebook whose first cell starts an engine and whose second one is given."""

    def __init__(self, folder: Path, second_cell: str, *options: str) -> None:
        self.folder = folder
        notebook = nbformat.v4.new_notebook()
        start = START.format(folder=str(folder), fake=str(FAKE))
        notebook.cells = [nbformat.v4.new_code_cell(s) for s in (start, second_cell)]
        nbformat.write(notebook, folder / "in.ipynb")
        self.papermill = subprocess.Popen(
            [
                *(sys.executable, "-m", "papermill", "-k", "python3", "--no-progress-bar"),
                *options,
                *(str(folder / "in.ipynb"), str(folder / "out.ipynb")),
            ],
            env={**os.environ, "ENGINEBOOK_CACHE": str(folder / "cache")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.kernel = self._wait_for_kernel()
        facts = json.loads((folder / "guard.json").read_text())
        self.engine = [
            *proctree.descendants(facts["guard_pid"]),
            proctree.Process(facts["sentinel_pid"], 0, "", facts["sentinel_identity"]),
        ]

    def _wait_for_kernel(self) -> int:
        deadline = time.monotonic() + 60
        while not (self.folder / "kernel").exists():
            assert time.monotonic() < deadline, "the notebook did not start its engine"
            assert self.papermill.poll() is None, "papermill ended too early"
            time.sleep(0.05)
        time.sleep(0.3)
        return int((self.folder / "kernel").read_text())

    def left(self) -> list[proctree.Process]:
        return [p for p in self.engine if proctree.is_alive(p.pid, p.identity)]

    def assert_gone(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.left()
        assert leases.all_noted() == []

    def end(self) -> None:
        self.papermill.kill()
        self.papermill.wait()
        for row in self.left():
            with suppress(ProcessLookupError):
                os.kill(row.pid, signal.SIGKILL)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    runs = []

    def start(second_cell: str = "time.sleep(120)", *options: str) -> Run:
        runs.append(Run(tmp_path, second_cell, *options))
        return runs[-1]

    yield start
    for started in runs:
        started.end()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_papermill_is_ended(run, number):
    at = run()
    assert len(at.engine) == 5
    at.papermill.send_signal(number)
    at.papermill.wait(LIMIT_S)
    at.assert_gone()


def test_kernel_is_killed(run):
    at = run()
    os.kill(at.kernel, signal.SIGKILL)
    at.assert_gone()


@pytest.mark.slow
def test_kernel_dies_of_itself(run):
    at = run("time.sleep(1); os._exit(3)")
    at.assert_gone()


@pytest.mark.slow
def test_a_cell_takes_too_long(run):
    at = run("time.sleep(120)", "--execution-timeout", "4")
    at.assert_gone()


@pytest.mark.slow
def test_a_cell_fails(run):
    at = run("time.sleep(1); 1 / 0")
    at.assert_gone()


@pytest.mark.slow
def test_the_notebook_ends_and_forgot_its_engine(run):
    at = run("time.sleep(1)")
    at.assert_gone()
    assert at.papermill.wait(LIMIT_S) == 0
