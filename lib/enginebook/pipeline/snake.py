"""Snakemake as an owned process: it, its jobs, their kernels and engines end with this process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from enginebook.errors import EngineError
from enginebook.lifecycle import owned
from enginebook.lifecycle.owned import OwnedProcess
from enginebook.pipeline.executors import Executor
from enginebook.pipeline.executors_profile import profile_text
from enginebook.pipeline.executors_resources import Resources
from enginebook.pipeline.executors_store import keepers
from enginebook.pipeline.plan import Plan
from enginebook.store import write_json, write_text

SNAKEFILE = Path(__file__).with_name("Snakefile")
ASKED_FILE = "asked.json"
LEFTOVER_TIMEOUT_S = 60.0


class Snake:
    """Runs the plan; a context manager that leaves nothing behind.

    The guard that owns engines owns Snakemake too, so that even ``kill -9`` of ``enginebook run``
    ends every notebook and engine within seconds, also those that run as jobs of a cluster.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        plan_file: Path,
        outputs: Path,
        directory: Path,
        exclusive: Sequence[str],
        executor: Executor,
        resources: Mapping[str, Resources],
        store: str | None = None,
    ) -> None:
        self.directory = directory
        self.executor = executor
        targets = ["study", *keepers(plan)] if store else ["study"]
        self._asked: dict[str, Any] = executor.table(plan, resources)
        self.settings = [
            *("--snakefile", str(SNAKEFILE)),
            *("--directory", str(outputs), *executor.arguments()),
            *("--scheduler", "greedy", "--rerun-triggers", "mtime", "--rerun-incomplete"),
            # Our own lock is dropped by the kernel with its holder; Snakemake's would be left over.
            *("--nolock", "--keep-going", "--nocolor", "--quiet", "host"),
            *("--config", f"plan={plan_file}", f"exclusive={','.join(exclusive)}"),
            *(f"asked={directory / ASKED_FILE}", f"store={store or ''}"),
        ]
        self.argv = [sys.executable, "-m", "snakemake", *targets, *self.settings]
        self._process: OwnedProcess | None = None

    @property
    def log(self) -> Path:
        """Return what Snakemake printed."""
        return self.directory / "engine.log"

    def __enter__(self) -> Self:
        write_json(self.directory / ASKED_FILE, self._asked)
        profile = self.directory / "profile"
        environment = self.executor.environment()
        text = profile_text(self.settings, str(profile), environment)
        write_text(profile / "config.yaml", text)
        # Jobs of a run whose host went down would measure the same stages a second time.
        self.executor.end_jobs(LEFTOVER_TIMEOUT_S)
        self._process = owned.start(
            self.argv,
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            directory=self.directory,
            cleanup=self.executor.cleanup(),
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
            Process ids of the stages that run on this machine; each shuts its kernel down and
            saves its notebook. Those on other machines are ended by the executor.
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
        try:
            self.executor.end_jobs(grace_s)
        except EngineError as error:  # the rest of the run is ended all the same
            print(f"{error}", file=sys.stderr, flush=True)
        while self.running() and time.monotonic() < deadline and self.executor.name == "local":
            time.sleep(0.1)
        self._process.stop()
