"""What an engine and its host did during one load cell, second by second."""

from __future__ import annotations

import altair as alt
import polars as pl

from enginebook.report.cellname import load_place
from enginebook.report.charts import base
from enginebook.report.data import StudyData
from enginebook.report.numbers import figure
from enginebook.report.outcome import LOAD, Load
from enginebook.report.text import Language, known, say

MOST_SERIES = 6


def timeline(data: StudyData, series: list[str] | None = None) -> base.Drawing:
    """Return time series of the heaviest load cell, one panel a series, one line an engine.

    Parameters
    ----------
    data
        The study.
    series
        Names of frame `samples` to draw; the first six that vary when None.
    """
    language = data.language
    frame = data.samples.drop_nulls("value")
    if series is not None:
        frame = frame.filter(pl.col("series").is_in(series))
    if frame.is_empty():
        return base.no_data("chart.timeline.what", "nodata.samples", language)
    load = Load(*frame.sort("concurrency", descending=True).select(LOAD).row(0))
    frame = frame.filter(*[pl.col(name) == getattr(load, name) for name in LOAD])
    frame = _named(frame, _chosen(frame), language)
    return base.finish(
        _chart(frame, data),
        title=say("chart.timeline.title", language, place=load_place(data, load)),
        subtitle=say("chart.timeline.subtitle", language),
        description=_describe(frame, language),
        language=language,
    )


def _chosen(frame: pl.DataFrame) -> list[str]:
    """Return series that change in time; a flat line says no more than a table does."""
    spread = frame.group_by("series", maintain_order=True).agg(
        varies=(pl.col("value").max() - pl.col("value").min()) > 0
    )
    moving = spread.filter(pl.col("varies"))["series"].to_list()
    return (moving or spread["series"].to_list())[:MOST_SERIES]


def _named(frame: pl.DataFrame, chosen: list[str], language: Language) -> pl.DataFrame:
    kept = frame.filter(pl.col("series").is_in(chosen))
    units = dict(kept.select("series", "unit").unique(maintain_order=True).iter_rows())
    names = {}
    for name in chosen:
        words = known(f"series.{name}", language, name.replace("_", " "))
        names[name] = f"{words} ({units[name]})" if units.get(name) else words
    kept = kept.with_columns(panel=pl.col("series").replace(names)).sort("series", "engine", "t_s")
    return kept.select("engine", "panel", "t_s", pl.col("value").round_sig_figs(4))


def _chart(frame: pl.DataFrame, data: StudyData) -> base.Figure:
    language = data.language
    lines = alt.Chart().mark_line(strokeWidth=1.5).encode(
        x=alt.X("t_s:Q", axis=alt.Axis(title=say("axis.time", language), tickCount=5)),
        y=alt.Y("value:Q", axis=alt.Axis(title=None, tickCount=4), scale=alt.Scale(zero=True)),
        color=base.engine_colour(data.engines, legend=True),
        strokeDash=base.engine_dash(data.engines, legend=True),
        tooltip=[
            alt.Tooltip("engine:N", title=say("table.engine", language)),
            alt.Tooltip("t_s:Q", title=say("axis.time", language), format=".1f"),
            alt.Tooltip("value:Q", title=say("chart.value", language), format=",.3~r"),
        ],
    )  # fmt: skip
    panel = alt.layer(lines, data=frame).properties(width=280, height=110)
    facet = alt.Facet(
        "panel:N", title=None, sort=frame["panel"].unique(maintain_order=True).to_list()
    )
    figure: base.Figure = panel.facet(facet=facet, columns=2).resolve_scale(
        y="independent", x="shared"
    )
    return figure


def _describe(frame: pl.DataFrame, language: Language) -> str:
    text = say("chart.timeline.describe", language)
    ranges = frame.group_by("panel", "engine", maintain_order=True).agg(
        low=pl.col("value").min(), mean=pl.col("value").mean(), high=pl.col("value").max()
    )
    for row in ranges.iter_rows(named=True):
        low, mean, high = (figure(row[k]) for k in ("low", "mean", "high"))
        text += f" {row['panel']}, {row['engine']}: " + say(
            "chart.timeline.range", language, low=low, mean=mean, high=high
        )
    return text
