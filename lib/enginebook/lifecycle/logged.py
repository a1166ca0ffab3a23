"""Commands whose whole output goes to a log file while chosen lines are passed on."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from enginebook.errors import InstallError
from enginebook.lifecycle.installation import Step
from enginebook.masking import environment_mask, masked
from enginebook.plain import neutral, shortened

Progress = Callable[[str], None]
TAIL_LINES = 25
_LONGEST_LINE = 1 << 16
MOST_SHOWN = 500  # characters of a line that is passed on


def silent(_: str) -> None:
    """Take a progress line and say nothing."""


@dataclass
class Log:
    """A log file of an installation and the steps that were done so far.

    Attributes
    ----------
    keep_open
        File descriptor that every command inherits: an advisory lock on it stays held while a
        command runs on, even when this process was killed.
    """

    path: Path
    on_progress: Progress = silent
    keep_open: int | None = None
    steps: list[Step] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Write a line to the log and pass it on."""
        self.write(text)
        self.on_progress(text)

    def write(self, text: str) -> None:
        """Write a line to the log only."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(masked(text.rstrip("\n")) + "\n")

    def run(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 3600.0,
        shown: str | None = None,
    ) -> int:
        """Run a command as a step, shown as such or in other words; returns its exit status."""
        shown = shown or shlex.join(argv)
        self.write(f"$ {shown}")
        started = time.monotonic()
        status = self._stream(argv, dict(os.environ if env is None else env), timeout_s)
        seconds = time.monotonic() - started
        self.write(f"-> exit status {status} after {seconds:.1f} s")
        if status == 0:
            self.steps.append(Step(name, round(seconds, 3), shown))
        return status

    def _stream(self, argv: Sequence[str], env: dict[str, str], timeout_s: float) -> int:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=self.path.parent,
            start_new_session=True,
            pass_fds=() if self.keep_open is None else (self.keep_open,),
        )
        watchdog = threading.Timer(timeout_s, _end_group, [process.pid])
        watchdog.start()
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            self._copy(process.stdout)
            return process.wait()
        except BaseException:
            _end_group(process.pid)
            process.wait()
            raise
        finally:
            watchdog.cancel()

    def _copy(self, pipe: IO[bytes]) -> None:
        mask = environment_mask()
        with self.path.open("ab") as file:
            while raw := mask.data(pipe.readline(_LONGEST_LINE)):
                file.write(raw)
                file.flush()
                line = shortened(neutral(raw.decode(errors="replace")), MOST_SHOWN).rstrip()
                if line and not line.startswith((" + ", " - ", "  ", "Requirement already")):
                    self.on_progress(line)

    def tail(self, count: int = TAIL_LINES) -> str:
        """Return the last lines."""
        if not self.path.is_file():
            return ""
        with self.path.open(encoding="utf-8", errors="replace") as file:
            lines = (shortened(neutral(line.rstrip("\n")), MOST_SHOWN) for line in file)
            return "\n".join(deque(lines, maxlen=count)).rstrip()

    def failure(self, message: str, remedy: str) -> InstallError:
        """Return an error that shows the end of the log."""
        return InstallError(
            f"{message}; the log ends:\n{self.tail()}", f"{remedy} (log: {self.path})"
        )


def _end_group(leader: int) -> None:
    """End a command and what it started; it leads its own session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
