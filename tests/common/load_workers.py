"""Load workers as processes of their own, for tests of loads from several hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from enginebook.load.remote_wire import SECRET_VARIABLE

SECRET = "a secret of these tests alone"
ENGINEBOOK = [sys.executable, "-m", "enginebook.cli"]


class Workers:
    """Load workers on this machine, ended with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, *words: str, before: tuple[str, ...] = (), at: str = "127.0.0.1", **env: str
    ) -> tuple[str, int]:
        """Start a worker that listens on a free port; return its place."""
        said = self._folder / f"worker-{len(self.processes)}.json"
        argv = [*before, *ENGINEBOOK, "load-worker", "--listen", f"{at}:0"]
        process = subprocess.Popen(
            [*argv, "--json", str(said), *words],
            env={**os.environ, SECRET_VARIABLE: SECRET, **env}, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.processes.append(process)
        deadline = time.monotonic() + 60
        while not said.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        line = str(json.loads(said.read_text())["said"][0])
        return at, int(line.rsplit(":", 1)[1])

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=30)
