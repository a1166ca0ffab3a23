"""Wire records: the single truth of a run, two parquet tables and a description.

``requests.parquet`` has one row a request, ``chunks.parquet`` one row an event of a stream;
every metric is a pure function of them. All times are ns of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from enginebook.errors import InputError
from enginebook.load.answers import KINDS
from enginebook.load.decode import Columns
from enginebook.store import read_json, write_json

REQUESTS_FILE = "requests.parquet"
CHUNKS_FILE = "chunks.parquet"
INSTRUMENT_FILE = "instrument.json"
CHUNK_KIND = pl.Enum(KINDS)

_REQUEST_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "request": pl.Int32,
    "phase": pl.Enum(["warmup", "measured"]),
    "worker": pl.Int32,
    "stream": pl.Int32,
    "session": pl.Int32,
    "turn": pl.Int32,
    "scheduled_ns": pl.Int64,
    "connect_start_ns": pl.Int64,
    "connected_ns": pl.Int64,
    "sent_ns": pl.Int64,
    "first_byte_ns": pl.Int64,
    "first_token_ns": pl.Int64,
    "first_output_ns": pl.Int64,
    "last_token_ns": pl.Int64,
    "end_ns": pl.Int64,
    "attempts": pl.Int32,
    "status": pl.Enum(["completed", "failed", "cancelled"]),
    "error_kind": pl.String,
    "error": pl.String,
    "http_status": pl.Int32,
    "retry_after": pl.String,
    "input_asked": pl.Int32,
    "output_asked": pl.Int32,
    "prompt_tokens": pl.Int32,
    "completion_tokens": pl.Int32,
    "cached_tokens": pl.Int32,
    "client_tokens": pl.Int32,
    "tokens_source": pl.String,
    "chunks": pl.Int32,
    "finish_reason": pl.String,
    "done": pl.Boolean,
    "streamed": pl.Boolean,
    "served_model": pl.String,
    "bytes": pl.Int64,
}
REQUEST_SCHEMA = pl.Schema(_REQUEST_TYPES)
_CHUNK_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "request": pl.Int32,
    "seq": pl.Int32,
    "recv_ns": pl.Int64,
    "kind": CHUNK_KIND,
    "tokens": pl.Int32,
    "byte_start": pl.Int64,
    "byte_end": pl.Int64,
    "text": pl.String,
}
CHUNK_SCHEMA = pl.Schema(_CHUNK_TYPES)


@dataclass(frozen=True)
class Records:
    """A run's records.

    Attributes
    ----------
    requests, chunks
        Frames with ``REQUEST_SCHEMA`` and ``CHUNK_SCHEMA``.
    instrument
        What the client says of itself: CPU, lag, processes, start, workload.
    directory
        Where they lie, or None when they were not kept.
    """

    requests: pl.DataFrame
    chunks: pl.DataFrame
    instrument: dict[str, Any]
    directory: Path | None = None

    def texts(self) -> pl.DataFrame:
        """Return (request, text): the generated text of each request, to compare engines by."""
        return (
            self.chunks.sort("request", "seq")
            .group_by("request", maintain_order=True)
            .agg(text=pl.col("text").drop_nulls().str.join(""))
        )


def frames_of(columns: Columns) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the request and the chunk table of decoded exchanges."""
    requests = pl.DataFrame(columns.requests, schema=REQUEST_SCHEMA)
    kinds = pl.Series(KINDS, dtype=CHUNK_KIND).gather(np.asarray(columns.kind, np.uint32))
    chunks = pl.DataFrame(
        {
            "request": _joined(columns.request, np.int32),
            "seq": _joined(columns.seq, np.int32),
            "recv_ns": _joined(columns.recv_ns, np.int64),
            "kind": kinds,
            "tokens": pl.Series(columns.tokens, dtype=pl.Int32),
            "byte_start": pl.Series(columns.byte_start, dtype=pl.Int64),
            "byte_end": pl.Series(columns.byte_end, dtype=pl.Int64),
            "text": pl.Series(columns.text, dtype=pl.String),
        },
        schema=CHUNK_SCHEMA,
    )
    return requests, chunks


def _joined(parts: list[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def merge(parts: Sequence[tuple[pl.DataFrame, pl.DataFrame]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables of all processes as one, in order of requests."""
    requests = pl.concat([p[0] for p in parts]).sort("request")
    chunks = pl.concat([p[1] for p in parts]).sort("request", "seq")
    return requests, chunks


def write_records(records: Records, directory: Path) -> Records:
    """Write records to a folder and return them with their place."""
    directory.mkdir(parents=True, exist_ok=True)
    records.requests.write_parquet(directory / REQUESTS_FILE)
    records.chunks.write_parquet(directory / CHUNKS_FILE)
    write_json(directory / INSTRUMENT_FILE, records.instrument)
    return Records(records.requests, records.chunks, records.instrument, directory)


def read_records(directory: Path) -> Records:
    """Read the records that ``run_load`` left in a folder.

    Raises
    ------
    InputError
        When the folder holds none.
    """
    missing = [n for n in (REQUESTS_FILE, CHUNKS_FILE) if not (directory / n).is_file()]
    if missing:
        raise InputError(
            f"{directory} holds no load records ({', '.join(missing)} missing)",
            "give the folder named by --raw, or a cell folder of a study",
        )
    path = directory / INSTRUMENT_FILE
    return Records(
        pl.read_parquet(directory / REQUESTS_FILE),
        pl.read_parquet(directory / CHUNKS_FILE),
        read_json(path) if path.is_file() else {},
        directory,
    )
