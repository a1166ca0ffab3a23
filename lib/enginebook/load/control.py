"""Sixty-four bytes shared by a worker process and its controller: progress, and two flags.

A file in memory, mapped by both: reading progress costs the worker nothing and no message is parsed
between two stamps.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_PROGRESS = struct.Struct("<6q")
_SIZE = 64
_STOP_AT, _FINISH_AT = 56, 57


@dataclass(frozen=True)
class Progress:
    """Counters of one process since the start of its measured part."""

    done: int = 0
    failed: int = 0
    chunks: int = 0
    first_bytes: int = 0
    first_byte_sum_ns: int = 0
    in_flight: int = 0


class Control:
    """The shared bytes."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    def write(self, p: Progress) -> None:
        """Publish counters."""
        values = (p.done, p.failed, p.chunks, p.first_bytes, p.first_byte_sum_ns, p.in_flight)
        _PROGRESS.pack_into(self._map, 0, *values)

    def read(self) -> Progress:
        """Return the latest counters."""
        return Progress(*_PROGRESS.unpack_from(self._map, 0))

    def stop(self) -> None:
        """Ask the worker to cancel what is in flight and end."""
        self._map[_STOP_AT] = 1

    def finish(self) -> None:
        """Ask the worker to send nothing more and to end when what is in flight has ended."""
        self._map[_FINISH_AT] = 1

    @property
    def finishing(self) -> bool:
        """Return whether the worker is asked to send nothing more."""
        return self._map[_FINISH_AT] == 1

    @property
    def stopped(self) -> bool:
        """Return whether the worker is asked to end."""
        return self._map[_STOP_AT] == 1

    def close(self) -> None:
        """Unmap the bytes."""
        self._map.close()
