"""Metrics over ten million token events: time and peak memory.

python benchmarks/metrics_scale.py [EVENTS]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import polars as pl

from enginebook.load.records import CHUNK_SCHEMA, REQUEST_SCHEMA
from enginebook.metrics import summarise

TOKENS = 500
MS = 1_000_000


def records(events: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the records of a run of so many token events, 500 a request."""
    rng = np.random.default_rng(1)
    count = events // TOKENS
    starts = np.arange(count, dtype=np.int64) * 10 * MS
    gaps = rng.exponential(5 * MS, size=(count, TOKENS)).astype(np.int64)
    stamps = starts[:, None] + 20 * MS + np.cumsum(gaps, axis=1)
    kinds = pl.Series(["content"], dtype=CHUNK_SCHEMA["kind"]).gather(
        np.zeros(count * TOKENS, np.uint32)
    )
    chunks = pl.DataFrame(
        {
            "request": np.repeat(np.arange(count, dtype=np.int32), TOKENS),
            "seq": np.tile(np.arange(TOKENS, dtype=np.int32), count),
            "recv_ns": stamps.ravel(),
            "kind": kinds,
            "tokens": np.ones(count * TOKENS, np.int32),
        }
    )
    fixed = {"phase": "measured", "status": "completed", "streamed": True, "chunks": TOKENS}
    counts = {"prompt_tokens": 64, "completion_tokens": TOKENS, "output_asked": TOKENS}
    requests = pl.DataFrame(
        {
            "request": np.arange(count, dtype=np.int32),
            "scheduled_ns": starts,
            "sent_ns": starts,
            "first_token_ns": stamps[:, 0],
            "first_output_ns": stamps[:, 0],
            "last_token_ns": stamps[:, -1],
            "end_ns": stamps[:, -1],
        }
    ).with_columns(**{k: pl.lit(v) for k, v in (fixed | counts).items()})
    missing = [n for n in REQUEST_SCHEMA if n not in requests.columns]
    filled = requests.with_columns(**{n: pl.lit(None) for n in missing})
    return filled.select(pl.col(n).cast(t) for n, t in REQUEST_SCHEMA.items()), chunks


def main() -> int:
    """Summarise and print the cost."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    requests, chunks = records(events)
    start = time.perf_counter()
    summary = summarise((requests, chunks))
    seconds = time.perf_counter() - start
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(chunks):,} events: {seconds:.2f} s, peak {peak_gib:.2f} GiB (records included)")
    print(f"ITL p50 {summary['itl_ms']['p50']:.3f} ms over {summary['itl_ms']['n']:,} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
