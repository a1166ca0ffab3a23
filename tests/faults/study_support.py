"""A small simulated study as a real process, and how to break it and to see that it is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import yaml

STUDY: dict[str, Any] = {
    "study": "broken",
    "question": "What survives?",
    "model": {"dummy": "llama-3.1-8b"},
    "engines": ["simulated"],
    "scenarios": [
        {"name": "s", "concurrency": [1, 4], "input_tokens": 16, "output_tokens": 8,
         "min_requests": 8, "requests_per_stream": 2, "warmup_per_stream": 0, "precision": None}
    ],
    "blocks": 1,
}  # fmt: skip
CELLS = 2
REQUESTS = 8
STAGES = 7
DERIVED = ("compare-", "claims-", "report-")
LIMIT_S = 150.0
GONE_WITHIN_S = 20.0
ROLES = {
    "cli": "enginebook.cli",
    "snakemake": "snakemake",
    "stage": "enginebook.pipeline.stage",
    "kernel": "ipykernel_launcher",
    "worker": "enginebook.load.worker",
    "guard": "lifecycle import guard",
    "engine": "simulated_serve.py",
}
"""What the command line of each kind of process holds."""


class Scene:
    """One study in a folder of its own.

    Every process of it carries the scene's cache folder in its environment, so that it is found
    whatever became of its parents.
    """

    def __init__(self, folder: Path, outputs: Path | None = None) -> None:
        self.folder = folder
        self.outputs = outputs or folder / "outputs"
        self.params = folder / "broken.yaml"
        self.params.write_text(yaml.safe_dump(STUDY))
        self.cache = folder / "cache"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ENGINEBOOK_")}
        self.environ = {**kept, "ENGINEBOOK_CACHE": str(self.cache)}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start `enginebook run`."""
        argv = [sys.executable, "-m", "enginebook.cli", "run", str(self.params), "--output"]
        return subprocess.Popen(
            [*argv, str(self.outputs), *words], cwd=self.folder, env=self.environ, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str]:
        """Run the study to its end; return exit status and what it said."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, said

    def processes(self, role: str = "") -> list[psutil.Process]:
        """Return this study's living processes, all or those of one role."""
        found = []
        mark = str(self.cache)
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get("ENGINEBOOK_CACHE") != mark:
                    continue
                line = " ".join(process.cmdline())
                if process.status() != psutil.STATUS_ZOMBIE and ROLES.get(role, "") in line:
                    found.append(process)
        return found

    def await_role(self, role: str, process: subprocess.Popen[str]) -> psutil.Process | None:
        """Wait until a process of a role lives; None when the run ended before."""
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < deadline:
            if found := self.processes(role):
                return found[0]
            time.sleep(0.02)
        return None

    def await_load(self, process: subprocess.Popen[str]) -> list[psutil.Process]:
        """Wait until an engine is under load, and return it.

        The calibration of the host has load workers and no engine, a launch an engine and none.
        """
        until(lambda: self.processes("worker") and self.processes("engine"), LIMIT_S)
        assert process.poll() is None
        return self.processes("engine")

    def assert_nothing_lives(self) -> None:
        """Within seconds no process of the study is left."""
        until(lambda: not self.processes(), GONE_WITHIN_S)
        assert [p.cmdline() for p in self.processes()] == []

    def assert_whole(self) -> None:
        """Everything planned is there, once, with exact counts; nothing of broken runs is left."""
        (run_folder,) = (self.outputs / "runs").iterdir()
        outcome = json.loads((run_folder / "manifest.json").read_text())["outcome"]
        assert outcome["exit_status"] == 0
        assert [s["state"] for s in outcome["stages"]] == ["done"] * STAGES
        assert Path(outcome["report"]).is_file()
        folders = list((self.outputs / "cells").iterdir())  # dot names count, too
        assert len(folders) == CELLS, folders
        load = json.loads((run_folder / "load-simulated-b0" / "load.json").read_text())
        assert sorted(load["cells"]) == sorted(f.name for f in folders)
        assert load["failed"] == []
        for folder in folders:
            assert json.loads((folder / "cell.json").read_text())["status"] == "ok"
            requests = pl.read_parquet(folder / "requests.parquet")
            assert requests.height == REQUESTS
        stages = [s.name for s in (self.outputs / "stages").iterdir()]
        planned = {s["name"] for s in outcome["stages"]}
        assert planned <= {name.rpartition("-")[0] for name in stages}
        # A run that lost a stage derives a report of what is left; that one stays beside the whole.
        more = [s for s in stages if not s.startswith(DERIVED)]
        assert len(more) == STAGES - len(DERIVED), stages

    def end(self) -> None:
        """End what a failed test left."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()


def until(look: Callable[[], object], limit_s: float) -> None:
    """Wait until something is so, or the limit is over."""
    deadline = time.monotonic() + limit_s
    while not look() and time.monotonic() < deadline:
        time.sleep(0.1)


def halve(path: Path) -> None:
    """Leave the first half of a file, as a power cut may."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
