"""Goodput: requests that kept every limit, out of all that were meant to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from enginebook.metrics.requests import request_metrics
from enginebook.metrics.summary import HasFrames, span_s

_LIMITED = {
    "ttft_ms": "response_ttft_ms",
    "tpot_ms": "tpot_ms",
    "e2e_ms": "response_e2e_ms",
}


def limits_of(objective: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits of an objective (ttft_ms, tpot_ms, e2e_ms) by the metric they are held to.

    TTFT and end-to-end time count from the scheduled time, so that waiting for a place counts.
    """
    found = {metric: objective.get(name) for name, metric in _LIMITED.items()}
    return {metric: float(limit) for metric, limit in found.items() if limit is not None}


def goodput(records: HasFrames, limits: Mapping[str, float]) -> dict[str, Any]:
    """Return how many requests kept all limits.

    Failed, cancelled and never-sent requests are misses. A metric that is undefined for a completed
    request (TPOT of a single chunk) is not applicable: neither kept nor missed.

    Parameters
    ----------
    limits
        Column of ``request_metrics`` to its limit, e.g. ``{"response_ttft_ms": 200.0}``.

    Returns
    -------
    dict
        ``good, intended`` (counts), ``share`` and ``per_s`` (None when nothing was sent).
    """
    frame = request_metrics(records.requests, records.chunks)
    kept = pl.col("status").cast(pl.String) == "completed"
    for name, limit in limits.items():
        kept &= pl.col(name).is_null() | (pl.col(name) <= limit)
    good = int(frame.select(kept.sum()).item())
    span = span_s(frame)
    return {
        "good": good,
        "intended": len(frame),
        "share": good / len(frame) if len(frame) else None,
        "per_s": good / span if span else None,
    }
