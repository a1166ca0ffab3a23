"""Time to serve: what happens between starting an engine's process and its first token."""

from __future__ import annotations

import altair as alt
import polars as pl

from enginebook.report import theme
from enginebook.report.charts import base
from enginebook.report.charts.memory import part_colour, row_axis
from enginebook.report.data import StudyData
from enginebook.report.numbers import seconds
from enginebook.report.text import Language, count, known, say

ORDER = ("process", "imports", "weights", "compile", "cache", "ready", "first_token")
ROW = 46


def starts(data: StudyData) -> pl.DataFrame:
    """Return one row a start: engine, block, total_s from process start to the last phase's end."""
    return (
        data.launches.group_by("engine", "block", maintain_order=True)
        .agg(total_s=pl.col("end_s").max())
        .sort("engine", "block")
    )


def totals(data: StudyData) -> pl.DataFrame:
    """Return one row an engine: median, least and most seconds to serve, and the starts seen."""
    return (
        starts(data)
        .group_by("engine", maintain_order=True)
        .agg(
            median_s=pl.col("total_s").median(),
            least_s=pl.col("total_s").min(),
            most_s=pl.col("total_s").max(),
            starts=pl.len(),
        )
        .sort("median_s", "engine")
    )


def time_to_serve(data: StudyData) -> base.Drawing:
    """Return start-up phases by engine, each where it really lies in time (median of starts)."""
    language = data.language
    if data.launches.is_empty():
        return base.no_data("chart.launch.what", "nodata.launches", language)
    phases, total = _phases(data), totals(data)
    return base.finish(
        _chart(phases, total, data),
        title=_title(total, language),
        subtitle=say("chart.launch.subtitle", language),
        description=_describe(phases, total, language),
        language=language,
    )


def _phases(data: StudyData) -> pl.DataFrame:
    language = data.language
    frame = data.launches.group_by("engine", "phase", maintain_order=True).agg(
        start=pl.col("start_s").median(),
        end=pl.col("end_s").median(),
        source=pl.col("source").first(),
    )
    names = {phase: known(f"phase.{phase}", language, phase) for phase in frame["phase"].unique()}
    return frame.with_columns(
        seconds=pl.col("end") - pl.col("start"),
        name=pl.col("phase").replace(names),
    ).sort("engine", "start")


def _domain(phases: pl.DataFrame) -> list[str]:
    """Return phase names in their usual order; unknown ones come last."""
    found = dict(phases.select("phase", "name").unique(maintain_order=True).iter_rows())
    usual = [found[p] for p in ORDER if p in found]
    return usual + sorted(name for p, name in found.items() if p not in ORDER)


def _chart(phases: pl.DataFrame, total: pl.DataFrame, data: StudyData) -> base.Figure:
    language = data.language
    rows = alt.Y("engine:N", title=None, sort=total["engine"].to_list(), axis=row_axis())
    room = base.room_for_values(max(total["most_s"].to_list()))
    axis = alt.Axis(title=say("axis.launch", language), grid=True, tickCount=6)
    bars = alt.Chart(phases).mark_bar(height=22, stroke=theme.light("paper"), strokeWidth=1)
    bars = bars.encode(
        x=alt.X("start:Q", scale=room, axis=axis),
        x2="end:Q",
        y=rows,
        color=part_colour(_domain(phases)),
        tooltip=_tooltip(language),
    )
    ends = alt.Chart(total.with_columns(text=_total_text(total)))
    span = ends.mark_rule(strokeWidth=1.5)
    span = span.encode(x=alt.X("least_s:Q", scale=room), x2="most_s:Q", y=rows)
    label = ends.mark_text(align="left", dx=8, fontWeight=600)
    label = label.encode(x=alt.X("most_s:Q", scale=room), y=rows, text="text:N")
    return alt.layer(bars, span, label).properties(width=base.WIDTH, height=ROW * total.height)


def _total_text(total: pl.DataFrame) -> pl.Series:
    return pl.Series([f"{seconds(v)} s" for v in total["median_s"].to_list()], dtype=pl.String)


def _tooltip(language: Language) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("engine:N", title=say("table.engine", language)),
        alt.Tooltip("name:N", title=say("table.phase", language)),
        alt.Tooltip("seconds:Q", title=say("table.seconds", language), format=",.3~r"),
        alt.Tooltip("source:N", title=say("table.source", language)),
    ]


def _title(total: pl.DataFrame, language: Language) -> str:
    first, last = total.row(0, named=True), total.row(-1, named=True)
    fields = {"fast": first["engine"], "fast_s": seconds(first["median_s"])}
    if total.height == 1:
        return say("chart.launch.alone", language, **fields)
    fields |= {"slow": last["engine"], "slow_s": seconds(last["median_s"])}
    return say("chart.launch.title", language, **fields)


def _describe(phases: pl.DataFrame, total: pl.DataFrame, language: Language) -> str:
    text = say("chart.launch.describe", language)
    for row in total.iter_rows(named=True):
        mine = phases.filter(pl.col("engine") == row["engine"])
        parts = "; ".join(
            f"{name} {seconds(s)} s" for name, s in mine.select("name", "seconds").iter_rows()
        )
        seen = count(row["starts"], "start", language)
        text += f" {row['engine']}: {seconds(row['median_s'])} s ({seen}): {parts}."
    return text
