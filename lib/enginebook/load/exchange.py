"""One request and the raw bytes of its answer, and the file that holds them until they are read.

The file (the spool) keeps the memory of a long run bounded: an exchange is written once its last
byte is in, in a few microseconds, and decoded after the run.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO, Literal

from enginebook.load.plan import Planned

Fault = Literal["", "connect", "timeout", "closed", "protocol", "cancelled"]
_HEAD = struct.Struct("<III")
_SPOOL_BUFFER_BYTES = 256 * 1024


class Exchange:
    """What the wire showed of one request. All times are ns of the monotonic clock, 0 = never."""

    __slots__ = (
        "attempts", "connect_start_ns", "connected_ns", "end_ns", "fault", "fault_text",
        "pieces", "planned", "reused", "scheduled_ns", "sent_ns", "stamps", "stream", "timeout_ns",
    )  # fmt: skip

    def __init__(self, planned: Planned, scheduled_ns: int = 0) -> None:
        self.planned = planned
        self.scheduled_ns = scheduled_ns
        self.stream = -1
        self.connect_start_ns = 0
        self.connected_ns = 0
        self.sent_ns = 0
        self.end_ns = 0
        self.timeout_ns = 0
        self.attempts = 0
        self.reused = False
        self.fault: Fault = ""
        self.fault_text = ""
        self.pieces: list[bytes] = []
        self.stamps: list[int] = []

    def meta(self) -> tuple[object, ...]:
        """Return everything but the bytes."""
        return (
            self.planned, self.scheduled_ns, self.stream, self.connect_start_ns,
            self.connected_ns, self.sent_ns, self.end_ns, self.attempts, self.reused,
            self.fault, self.fault_text,
        )  # fmt: skip


class Spool:
    """Writes exchanges to a file and reads them back. The file is private to one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("wb", buffering=_SPOOL_BUFFER_BYTES)
        self.count = 0

    def write(self, exchange: Exchange) -> None:
        """Append an exchange and let go of its bytes."""
        meta = pickle.dumps(exchange.meta(), protocol=5)
        lengths = array("Q", map(len, exchange.pieces))
        write = self._file.write
        write(_HEAD.pack(len(meta), len(exchange.stamps), 0))
        write(meta)
        write(array("q", exchange.stamps).tobytes())
        write(lengths.tobytes())
        write(b"".join(exchange.pieces))
        exchange.pieces = []
        exchange.stamps = []
        self.count += 1

    def read(self) -> Iterator[Exchange]:
        """Return the exchanges in the order in which they ended; no more can be written."""
        self._file.close()
        with self._path.open("rb") as file:
            while head := file.read(_HEAD.size):
                yield _read_one(file, *_HEAD.unpack(head)[:2])
        self._path.unlink()


def _read_one(file: BinaryIO, meta_bytes: int, pieces: int) -> Exchange:
    # our own file of a moment ago, in a folder that only this user can write
    values = pickle.loads(file.read(meta_bytes))  # noqa: S301
    exchange = Exchange(values[0], values[1])
    (
        exchange.stream, exchange.connect_start_ns, exchange.connected_ns, exchange.sent_ns,
        exchange.end_ns, exchange.attempts, exchange.reused, exchange.fault, exchange.fault_text,
    ) = values[2:]  # fmt: skip
    stamps, lengths = array("q"), array("Q")
    stamps.frombytes(file.read(8 * pieces))
    lengths.frombytes(file.read(8 * pieces))
    exchange.stamps = stamps.tolist()
    body, ends = file.read(sum(lengths)), list(accumulate(lengths, initial=0))
    exchange.pieces = [body[a:b] for a, b in pairwise(ends)]
    return exchange
