"""The load processes of one host, as its part of a load that several hosts make together."""

from __future__ import annotations

import io
import json
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from enginebook.errors import LoadError
from enginebook.load.control import Control, Progress

State = Literal["starting", "ready", "running", "done", "decoding", "decoded"]
_EXIT_TIMEOUT_S = 10.0


class Squad:
    """Worker processes with the numbers ``first`` to ``first + size - 1`` of all of a load's.

    Nothing here waits: the coordinator asks again and again how far they are.
    """

    def __init__(self, job: Mapping[str, Any], first: int, size: int, folder: Path) -> None:
        self.numbers = range(first, first + size)
        self.state: State = "starting"
        self.reports: list[dict[str, Any]] = []
        self._folder = folder
        self._controls: list[Control] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._waiting: set[int] = set()
        self._next: State = "ready"
        for number in self.numbers:
            self._hire(job, number)
        self._expect("ready")

    def _hire(self, job: Mapping[str, Any], number: int) -> None:
        self._controls.append(Control(self._folder / f"control-{number}", create=True))
        with (self._folder / f"worker-{number}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "enginebook.load.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._processes.append(process)
        self._tell(process, json.dumps({**job, "worker": number, "directory": str(self._folder)}))

    def _expect(self, state: State) -> None:
        self._next, self._waiting = state, set(range(len(self._processes)))

    def _tell(self, process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None  # noqa: S101 - opened as a pipe
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._died(process) from None

    def command(self, name: str, at_ns: int | None = None) -> None:
        """Begin ``warmup`` or ``measure`` at a time of this host's clock, or ``decode``."""
        if name == "measure":
            for control in self._controls:
                control.write(Progress())  # the warm-up's counters
        self.state = "decoding" if name == "decode" else "running"
        self._expect("decoded" if name == "decode" else "done")
        for process in self._processes:
            self._tell(process, name if at_ns is None else f"{name} {at_ns}")

    def look(self) -> State:
        """Return how far the processes are.

        Raises
        ------
        LoadError
            When one of them died.
        """
        for place in sorted(self._waiting):
            process = self._processes[place]
            assert process.stdout is not None  # noqa: S101 - opened as a pipe
            while place in self._waiting and select.select([process.stdout], [], [], 0)[0]:
                self._hear(place, process, process.stdout.readline())
        if not self._waiting:
            self.state = self._next
        return self.state

    def _hear(self, place: int, process: subprocess.Popen[str], line: str) -> None:
        if not line:
            raise self._died(process)
        if self._next == "decoded":
            self.reports.append(json.loads(line))
        self._waiting.discard(place)

    def progress(self) -> list[int]:
        """Return the counters of all processes together, in the order of `Progress`."""
        parts = [control.read() for control in self._controls]
        values = [
            (p.done, p.failed, p.chunks, p.first_bytes, p.first_byte_sum_ns, p.in_flight)
            for p in parts
        ]
        return [sum(column) for column in zip(*values, strict=True)]

    def finish(self) -> None:
        """Have the processes begin nothing new."""
        for control in self._controls:
            control.finish()

    def records(self) -> list[bytes]:
        """Return each process's requests, chunks and loop lags, as parquet and npy files."""
        found = []
        for n in self.numbers:
            found.append((self._folder / f"requests-{n}.parquet").read_bytes())
            found.append((self._folder / f"chunks-{n}.parquet").read_bytes())
            found.append((self._folder / f"lag-{n}.npy").read_bytes())
        return found

    def _died(self, process: subprocess.Popen[str]) -> LoadError:
        number = self.numbers[self._processes.index(process)]
        log = self._folder / f"worker-{number}.log"
        tail = log.read_text(errors="replace").strip().splitlines()[-3:] if log.exists() else []
        return LoadError(
            f"load process {number} died: {' | '.join(tail) or 'it left no message'}",
            "look for an out-of-memory kill, or for a limit on processes or open files",
        )

    def end(self) -> None:
        """Leave no process behind, whatever happened."""
        for control in self._controls:
            control.stop()
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        for process in self._processes:
            try:
                process.wait(timeout=_EXIT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for control in self._controls:
            control.close()


def lags_of(file: io.BytesIO) -> np.ndarray:
    """Return the loop lags of one process, in ns."""
    return np.asarray(np.load(file, allow_pickle=False), np.int64)
