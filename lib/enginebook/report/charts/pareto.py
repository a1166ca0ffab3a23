"""Throughput of the machine against speed for each user: what one costs of the other."""

from __future__ import annotations

import altair as alt
import polars as pl

from enginebook.report.charts import base
from enginebook.report.data import StudyData
from enginebook.report.numbers import figure
from enginebook.report.outcome import LOAD, sweep
from enginebook.report.text import Language, count, listing, say

RATE, TIME = "output_tokens_per_s", "tpot_p50_ms"
MS_PER_S = 1000.0
MOST_NAMES = 4  # more names would lie on each other: a legend takes their place


def pareto(data: StudyData) -> base.Drawing:
    """Return total output rate against the rate of one stream (1000 / median TPOT in ms).

    Up and to the right is better; a point is on the front when no other point beats it in both.
    """
    language = data.language
    frame = _frame(data)
    if frame.is_empty():
        return base.no_data("chart.pareto.what", "nodata.metric", language)
    return base.finish(
        _chart(frame, data),
        title=_title(frame, language),
        subtitle=say("chart.pareto.subtitle", language),
        description=_describe(frame, language),
        language=language,
    )


def _frame(data: StudyData) -> pl.DataFrame:
    """Return one row an engine and load of the concurrency sweep, with both rates."""
    keys = ["engine", *LOAD]
    loads = [
        tuple(getattr(load, name) for name in LOAD) for load in sweep(data, RATE, "concurrency")
    ]
    wanted = pl.DataFrame(
        loads, schema=dict.fromkeys(LOAD, pl.Int64) | {"scenario": pl.String}, orient="row"
    )
    points = data.points.join(wanted, on=list(LOAD), how="semi").filter(pl.col("value") > 0)
    total = points.filter(pl.col("metric") == RATE).select(*keys, total="value")
    time = points.filter(pl.col("metric") == TIME).select(*keys, user=MS_PER_S / pl.col("value"))
    frame = total.join(time, on=keys).sort("engine", "concurrency")
    return frame.with_columns(front=_on_front(frame))


def _on_front(frame: pl.DataFrame) -> pl.Series:
    """Return which points no other point beats in both rates."""
    rows = list(frame.select("total", "user").iter_rows())
    beaten = [any(t > mine_t and u > mine_u for t, u in rows) for mine_t, mine_u in rows]
    return pl.Series("front", [not b for b in beaten], dtype=pl.Boolean)


def _chart(frame: pl.DataFrame, data: StudyData) -> base.Figure:
    language = data.language
    names = frame["engine"].unique().to_list()
    crowded = len(names) > MOST_NAMES or not base.named_directly(names)
    colour = base.engine_colour(data.engines, legend=crowded)
    dash, shape = (
        base.engine_dash(data.engines, legend=crowded), base.engine_shape(data.engines),
    )  # fmt: skip
    x_scale, x_ticks = base.value_scale(frame["user"].to_list())
    y_scale, y_ticks = base.value_scale(frame["total"].to_list())
    x = alt.X("user:Q", scale=x_scale, axis=_axis("axis.per_user", x_ticks, language))
    y = alt.Y("total:Q", scale=y_scale, axis=_axis("axis.total", y_ticks, language))
    points = alt.Chart(frame).encode(x=x, y=y, color=colour, order="concurrency:Q")
    dots = points.mark_point(size=64, filled=True, opacity=1).encode(
        shape=shape, tooltip=_tooltip(language)
    )
    numbers = points.mark_text(dy=-12, fontSize=11).encode(text="concurrency:Q")
    # the name stands over the heaviest load: at the lightest one the engines are often close
    ends = frame.sort("concurrency").group_by("engine", maintain_order=True).last()
    over = alt.Chart(ends).mark_text(dy=-28, fontWeight=600, align="center")
    line = points.mark_line(strokeWidth=2).encode(strokeDash=dash)
    named = [over.encode(x=x, y=y, text="engine:N", color=colour)] if not crowded else []
    layers = alt.layer(line, dots, numbers, *named)
    return layers.properties(width=base.WIDTH, height=base.HEIGHT)


def _axis(key: str, ticks: list[float] | None, language: Language) -> alt.Axis:
    return alt.Axis(title=say(key, language), format=",~r", values=ticks or alt.Undefined)


def _tooltip(language: Language) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("engine:N", title=say("table.engine", language)),
        alt.Tooltip("concurrency:Q", title=say("axis.concurrency", language)),
        alt.Tooltip("total:Q", title=say("axis.total", language), format=",.3~r"),
        alt.Tooltip("user:Q", title=say("axis.per_user", language), format=",.3~r"),
    ]


def _title(frame: pl.DataFrame, language: Language) -> str:
    on_front = frame.filter(pl.col("front"))["engine"].unique(maintain_order=True).to_list()
    if frame["engine"].n_unique() == 1:
        return say("chart.pareto.alone", language, engine=on_front[0])
    if len(on_front) == 1:
        return say("chart.pareto.one", language, engine=on_front[0])
    return say("chart.pareto.many", language, engines=listing(sorted(on_front), language))


def _describe(frame: pl.DataFrame, language: Language) -> str:
    text = say("chart.pareto.describe", language)
    for (engine,), rows in frame.group_by(["engine"], maintain_order=True):
        values = "; ".join(
            say(
                "chart.pareto.point",
                language,
                streams=count(row["concurrency"], "stream", language),
                total=figure(row["total"]),
                user=figure(row["user"]),
            )
            for row in rows.iter_rows(named=True)
        )
        text += f" {engine}: {values}."
    return text
