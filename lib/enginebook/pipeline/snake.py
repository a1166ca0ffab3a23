"""Snakemake as an owned process: it, its jobs, their kernels and engines end with this process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from enginebook.lifecycle import owned
from enginebook.lifecycle.owned import OwnedProcess

SNAKEFILE = Path(__file__).with_name("Snakefile")
CORES = 2
"""Jobs at once; the measuring ones are further limited to one by the resource ``machine``."""


class Snake:
    """Runs the plan; a context manager that leaves nothing behind.

    The guard that owns engines owns Snakemake too, so that even ``kill -9`` of ``enginebook run``
    ends every notebook and engine within seconds.
    """

    def __init__(
        self,
        *,
        plan_file: Path,
        outputs: Path,
        directory: Path,
        exclusive: Sequence[str],
        executor: str = "local",
    ) -> None:
        self.argv = [
            *(sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE)),
            *("--directory", str(outputs), "--executor", executor),
            *("--cores", str(CORES), "--jobs", str(CORES), "--resources", "machine=1"),
            *("--scheduler", "greedy", "--rerun-triggers", "mtime", "--rerun-incomplete"),
            # Our own lock is dropped by the kernel with its holder; Snakemake's would be left over.
            *("--nolock", "--keep-going", "--nocolor", "--quiet", "host"),
            *("--config", f"plan={plan_file}", f"exclusive={','.join(exclusive)}"),
        ]
        self.directory = directory
        self._process: OwnedProcess | None = None

    @property
    def log(self) -> Path:
        """Return what Snakemake printed."""
        return self.directory / "engine.log"

    def __enter__(self) -> Self:
        self._process = owned.start(
            self.argv, env={**os.environ, "PYTHONUNBUFFERED": "1"}, directory=self.directory
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.stop()

    def running(self) -> bool:
        """Return whether Snakemake still works."""
        return self._process is not None and self._process.alive()

    def stop(self, jobs: Iterable[int], grace_s: float) -> None:
        """End the run in order: no new jobs, then the running ones, then whatever is left.

        Parameters
        ----------
        jobs
            Process ids of the running stages; each shuts its kernel down and saves its notebook.
        grace_s
            How long they may take.
        """
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)
        for pid in jobs:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.1)
        self._process.stop()
