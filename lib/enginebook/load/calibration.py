"""How exact the client is on this very host, and when it gives out.

The reference server sends on a known schedule and keeps the true time of every send. What the
client reads beyond that is the client's error (and the kernel's way between two processes).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from enginebook.load.records import Records
from enginebook.load.reference import RunningReference, reference_server
from enginebook.load.run import run_load
from enginebook.load.server import MODEL
from enginebook.load.target import Target
from enginebook.load.workload import Workload
from enginebook.metrics.requests import request_metrics

STREAMS = (1, 64, 256, 1024)
TTFT_MS = 20.0
_FASTEST_ITL_MS = 5.0
_MOST_EVENTS_PER_S = 20_000
_SHARE_OF_A_CORE = 0.8
_INPUT_TOKENS = 64
_LEAST_TOKENS = 8
_ROUNDS = 5  # the first round begins on all streams at once and is the hardest

# What a verdict of "exact" demands; beyond it the level is named in the verdict.
MOST_TTFT_P50_ERROR_MS = 1.0
MOST_TTFT_P99_ERROR_MS = 10.0


@dataclass(frozen=True)
class Level:
    """The client's error at one number of streams. Errors in ms, CPU in us.

    ``stamp_delay`` is a chunk's stamp minus the moment at which the server handed it to the kernel,
    ``ttft_error`` the same of first chunks alone: what the client adds to the truth. ``ttft_p50``
    is the plain reading; it also holds what the server was late (``server_late``) and the kernel's
    way there. ``itl_error`` is the absolute difference between gaps read and gaps sent.
    """

    streams: int
    events_per_s: float
    ttft_true_ms: float
    ttft_p50_ms: float
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    itl_true_ms: float
    itl_error_p50_ms: float
    itl_error_p99_ms: float
    stamp_delay_p50_ms: float
    stamp_delay_p99_ms: float
    cpu_us_per_token: float
    client_cpu_share: float
    server_late_p99_ms: float
    lost: int
    failed: int
    processes: int


def calibrate(
    seconds: float = 10.0,
    streams: Sequence[int] = STREAMS,
    on_level: Callable[[Level], None] | None = None,
) -> dict[str, Any]:
    """Measure the client's error against a known schedule.

    Parameters
    ----------
    seconds
        Time of load, shared by the levels.
    streams
        Numbers of simultaneous streams.
    on_level
        Called with each finished level.

    Returns
    -------
    dict
        ``levels`` (see ``Level``), ``capacity_events_per_s`` (events a second at which one client
        process would use 80 % of a core, by the cheapest level's cost), ``cores``, ``ok`` and
        ``verdict`` (a sentence).
    """
    levels = []
    for count in streams:
        levels.append(measure_level(count, seconds / len(streams)))
        if on_level is not None:
            on_level(levels[-1])
    cost_us = min(level.cpu_us_per_token for level in levels)
    bad = [level for level in levels if not exact(level)]
    return {
        "levels": [asdict(level) for level in levels],
        "capacity_events_per_s": _SHARE_OF_A_CORE * 1e6 / cost_us,
        "cores": os.cpu_count(),
        "ok": not bad,
        "verdict": _verdict(levels, bad),
    }


def exact(level: Level) -> bool:
    """Return whether a level's errors are within what a verdict of "exact" demands."""
    return (
        level.lost == 0
        and level.failed == 0
        and abs(level.ttft_error_p50_ms) <= MOST_TTFT_P50_ERROR_MS
        and abs(level.ttft_error_p99_ms) <= MOST_TTFT_P99_ERROR_MS
    )


def _verdict(levels: Sequence[Level], bad: Sequence[Level]) -> str:
    most = max(levels, key=lambda level: level.streams)
    if not bad:
        return (
            f"exact up to {most.streams} streams on this host: TTFT read "
            f"{most.ttft_error_p50_ms:.2f} ms too long (p50), "
            f"{most.cpu_us_per_token:.1f} us of CPU per token"
        )
    names = ", ".join(str(level.streams) for level in bad)
    return (
        f"not exact at {names} streams on this host: do not trust times below ten times the error "
        "there; use a host with more cores, or fewer streams"
    )


def interval_for(streams: int) -> float:
    """Return ms between tokens that keep this host's server itself punctual."""
    return max(_FASTEST_ITL_MS, streams / _MOST_EVENTS_PER_S * 1000.0)


def measure_level(streams: int, seconds: float, itl_ms: float | None = None) -> Level:
    """Measure one number of streams for about so many seconds."""
    itl_ms = itl_ms or interval_for(streams)
    rounds = _ROUNDS if seconds * 1000.0 / _ROUNDS - TTFT_MS > _LEAST_TOKENS * itl_ms else 2
    tokens = max(_LEAST_TOKENS, round((seconds * 1000.0 / rounds - TTFT_MS) / itl_ms))
    with reference_server(TTFT_MS, itl_ms) as server:
        workload = Workload(
            concurrency=streams,
            requests=rounds * streams,
            warmup_requests=streams,
            input_tokens=_INPUT_TOKENS,
            output_tokens=tokens,
            max_seconds=60.0 + 10 * seconds,
        )
        records = run_load(Target(server.base_url, MODEL), workload)
        return level_of(records, server, streams, itl_ms)


def level_of(records: Records, server: RunningReference, streams: int, itl_ms: float) -> Level:
    """Hold a run's records against the server's true times."""
    truth = {int(k): v for k, v in server.truth()["requests"].items()}
    frame = request_metrics(records.requests, records.chunks)
    sent, received, lost = paired_stamps(records.chunks, truth, set(frame["request"]))
    delay = np.concatenate(received) - np.concatenate(sent)
    gaps = [np.abs(np.diff(r) - np.diff(s)) for s, r in zip(sent, received, strict=True)]
    gap_error = np.concatenate(gaps)
    first_late = [truth[i]["sent"][0] - truth[i]["received"] for i in frame["request"]]
    error = np.array([r[0] - s[0] for s, r in zip(sent, received, strict=True)]) / 1e6
    about, tokens = records.instrument, len(delay)
    window_s = (frame["end_ns"].to_numpy().max() - frame["sent_ns"].to_numpy().min()) / 1e9
    cpu_s = about["window_cpu_s"] + about["decode_cpu_s"] * len(frame) / len(records.requests)
    return Level(
        streams=streams,
        events_per_s=tokens / window_s,
        ttft_true_ms=TTFT_MS,
        ttft_p50_ms=float(np.nanmedian(frame["ttft_ms"].to_numpy())),
        ttft_error_p50_ms=float(np.median(error)),
        ttft_error_p99_ms=float(np.percentile(error, 99)),
        itl_true_ms=itl_ms,
        itl_error_p50_ms=float(np.median(gap_error) / 1e6),
        itl_error_p99_ms=float(np.percentile(gap_error, 99) / 1e6),
        stamp_delay_p50_ms=float(np.median(delay) / 1e6),
        stamp_delay_p99_ms=float(np.percentile(delay, 99) / 1e6),
        cpu_us_per_token=cpu_s * 1e6 / tokens,
        client_cpu_share=about["window_cpu_s"] / window_s,
        server_late_p99_ms=float(np.percentile(first_late, 99) / 1e6 - TTFT_MS),
        lost=lost,
        failed=int((frame["status"].cast(pl.String) != "completed").sum()),
        processes=about["processes"],
    )


def paired_stamps(
    chunks: pl.DataFrame, truth: dict[int, Any], wanted: set[int]
) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Return for each request the true and the read times of its tokens, and how many are lost."""
    content = chunks.filter(pl.col("kind").cast(pl.String) == "content")
    sent, received, lost = [], [], 0
    for (request,), rows in content.group_by("request", maintain_order=True):
        if request in wanted:
            times = np.asarray(truth[request]["sent"], np.int64)
            read = rows["recv_ns"].to_numpy()
            lost += abs(len(times) - len(read))
            both = min(len(times), len(read))
            sent.append(times[:both])
            received.append(read[:both])
    found = set(content["request"].unique())
    lost += sum(len(truth[r]["sent"]) for r in wanted - found if r in truth)
    return sent, received, lost
