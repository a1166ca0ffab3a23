"""Tables of the scenarios beyond throughput and length: one row an engine and load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from enginebook.report import families
from enginebook.report.cellname import load_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, figure
from enginebook.report.numbers import share as percent
from enginebook.report.outcome import Load, outcome
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import say
from enginebook.report.wording import capital

ONLINE_TIMES = ("ttft_p95_ms", "response_ttft_p95_ms")
OBJECTIVES = ("goodput_per_s.", "slo_share.", "capacity_per_s.")


def prefix_reuse(data: StudyData) -> Fragment | NoData:
    """Return what reuse of shared prefixes does to TTFT and throughput."""
    metrics = ["cached_share", "ttft_p50_ms", "ttft_p95_ms", "output_tokens_per_s"]
    return _series(data, families.PREFIX, metrics)


def conversations(data: StudyData) -> Fragment | NoData:
    """Return the first and the last turn's TTFT, beside what came from the cache."""
    turns = ["ttft_turn_first_p50_ms", "ttft_turn_last_p50_ms"]
    return _series(data, families.SESSIONS, [*turns, "cached_share", "sessions_per_s"])


def structured(data: StudyData) -> Fragment | NoData:
    """Return how many answers were valid, and what a valid one took."""
    metrics = ["valid_json_share", "time_per_valid_answer_ms", "e2e_p50_ms", "tpot_p50_ms"]
    return _series(data, families.STRUCTURED, metrics)


def online(data: StudyData) -> Fragment | NoData:
    """Return goodput and the share of requests within each objective, by rate.

    Times from the scheduled moment stand beside those from sending: a client that cannot keep
    up, or a server that takes no connection, shows in the first alone.
    """
    metrics = [*ONLINE_TIMES, "tpot_p50_ms", *families.metrics(data, OBJECTIVES)]
    return _series(data, families.ONLINE, metrics)


def trace_replay(data: StudyData) -> Fragment | NoData:
    """Return latency and goodput under replayed traffic."""
    metrics = ["ttft_p50_ms", *ONLINE_TIMES, "tpot_p50_ms"]
    return _series(data, families.TRACE, [*metrics, *families.metrics(data, OBJECTIVES)])


def _series(data: StudyData, family: families.Family, metrics: Sequence[str]) -> Fragment | NoData:
    """Return one row a load and engine, one column a metric that was measured there."""
    language, caption = data.language, say(family.title, data.language)
    loads = families.loads(data, family)
    shown = [m for m in metrics if any(_measured(data, load, m) for load in loads)]
    rows = [row for load in loads for row in _load_rows(data, load, shown)]
    if not rows:
        return NoData(caption, say("part.nothing", language))
    columns = [
        Column(say("table.load", language), filtered=True),
        Column(say("table.engine", language), filtered=True),
        *[
            Column(capital(families.name(m, language)), families.units(m, language), numeric=True)
            for m in shown
        ],
    ]
    return table(columns, rows, caption=caption, interactive=True)


def _measured(data: StudyData, load: Load, metric: str) -> bool:
    return not load.rows(data.points, metric).drop_nulls("value").is_empty()


def _load_rows(data: StudyData, load: Load, metrics: Sequence[str]) -> Iterable[Row]:
    name = load_name(data, load)
    frames = {m: load.rows(data.points, m) for m in metrics}
    winners = {m: _winner(data, load, m) for m in metrics}
    for engine in data.engines:
        found = {m: f.filter(pl.col("engine") == engine) for m, f in frames.items()}
        if all(f.is_empty() for f in found.values()):
            continue
        cells = [value_cell(found[m], m, best=winners[m] == engine) for m in metrics]
        yield [name, engine, *cells]


def _winner(data: StudyData, load: Load, metric: str) -> str | None:
    if load.rows(data.comparisons, metric).is_empty():
        return None
    found = outcome(data, load, metric)
    return found.winner if found else None


def value_cell(found: pl.DataFrame, metric: str, *, best: bool = False) -> Value:
    """Return the one row of `points` as a cell: value, interval below it; a dash without one."""
    if found.is_empty() or found["value"][0] is None:
        return Value(NONE)
    row = found.row(0, named=True)
    text = percent if families.is_share(metric) else figure
    note = ""
    if row["low"] is not None and row["high"] is not None:
        note = f"{text(row['low'])} – {text(row['high'])}"
    return Value(text(row["value"]), sort=float(row["value"]), best=best, note=note)
