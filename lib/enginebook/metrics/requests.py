"""Wire records to one row of metrics a request. The definitions stand in docs/method.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

NS_PER_MS = 1e6
GENERATED = ("content", "reasoning", "tool")


def measured(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the requests that count: all but warm-up."""
    return requests.filter(pl.col("phase").cast(pl.String) == "measured")


def request_metrics(requests: pl.DataFrame, chunks: pl.DataFrame) -> pl.DataFrame:
    """Return the measured requests with their metrics as further columns.

    Adds ``output_tokens`` and ``output_source`` (usage, tokenizer or chunks), ``first_tokens``
    (tokens up to and with the first chunk that holds one) and, for completed requests and null
    where undefined: ``ttft_ms, ttfo_ms, tpot_ms, tpot_n1_ms, e2e_ms`` from sending,
    ``response_ttft_ms, response_e2e_ms`` from the scheduled time, ``connect_ms`` and
    ``schedule_lag_ms``.
    """
    frame = measured(requests).join(_first_tokens(chunks), on="request", how="left")
    frame = frame.with_columns(
        output_tokens=pl.coalesce("completion_tokens", "client_tokens", "chunks"),
        output_source=_source(),
        last_ns=pl.when(pl.col("streamed") == False)  # noqa: E712 - null is neither
        .then("end_ns")
        .otherwise(pl.coalesce("last_token_ns", "end_ns")),
    )
    after_first = pl.col("output_tokens") - pl.col("first_tokens")
    decode_ms = (pl.col("last_token_ns") - pl.col("first_token_ns")) / NS_PER_MS
    others = pl.col("output_tokens") - 1
    metrics = {
        "ttft_ms": _ms("first_token_ns", "sent_ns"),
        "ttfo_ms": _ms("first_output_ns", "sent_ns"),
        "tpot_ms": pl.when(after_first > 0).then(decode_ms / after_first),
        "tpot_n1_ms": pl.when(others > 0).then(decode_ms / others),
        "e2e_ms": _ms("last_ns", "sent_ns"),
        "response_ttft_ms": _ms("first_token_ns", "scheduled_ns"),
        "response_e2e_ms": _ms("last_ns", "scheduled_ns"),
    }
    completed = pl.col("status").cast(pl.String) == "completed"
    return frame.with_columns(
        connect_ms=_ms("connected_ns", "connect_start_ns"),
        schedule_lag_ms=_ms("sent_ns", "scheduled_ns"),
        **{name: pl.when(completed).then(value) for name, value in metrics.items()},
    )


def _ms(late: str, early: str) -> pl.Expr:
    return (pl.col(late) - pl.col(early)) / NS_PER_MS


def _source() -> pl.Expr:
    return (
        pl.when(pl.col("completion_tokens").is_not_null())
        .then(pl.lit("usage"))
        .when(pl.col("client_tokens").is_not_null())
        .then(pl.lit("tokenizer"))
        .when(pl.col("chunks").is_not_null())
        .then(pl.lit("chunks"))
    )


def generated_rows(chunks: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which chunks hold generated text, shape (chunks,)."""
    return chunks["kind"].is_in(list(GENERATED)).to_numpy()


def token_counts(chunks: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Return the tokens of each chunk, NaN where unknown, shape (chunks,)."""
    return chunks["tokens"].cast(pl.Float64).to_numpy()


def _running_total(tokens: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    unknown = np.isnan(tokens)
    return np.cumsum(np.where(unknown, 0.0, tokens) if unknown.any() else tokens)


def _first_tokens(chunks: pl.DataFrame) -> pl.DataFrame:
    """Return (request, first_tokens); null where the tokens of the first chunk are unknown."""
    generated = generated_rows(chunks)
    request = chunks["request"].to_numpy()
    tokens = token_counts(chunks)
    # a delta without text before the first chunk can be a token whose bytes came with that chunk
    past = _running_total(tokens)
    rows = np.flatnonzero(generated)
    of = request[rows]
    firsts = rows[np.flatnonzero(np.diff(of, prepend=of[:1] - 1))]
    begins = np.searchsorted(request, request[firsts], side="left")
    before = np.where(begins > 0, past[begins - 1], 0.0)
    counts = np.where(np.isnan(tokens[firsts]), np.nan, past[firsts] - before)
    values = pl.Series(counts, nan_to_null=True).cast(pl.Int32)
    return pl.DataFrame({"request": request[firsts], "first_tokens": values})


@dataclass(frozen=True)
class Gaps:
    """Times between successive chunks that hold text.

    Attributes
    ----------
    gap_ms
        Shape (g,).
    tokens
        Tokens that arrived with the later chunk, shape (g,); NaN where unknown.
    recv_ns, request
        When, and of which request; shapes (g,).
    """

    gap_ms: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.float64]
    recv_ns: npt.NDArray[np.int64]
    request: npt.NDArray[np.int32]


def chunk_gaps(chunks: pl.DataFrame, requests: pl.DataFrame) -> Gaps:
    """Return the gaps between chunks of completed measured requests.

    Parameters
    ----------
    chunks
        Sorted by request and seq, as wire records are.
    """
    completed = measured(requests).filter(pl.col("status").cast(pl.String) == "completed")
    good = np.sort(completed["request"].to_numpy())
    request = chunks["request"].to_numpy()
    tokens = token_counts(chunks)
    past = _running_total(tokens)
    generated = generated_rows(chunks)
    rows = np.flatnonzero(generated & np.isin(request, good))
    of = request[rows]
    later = np.flatnonzero(of[1:] == of[:-1]) + 1
    after, before = rows[later], rows[later - 1]
    recv = chunks["recv_ns"].to_numpy()
    count = past[after] - past[before]
    count[np.isnan(tokens[after])] = np.nan
    return Gaps(
        gap_ms=(recv[after] - recv[before]) / NS_PER_MS,
        tokens=count,
        recv_ns=recv[after],
        request=request[after],
    )
