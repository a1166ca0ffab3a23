"""An engine's output as a file of lines stamped with seconds since its start, bounded in size.

Standard library only (the guard writes with it); readers use :func:`read_log`.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from enginebook.masking import environment_mask
from enginebook.plain import neutral, shortened

SEGMENT_BYTES = 32 << 20
MOST_SHOWN = 500  # characters of a line that is quoted elsewhere
STAMP = re.compile(r"^\[ *(\d+\.\d{3})\] ?(.*)$")


class LogPump:
    """Copies a pipe to a file, a stamp before each line.

    The first segment is kept for ever, because start-up is told there; of what follows the
    newest two segments are kept. Secrets of the engine's environment are hidden.
    """

    def __init__(self, path: Path, started: float, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.path = path
        self.started = started
        self.segment_bytes = segment_bytes
        self._rest = b""
        self._mask = environment_mask()
        for stale in (*_older(path), path):  # a file that another still writes stays its own
            stale.unlink(missing_ok=True)
        self._file = path.open("wb", buffering=0)
        self._written = 0

    def feed(self, chunk: bytes) -> None:
        """Take bytes as they came; whole lines are written, the rest waits for its end."""
        stamp = f"[{time.monotonic() - self.started:10.3f}] ".encode()
        # A carriage return alone rewrites a progress bar: each state counts as a line.
        *lines, self._rest = (self._rest + chunk.replace(b"\r", b"\n")).split(b"\n")
        if len(self._rest) > 1 << 16:
            lines, self._rest = [*lines, self._rest], b""
        text = b"".join(stamp + line + b"\n" for line in lines if line)
        if self._written + len(text) > self.segment_bytes:
            self._rotate()
        self._write(self._mask.data(text))

    def _write(self, text: bytes) -> None:
        try:
            self._file.write(text)
            self._written += len(text)
        except OSError:
            pass  # A full disk must not end the engine; the reader finds a shorter log.

    def _rotate(self) -> None:
        self._file.close()
        first, previous = _older(self.path)
        keep = previous if first.exists() else first
        self.path.replace(keep)
        self._file = self.path.open("wb", buffering=0)
        self._written = 0

    def close(self) -> None:
        """Write what is left and close the file."""
        if self._rest:
            self.feed(b"\n")
        self._file.close()


def _older(path: Path) -> tuple[Path, Path]:
    return path.with_suffix(".first.log"), path.with_suffix(".previous.log")


def _segments(path: Path) -> list[Path]:
    return [p for p in (*_older(path), path) if p.is_file()]


def read_log(path: Path) -> list[tuple[float, str]]:
    """Return (seconds since the engine's start, line) of all kept segments, in order."""
    lines: list[tuple[float, str]] = []
    for segment in _segments(path):
        for raw in segment.read_text(encoding="utf-8", errors="replace").splitlines():
            found = STAMP.match(raw)
            if found:
                lines.append((float(found[1]), found[2]))
    return lines


def tail(path: Path, count: int) -> list[str]:
    """Return the last ``count`` lines as plain text and without their stamps.

    No more is read than is needed, and long lines are cut: this is what messages quote.
    """
    if not path.is_file():
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - count * 600))
        text = file.read().decode("utf-8", errors="replace")
    lines = [line for line in text.split("\n") if line.strip()]
    shown = (shortened(neutral(STAMP.sub(r"\2", line)), MOST_SHOWN) for line in lines[-count:])
    return [line for line in shown if line.strip()]
