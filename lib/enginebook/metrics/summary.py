"""Wire records to the summary of a run: the JSON that ``enginebook load`` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import polars as pl

from enginebook.metrics.distribution import Floats, distribution
from enginebook.metrics.requests import chunk_gaps, request_metrics

NS_PER_S = 1e9
REQUEST_TIMES = ("ttft_ms", "ttfo_ms", "tpot_ms", "tpot_n1_ms", "e2e_ms")
RESPONSE_TIMES = ("response_ttft_ms", "response_e2e_ms", "connect_ms")
MISMATCH_TOKENS = 2
_SOURCES = ("chunks", "tokenizer", "usage")  # weakest first


class HasFrames(Protocol):
    """Wire records: two frames and what the client says of itself."""

    @property
    def requests(self) -> pl.DataFrame:
        """Return one row a request."""

    @property
    def chunks(self) -> pl.DataFrame:
        """Return one row an event."""

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Return CPU, lag, processes."""


def summarise(
    records: HasFrames | tuple[pl.DataFrame, pl.DataFrame],
    instrument: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the summary of a run's measured part.

    Parameters
    ----------
    records
        Wire records, or their (requests, chunks) frames.
    instrument
        Replaces what the records carry.

    Returns
    -------
    dict
        The keys of ``enginebook load``'s JSON. Each distribution also has ``n`` (samples) and
        ``intervals``; ``response_ttft_ms`` and ``response_e2e_ms`` count from the scheduled time.
        A value that is undefined or whose sample is too small is None.
    """
    if isinstance(records, tuple):
        requests, chunks = records
        about: Mapping[str, Any] = instrument or {}
    else:
        requests, chunks = records.requests, records.chunks
        about = instrument if instrument is not None else records.instrument
    frame = request_metrics(requests, chunks)
    return {
        "requests": _counts(frame),
        **_rates(frame),
        **{name: distribution(_floats(frame[name])) for name in REQUEST_TIMES + RESPONSE_TIMES},
        **_chunk_times(requests, chunks),
        "output_tokens": _tokens(frame),
        "cached_share": cached_share(frame),
        "errors": _errors(frame),
        "instrument": _instrument(frame, chunks, about),
    }


def _floats(column: pl.Series) -> Floats:
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy()


def _completed(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("status").cast(pl.String) == "completed")


def _counts(frame: pl.DataFrame) -> dict[str, int]:
    status = frame["status"].cast(pl.String)
    return {name: int((status == name).sum()) for name in ("completed", "failed", "cancelled")}


def span_s(frame: pl.DataFrame) -> float | None:
    """Return seconds from the first sending to the end of the last answer."""
    sent = frame.filter(pl.col("sent_ns").is_not_null())
    if len(sent) == 0:
        return None
    span_ns = int(sent["end_ns"].to_numpy().max()) - int(sent["sent_ns"].to_numpy().min())
    return span_ns / NS_PER_S if span_ns > 0 else None


def _rates(frame: pl.DataFrame) -> dict[str, float | None]:
    done = _completed(frame)
    span = span_s(frame)
    tokens_in = done["prompt_tokens"]
    known = len(done) > 0 and tokens_in.null_count() == 0
    totals = {
        "requests_per_s": len(done),
        "output_tokens_per_s": int(done["output_tokens"].sum()),
        "input_tokens_per_s": int(tokens_in.sum()) if known else None,
    }
    rates = {k: v / span if v is not None and span else None for k, v in totals.items()}
    return {"duration_s": span, **rates}


def cached_share(frame: pl.DataFrame) -> float | None:
    """Return cached over all prompt tokens of completed requests; None where nobody tells.

    Some servers (SGLang) leave the field out of an answer without a hit. Where any request tells,
    one that does not therefore had none: leaving it out would make reuse look larger than it was.
    """
    known = _completed(frame).drop_nulls("prompt_tokens")
    told = known["cached_tokens"].drop_nulls()
    total = int(known["prompt_tokens"].sum())
    return int(told.sum()) / total if total and len(told) else None


def _chunk_times(requests: pl.DataFrame, chunks: pl.DataFrame) -> dict[str, Any]:
    """Return inter-chunk latency, and inter-token latency weighted by tokens."""
    gaps = chunk_gaps(chunks, requests)
    known = bool(np.isfinite(gaps.tokens).all()) and len(gaps.tokens) > 0
    tokens = gaps.tokens if known else np.empty(0)
    per_chunk = float(tokens.mean()) if known else None
    between = distribution(gaps.gap_ms)
    if known and per_chunk == 1.0 and tokens.max() == 1.0:
        itl = between  # every gap is one token's: no need to sort them twice
    else:
        weights = np.maximum(tokens, 1)
        itl = distribution(gaps.gap_ms[: len(tokens)] / weights, weights)
    return {"icl_ms": between | {"tokens_per_chunk": per_chunk}, "itl_ms": itl}


def _tokens(frame: pl.DataFrame) -> dict[str, Any]:
    done = _completed(frame)
    used = set(done["output_source"].drop_nulls().to_list())
    weakest = next((s for s in _SOURCES if s in used), None)
    return {
        "total": int(done["output_tokens"].sum()) if len(done) else 0,
        "source": weakest,
        "mismatches": token_mismatches(done),
    }


def token_mismatches(done: pl.DataFrame) -> int:
    """Return how many answers the client counts differently: by more than 1 % and 2 tokens."""
    both = done.filter(
        pl.col("completion_tokens").is_not_null() & pl.col("client_tokens").is_not_null()
    )
    off = (both["completion_tokens"] - both["client_tokens"]).abs()
    return int(((off > MISMATCH_TOKENS) & (off > both["completion_tokens"] * 0.01)).sum())


def _errors(frame: pl.DataFrame) -> list[dict[str, Any]]:
    bad = frame.filter(pl.col("error_kind").is_not_null())
    code = pl.when(pl.col("error_kind") == "http_status").then("http_status")
    groups = (
        bad.with_columns(code=code)
        .group_by("error_kind", "code", maintain_order=True)
        .agg(count=pl.len(), example=pl.col("error").first())
        .sort("count", descending=True, maintain_order=True)
    )
    return [
        {"kind": kind, **({"code": code} if code is not None else {}), "count": n, "example": text}
        for kind, code, n, text in groups.iter_rows()
    ]


def _instrument(
    frame: pl.DataFrame, chunks: pl.DataFrame, about: Mapping[str, Any]
) -> dict[str, Any]:
    parts = [about.get(name) for name in ("window_cpu_s", "decode_cpu_s")]
    cpu_s = sum(p for p in parts if p is not None) if None not in parts else None
    tokens = int(frame["output_tokens"].sum() or 0)
    lag = distribution(_floats(frame["schedule_lag_ms"]))
    return {
        "client_cpu_s": cpu_s,
        "cpu_us_per_token": cpu_s * 1e6 / tokens if cpu_s is not None and tokens else None,
        "loop_lag_ms": about.get("loop_lag_ms") or dict.fromkeys(("p50", "p99", "max")),
        "schedule_lag_ms": {name: lag[name] for name in ("p50", "p99", "max")},
        "processes": about.get("processes"),
        "stopped_by": about.get("stopped_by"),
        "stopped_after_s": about.get("stopped_after_s"),
        "precision": about.get("precision"),
        "worker_cpu_share_max": about.get("worker_cpu_share_max"),
        "events": len(chunks),
    }
