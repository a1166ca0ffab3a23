"""Dots in rows: one row a load or state, one dot an engine, with its interval where known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from enginebook.report import theme
from enginebook.report.charts import base
from enginebook.report.data import StudyData
from enginebook.report.text import say

LABEL_WIDTH = 26  # characters of a row's name in one line
ROW, DOT_GAP = 26, 14  # px of a row with one engine, and for each further one
SCHEMA = {
    "engine": pl.String, "row": pl.String, "value": pl.Float64, "low": pl.Float64,
    "high": pl.Float64, "tip": pl.String,
}  # fmt: skip


@dataclass(frozen=True)
class Dot:
    """A value of one engine in one row; ``shown`` is the value in words, with its interval."""

    engine: str
    row: str
    value: float
    low: float | None
    high: float | None
    shown: str


@dataclass(frozen=True)
class Words:
    """What the chart says: its finding, how to read it, and what its axis measures."""

    title: str
    subtitle: str
    axis: str
    percent: bool = False


def draw(dots: Sequence[Dot], words: Words, data: StudyData) -> base.Figure:
    """Return the chart; rows stand in the order in which they first occur."""
    rows = [(d.engine, d.row, d.value, d.low, d.high, d.shown) for d in dots]
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return base.finish(
        _chart(frame, words, data),
        title=words.title,
        subtitle=words.subtitle,
        description=_describe(dots, words),
        language=data.language,
    )


def _chart(frame: pl.DataFrame, words: Words, data: StudyData) -> base.Figure:
    order = frame["row"].unique(maintain_order=True).to_list()
    wrapped = {name: "\n".join(base.wrap(name, LABEL_WIDTH)) for name in order}
    frame = frame.with_columns(line=pl.col("row").replace(wrapped))
    engines = [e for e in data.engines if e in set(frame["engine"].to_list())]
    every = alt.Chart(frame).encode(
        y=alt.Y("line:N", title=None, sort=list(wrapped.values()), axis=_row_axis()),
        yOffset=alt.YOffset("engine:N", sort=engines),
    )
    scale = theme.engine_scale(data.engines)
    colours = alt.Scale(domain=scale["domain"], range=scale["colours"])
    shapes = alt.Scale(domain=scale["domain"], range=scale["shapes"])
    legend = alt.Legend(values=engines, columns=4)
    colour = alt.Color("engine:N", scale=colours, legend=legend)
    x = _x("value:Q", frame, words)
    spans = every.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.5)
    spans = spans.encode(x=_x("low:Q", frame, words), x2="high:Q", color=colour)
    points = every.mark_point(size=64, filled=True, opacity=1).encode(
        x=x,
        color=colour,
        shape=alt.Shape("engine:N", scale=shapes, legend=legend),
        tooltip=[
            alt.Tooltip("engine:N", title=say("table.engine", data.language)),
            alt.Tooltip("row:N", title=say("table.load", data.language)),
            alt.Tooltip("tip:N", title=say("chart.value", data.language)),
        ],
    )
    height = len(order) * (ROW + DOT_GAP * max(1, len(engines)))
    layers = [spans, points] if frame["low"].is_not_null().any() else [points]
    return alt.layer(*layers).properties(width=base.WIDTH, height=height)


def _row_axis() -> alt.Axis:
    return alt.Axis(
        labelExpr="split(datum.label, '\\n')",
        labelColor=theme.light("ink"),
        labelLimit=220,
        labelLineHeight=14,
        grid=True,
        bandPosition=0,
        tickBand="extent",
    )


def _x(field: str, frame: pl.DataFrame, words: Words) -> alt.X:
    values = [*frame["value"].to_list(), *frame["low"].to_list(), *frame["high"].to_list()]
    scale, ticks = base.value_scale(values)
    look = ".0%" if words.percent else ",~r"
    axis = alt.Axis(title=words.axis, format=look, values=ticks or alt.Undefined, tickCount=6)
    axis.grid = True
    return alt.X(field, scale=scale, axis=axis)


def _describe(dots: Sequence[Dot], words: Words) -> str:
    """Return every drawn value in words, for readers who cannot see the chart."""
    rows: dict[str, list[str]] = {}
    for dot in dots:
        rows.setdefault(dot.row, []).append(f"{dot.engine} {dot.shown}")
    listed = " ".join(f"{row}: {'; '.join(values)}." for row, values in rows.items())
    return f"{words.axis}. {listed}"
