"""Charts of the scenarios beyond throughput and length: reuse, conversations, JSON, online."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from enginebook.report import families
from enginebook.report.cellname import axes, short_name
from enginebook.report.charts import base
from enginebook.report.charts.dots import Dot, Words, draw
from enginebook.report.data import StudyData
from enginebook.report.fragment import NoData
from enginebook.report.numbers import data_size, seconds
from enginebook.report.outcome import Load, outcome
from enginebook.report.text import Language, count, known, listing, say
from enginebook.report.wording import capital, sentence

READY_TO_DRAINED = ("ready", "loaded_peak", "drained")
GIB = 2**30
Rows = dict[str, tuple[Load, str]]
"""Name of a row to the load and metric that it shows."""


def prefix_reuse(data: StudyData) -> base.Drawing:
    """Return the time to the first token by shared prefix."""
    return _by_load(data, families.PREFIX, "ttft_p50_ms")


def conversations(data: StudyData) -> base.Drawing:
    """Return the time to the first token of the first and of the last turn."""
    turns = ("ttft_turn_first_p50_ms", "ttft_turn_last_p50_ms")
    return _by_metric(data, families.SESSIONS, turns, "ttft_ms")


def structured(data: StudyData) -> base.Drawing:
    """Return the time that a valid answer takes, by answer format."""
    return _by_load(data, families.STRUCTURED, "time_per_valid_answer_ms")


def online(data: StudyData) -> base.Drawing:
    """Return the share of requests that met each objective, by rate."""
    metrics = families.metrics(data, ("slo_share.",))
    return _by_metric(data, families.ONLINE, metrics, "slo_share")


def _by_load(data: StudyData, family: families.Family, metric: str) -> base.Drawing:
    at = {short_name(data, load): (load, metric) for load in families.loads(data, family)}
    return _drawn(data, family, at, metric)


def _by_metric(
    data: StudyData, family: families.Family, metrics: tuple[str, ...], axis: str
) -> base.Drawing:
    loads = families.loads(data, family)
    at: Rows = {}
    for load in loads:
        for metric in metrics:
            name = families.row_name(metric, data.language)
            row = f"{short_name(data, load)}, {name}" if len(loads) > 1 else capital(name)
            at[row] = (load, metric)
    return _drawn(data, family, at, axis)


def _dots(data: StudyData, load: Load, metric: str, row: str) -> Iterator[Dot]:
    for r in load.rows(data.points, metric).drop_nulls("value").iter_rows(named=True):
        shown = families.shown(r, metric)
        yield Dot(r["engine"], row, r["value"], r["low"], r["high"], shown)


def _drawn(data: StudyData, family: families.Family, at: Rows, axis: str) -> base.Drawing:
    """Return the dots of these rows; the title tells the finding of the last one that has any."""
    language = data.language
    dots = [dot for row, (load, metric) in at.items() for dot in _dots(data, load, metric, row)]
    if not dots:
        return NoData(say(family.title, language), say("part.nothing", language))
    load, metric = at[dots[-1].row]
    blocks = int(load.rows(data.points, metric)["n_blocks"].to_numpy().max())
    sure = any(d.low is not None for d in dots)
    subtitle = say(
        "chart.intervals" if sure else "chart.no_intervals",
        language,
        blocks=count(blocks, "block", language),
    )
    words = Words(
        title=_title(data, family, load, metric),
        subtitle=subtitle,
        axis=capital(families.axis(axis, language)),
        percent=families.is_share(metric),
    )
    return draw(dots, words, data)


def _title(data: StudyData, family: families.Family, load: Load, metric: str) -> str:
    """Return the finding at the last row, where a comparison was made; else what is shown."""
    found = outcome(data, load, metric)
    if found is None or found.kind == "alone" or load.rows(data.comparisons, metric).is_empty():
        return say(family.title, data.language)
    return sentence(
        found, data.language, where=say("place.named", data.language, name=axes(data, load))
    )


def starts(data: StudyData) -> base.Drawing:
    """Return the time from start to first token by the state of caches, median of the starts."""
    language = data.language
    frame = data.starts.filter(pl.col("phase") == "first_token").drop_nulls("seconds")
    if frame.is_empty():
        return NoData(say("part.starts", language), say("part.nothing", language))
    found = frame.group_by("arm", "engine", maintain_order=True).agg(
        middle=pl.col("seconds").median(),
        low=pl.col("seconds").min(),
        high=pl.col("seconds").max(),
        n=pl.len(),
    )
    dots: list[Dot] = []
    spans = []
    for r in found.sort("arm", descending=True, maintain_order=True).iter_rows(named=True):
        low, high = (r["low"], r["high"]) if r["n"] > 1 else (None, None)
        shown = f"{seconds(r['middle'])} s"
        if low is not None:
            shown += f" ({seconds(low)} – {seconds(high)})"
        name = capital(known(f"arm.{r['arm']}", language, r["arm"]))
        dots.append(Dot(r["engine"], name, r["middle"], low, high, shown))
    for (engine,), mine in found.group_by(["engine"], maintain_order=True):
        ends = sorted(float(v) for v in mine["middle"].to_list())
        spans.append(_span(str(engine), seconds(ends[0]), seconds(ends[-1]), language))
    words = Words(
        title=say("chart.starts.title", language, parts=listing(spans, language)),
        subtitle=say("chart.starts.subtitle", language),
        axis=say("axis.launch", language),
    )
    return draw(dots, words, data)


def _span(engine: str, low: str, high: str, language: Language) -> str:
    key = "chart.starts.same" if low == high else "chart.starts.span"
    return say(key, language, engine=engine, low=low, high=high)


def memory_states(data: StudyData) -> base.Drawing:
    """Return what each engine holds in all when ready, at the peak under load, and after it."""
    language = data.language
    frame = data.memory.filter(pl.col("component") == "total").drop_nulls("bytes")
    if frame["state"].n_unique() < 2:  # noqa: PLR2004 - one state is the chart of components
        return NoData(say("part.memory_states", language), say("nodata.states", language))
    dots = [
        Dot(
            r["engine"],
            capital(known(f"state.{state}", language, state)),
            r["bytes"] / GIB,
            None,
            None,
            data_size(r["bytes"]),
        )
        for state in READY_TO_DRAINED
        for r in frame.filter(pl.col("state") == state).iter_rows(named=True)
    ]
    words = Words(
        title=say("chart.states.title", language),
        subtitle=say("chart.states.subtitle", language),
        axis=say("axis.memory", language, unit="GiB"),
    )
    return draw(dots, words, data)
