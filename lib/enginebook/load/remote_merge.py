"""Records of many hosts as one: times on one clock, costs summed, lost parts recorded as failed."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from enginebook.load.clock import NS_PER_MS, NS_PER_S
from enginebook.load.clocks import Clock
from enginebook.load.plan import Plan
from enginebook.load.records import CHUNK_SCHEMA, REQUEST_SCHEMA, merge
from enginebook.load.remote_squad import lags_of

REQUEST_TIMES = tuple(name for name in REQUEST_SCHEMA if name.endswith("_ns"))
CHUNK_TIMES = tuple(name for name in CHUNK_SCHEMA if name.endswith("_ns"))
WORKER_LOST = "worker_lost"
FILES_A_PROCESS = 3


@dataclass(frozen=True)
class Part:
    """What one host brought back: tables on the common clock, reports and loop lags in ns."""

    requests: pl.DataFrame
    chunks: pl.DataFrame
    reports: tuple[dict[str, Any], ...]
    lags_ns: np.ndarray


def part_of(blobs: Sequence[bytes], reports: Sequence[dict[str, Any]], clock: Clock) -> Part:
    """Return a host's files as tables whose times are the coordinator's."""
    tables = []
    lags = []
    for place in range(0, len(blobs), FILES_A_PROCESS):
        files = [io.BytesIO(b) for b in blobs[place : place + FILES_A_PROCESS]]
        tables.append((pl.read_parquet(files[0]), pl.read_parquet(files[1])))
        lags.append(lags_of(files[2]))
    requests, chunks = merge(tables)
    return Part(
        requests.with_columns(clock.ours(pl.col(name)) for name in REQUEST_TIMES),
        chunks.with_columns(clock.ours(pl.col(name)) for name in CHUNK_TIMES),
        tuple(reports),
        np.concatenate(lags),
    )


def lost_requests(
    plan: Plan, numbers: range, workers: int, start_ns: int, reason: str
) -> pl.DataFrame:
    """Return a row for each request that a lost host was to send; none where time alone limits.

    What it had sent is not known here: all of its part counts as failed.
    """
    if plan.count is None:
        return pl.DataFrame(schema=REQUEST_SCHEMA)
    rows = []
    for number in numbers:
        for index in plan.measured(number, workers):
            planned = plan.planned(index)
            offset_ns = planned.offset_ns
            rows.append(
                {
                    "request": index,
                    "phase": "measured",
                    "worker": number,
                    "session": planned.session,
                    "turn": planned.turn,
                    "scheduled_ns": start_ns + offset_ns if offset_ns is not None else None,
                    "attempts": 0,
                    "status": "failed",
                    "error_kind": WORKER_LOST,
                    "error": reason,
                    "input_asked": planned.input_tokens,
                    "output_asked": planned.output_tokens,
                    "chunks": 0,
                    "done": False,
                    "bytes": 0,
                }
            )
    return pl.DataFrame(rows, schema=REQUEST_SCHEMA)


def merged(
    parts: Sequence[Part], lost: Sequence[pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return all requests and chunks in order of requests."""
    tables = [(p.requests, p.chunks) for p in parts]
    tables += [(requests, pl.DataFrame(schema=CHUNK_SCHEMA)) for requests in lost]
    return merge(tables)


def costs(parts: Sequence[Part]) -> dict[str, Any]:
    """Return what the clients of all hosts say of themselves, in the terms of one host's."""
    reports = [r for p in parts for r in p.reports]
    lags = np.concatenate([p.lags_ns for p in parts])
    return {
        "processes": len(reports),
        "window_cpu_s": sum(r["window_cpu_s"] for r in reports),
        "decode_cpu_s": sum(r["decode_cpu_s"] for r in reports),
        "worker_cpu_share_max": max(map(_share, reports)),
        "loop_lag_ms": _lags(lags),
        "made_late": sum(r["made_late"] for r in reports),
        "segments": sum(r["segments"] for r in reports),
        **_ending(reports),
    }


def _share(report: Mapping[str, Any]) -> float:
    span_s = (report["end_ns"] - report["start_ns"]) / NS_PER_S
    return float(report["window_cpu_s"] / span_s) if span_s > 0 else 0.0


def _lags(lags_ns: np.ndarray) -> dict[str, float | None]:
    if len(lags_ns) == 0:
        return dict.fromkeys(("p50", "p99", "max"))
    p50, p99 = np.percentile(lags_ns, (50, 99)) / NS_PER_MS
    return {"p50": float(p50), "p99": float(p99), "max": float(lags_ns.max() / NS_PER_MS)}


def _ending(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what ended the sending, and when: the first process to stop tells."""
    cut = [r for r in reports if r["stopped_by"] != "requests"]
    first = min(cut, key=lambda r: float(r["stopped_after_s"]), default=None)
    if first is None:
        return {"stopped_by": "requests", "stopped_after_s": None}
    return {"stopped_by": first["stopped_by"], "stopped_after_s": first["stopped_after_s"]}
