"""Which measured cells can be held against a limit, and what of their work may be missing.

A limit needs to know the work. Where prompts share prefixes, an engine may skip what it has; what
it skipped at most is taken off. Where the lengths do not say the work at all, there is no limit,
and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import polars as pl

LOAD_KEYS: Final = ("scenario", "concurrency", "input_tokens", "output_tokens")
_KEYS: Final = ["engine", "block", *LOAD_KEYS]
_GROWS: Final = "prompts grow from turn to turn and are partly reused: lengths do not say the work"
_VARIES: Final = "lengths differ from request to request: the nominal ones do not say the work"
_GRAMMAR: Final = "a grammar ends answers, and may write tokens without a step of the model"
_SEARCH: Final = "a search holds several rates in one cell"
_REUSE: Final = "what the server's cache spared is not told, and no common prefix bounds it"
_FLIGHT: Final = "how many requests were in flight was not recorded"


def reason_without_limit(load: Mapping[str, Any], varied: Collection[str] = ()) -> str:
    """Return why a load's work does not follow from its lengths; empty where it does.

    Parameters
    ----------
    load
        A row of the `loads` frame.
    varied
        Series whose lengths follow a distribution.
    """
    if load["kind"] == "sessions":
        return _GROWS
    if load["kind"] == "trace" or load["scenario"] in varied:
        return _VARIES
    if load.get("search"):
        return _SEARCH
    return "" if load["answer_format"] in {None, "text"} else _GRAMMAR


def with_work(
    cells: pl.DataFrame, loads: pl.DataFrame, varied: Collection[str] = ()
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the cells that a limit exists for, and why the others have none.

    Returns
    -------
    cells : polars.DataFrame
        With the columns `batch` (requests in flight: the streams of a closed loop, the most that
        were seen in an open one) and `cached_tokens` (prompt tokens that the engine may have left
        out: for a rate the measured share of the cell's tokens, else the whole common prefix, since
        the median request may be one that had all of it).
    gaps : polars.DataFrame
        engine, scenario, reason.
    """
    known = _known(cells, loads)
    reasons = {
        row["scenario"]: why
        for row in loads.iter_rows(named=True)
        if (why := reason_without_limit(row, varied))
    }
    left_out = pl.col("scenario").is_in(list(reasons))
    usable = known.filter(~left_out).with_columns(gap=_gap())
    gaps = pl.concat(
        [
            known.filter(left_out).with_columns(
                reason=pl.col("scenario").replace_strict(reasons, default="")
            )["engine", "scenario", "reason"],
            usable.drop_nulls("gap").select("engine", "scenario", reason="gap"),
        ]
    )
    kept = usable.filter(pl.col("gap").is_null()).select(*cells.columns, "batch", "cached_tokens")
    return kept, gaps.unique(maintain_order=True)


def _known(cells: pl.DataFrame, loads: pl.DataFrame) -> pl.DataFrame:
    """Return the cells beside what is known of their load and of the work left out."""
    shares = _metric(cells, "cached_share")
    flight = _metric(cells, "in_flight_max")
    what = loads.select(*LOAD_KEYS, "kind", "prefix_tokens", "cache").unique(LOAD_KEYS)
    frame = cells.join(what, on=LOAD_KEYS, how="inner")
    frame = frame.join(shares, on=_KEYS, how="left").join(flight, on=_KEYS, how="left")
    prefix = pl.col("prefix_tokens").fill_null(0)
    told = (pl.col("cached_share") * pl.col("input_tokens")).ceil()
    whole = pl.when(prefix > 0).then(prefix)
    rate = pl.col("metric").str.ends_with("_per_s")
    reused = pl.when(rate).then(pl.coalesce(told, whole)).otherwise(whole)
    closed = pl.col("kind") == "closed_loop"
    return frame.with_columns(
        batch=pl.when(closed).then(pl.col("concurrency")).otherwise(pl.col("in_flight_max")),
        cached_tokens=pl.when(pl.col("cache") == "cold").then(0).otherwise(reused),
    ).with_columns(pl.col("batch", "cached_tokens").cast(pl.Int64))


def _metric(cells: pl.DataFrame, name: str) -> pl.DataFrame:
    found = cells.filter(pl.col("metric") == name)
    return found.select(*_KEYS, pl.col("value").alias(name)).unique(_KEYS)


def _gap() -> pl.Expr:
    steps = pl.col("metric").str.starts_with("tpot")  # no prompt is in a step: reuse is no matter
    unknown = pl.col("cached_tokens").is_null() & ~steps
    flight = pl.col("batch").is_null() | (pl.col("batch") < 1)
    return (
        pl.when(flight)
        .then(pl.lit(_FLIGHT))
        .when(unknown & pl.col("metric").str.starts_with("ttft"))
        .then(pl.lit(f"time to first token: {_REUSE}"))
        .when(unknown)
        .then(pl.lit(_REUSE))
        .otherwise(pl.lit(None, pl.String))
    )
