"""Tables of what was measured under load: a summary, and every comparison with its verdict."""

from __future__ import annotations

from collections.abc import Sequence

from enginebook.report.cellname import amounts, series_name, streams
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import figure, ratio, share
from enginebook.report.outcome import Load, compare, loads, outcome, sweep
from enginebook.report.tables.table import Column, Value, table
from enginebook.report.text import known, say
from enginebook.report.wording import brief_reason, capital, metric_name, unit
from enginebook.stats import PRIMARY

SUMMARY = (
    ("output_tokens_per_s", "concurrency"),
    ("tpot_p50_ms", "concurrency"),
    ("itl_p99_ms", "concurrency"),
    ("e2e_p95_ms", "concurrency"),
    ("ttft_p50_ms", "input_tokens"),
    ("ttft_p95_ms", "input_tokens"),
)
TONES = {"wins": "good", "tie": "open", "undecided": "open", "no verdict": "old", "alone": "open"}
UNSURE = frozenset({"undecided", "no verdict"})  # the others say all in their interval
PAIR_TONES = {"better": "good", "worse": "bad", "tie": "open", "undecided": "open"}


def summary(data: StudyData) -> Fragment | NoData:
    """Return the main figures of each engine at the lightest and heaviest load, with verdicts."""
    language = data.language
    chosen = [(m, load) for m, axis in SUMMARY for load in _ends(sweep(data, m, axis))]
    seen = {e for m, load in chosen for e in load.rows(data.points, m)["engine"].to_list()}
    engines = [e for e in data.engines if e in seen]
    rows = [_summary_row(data, load, metric, engines) for metric, load in chosen]
    if not rows:
        return NoData(say("table.summary", language), say("nodata.points", language))
    columns = [
        Column(say("table.metric", language)),
        Column(say("table.streams", language), numeric=True),
        Column(say("table.input", language), numeric=True),
        Column(say("table.output", language), numeric=True),
        *[Column(engine, numeric=True) for engine in engines],
        Column(say("table.verdict", language)),
    ]
    return table(
        columns,
        rows,
        caption=say("table.summary", language),
        best_word=say("table.best", language),
    )


def _ends(found: list[Load]) -> list[Load]:
    return found if len(found) < 2 else [found[0], found[-1]]  # noqa: PLR2004


def _summary_row(
    data: StudyData, load: Load, metric: str, engines: Sequence[str]
) -> list[Value | str]:
    language = data.language
    found = outcome(data, load, metric)
    rows = {r["engine"]: r for r in load.rows(data.points, metric).iter_rows(named=True)}
    values = [_figure(rows.get(e), best=found is not None and found.winner == e) for e in engines]
    kind = found.kind if found else "alone"
    word = say(f"kind.{kind.replace(' ', '_')}", language, leader=found.leader if found else "")
    name = f"{capital(metric_name(metric, language))} ({unit(metric, language)})"
    return [name, *_axes(load), *values, Value(word, tone=TONES[kind])]


def _figure(row: dict[str, float | None] | None, *, best: bool) -> Value:
    if row is None:
        return Value(figure(None))
    note = ""
    if row["low"] is not None and row["high"] is not None:
        note = f"{figure(row['low'])} – {figure(row['high'])}"
    return Value(figure(row["value"]), best=best, note=note)


def _axes(load: Load) -> list[str]:
    return [streams(load.concurrency), f"{load.input_tokens:,}", f"{load.output_tokens:,}"]


def comparisons(data: StudyData, metrics: Sequence[str] = PRIMARY) -> Fragment | NoData:
    """Return every pair of engines at every load, with ratio, interval, verdict and reason."""
    language = data.language
    rows = [
        row
        for metric in metrics
        for load in loads(data, metric)
        for row in _pairs(data, load, metric)
    ]
    if not rows:
        return NoData(say("table.comparisons", language), say("nodata.comparisons", language))
    columns = [
        Column(say("table.metric", language), filtered=True),
        Column(say("table.scenario", language), filtered=True),
        Column(say("table.load", language)),
        Column(say("table.pair", language), filtered=len(data.engines) > 2),  # noqa: PLR2004
        Column(say("table.advantage", language), numeric=True),
        Column(say("table.verdict", language), filtered=True),
        Column(say("table.blocks", language), numeric=True),
        Column(say("table.reason", language)),
    ]
    caption = say("table.comparisons", language)
    if data.study.get("margin") is not None:
        margin = say("table.margin", language, margin=share(data.study["margin"]))
        caption = say("table.captioned", language, caption=caption, text=margin)
    return table(columns, rows, caption=caption, interactive=True)


def _pairs(data: StudyData, load: Load, metric: str) -> list[list[Value | str]]:
    stored = load.rows(data.comparisons, metric)
    return [
        _pair_row(data, load, metric, row)
        for row in stored.sort("engine_a", "engine_b").iter_rows(named=True)
    ]


def _pair_row(
    data: StudyData, load: Load, metric: str, row: dict[str, object]
) -> list[Value | str]:
    language = data.language
    first, second = str(row["engine_a"]), str(row["engine_b"])
    pair = compare(data, load, metric, first, second)
    if pair is None:
        raise AssertionError("a stored comparison was not found again")
    verdict = known(f"pair.{pair.verdict.replace(' ', '_')}", language, pair.verdict)
    span = f"{ratio(pair.low)} – {ratio(pair.high)}" if pair.low and pair.high else ""
    advantage = Value(ratio(pair.advantage), sort=pair.advantage, note=span)
    return [
        capital(metric_name(metric, language)),
        series_name(data, load.scenario),
        Value(capital(amounts(load, language)), sort=float(load.concurrency)),
        say("table.versus", language, first=first, second=second),
        advantage,
        Value(verdict, tone=PAIR_TONES.get(pair.verdict, "old")),
        Value(str(row["n_pairs"] if row["n_pairs"] is not None else "")),
        brief_reason(pair.reason, language) if pair.verdict in UNSURE else "",
    ]
