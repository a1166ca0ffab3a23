"""How times are distributed over requests: the share that is at most so long."""

from __future__ import annotations

import altair as alt
import polars as pl

from enginebook.report.cellname import load_place
from enginebook.report.charts import base
from enginebook.report.data import StudyData
from enginebook.report.fragment import NoData
from enginebook.report.numbers import duration_ms
from enginebook.report.outcome import LOAD, Load
from enginebook.report.text import Language, say
from enginebook.report.wording import capital, metric_name, unit

MEDIAN, TAIL = 0.5, 0.9
MOST_SPANS = 3


def ecdf(data: StudyData, metric: str = "ttft_ms") -> base.Drawing:
    """Return the distribution of a per-request time at the heaviest load, one line an engine."""
    language = data.language
    frame = data.quantiles.filter(pl.col("metric") == metric, pl.col("value") > 0)
    if frame.is_empty():
        return NoData(metric_name(metric, language), say("nodata.quantiles", language))
    heaviest = Load(*frame.sort("concurrency", descending=True).select(LOAD).row(0))
    frame = heaviest.rows(frame, metric).sort("engine", "q").select("engine", "q", _short("value"))
    return base.finish(
        _chart(frame, metric, data),
        title=_title(frame, metric, heaviest, data),
        subtitle=say("chart.ecdf.subtitle", language),
        description=_describe(frame, metric, language),
        language=language,
    )


def _short(column: str) -> pl.Expr:
    """Return values with four significant digits: more cannot be seen, and would fill the page."""
    return pl.col(column).round_sig_figs(4)


def _chart(frame: pl.DataFrame, metric: str, data: StudyData) -> base.Figure:
    language = data.language
    scale, ticks = base.value_scale(frame["value"].to_list())
    title = f"{capital(metric_name(metric, language))} ({unit(metric, language)})"
    x = alt.X(
        "value:Q",
        scale=scale,
        axis=alt.Axis(title=title, values=ticks or alt.Undefined, format=",~r", tickCount=7),
    )
    share = alt.Axis(title=say("axis.share", language), format=".0%", tickCount=5)
    y = alt.Y("q:Q", scale=alt.Scale(domain=[0, 1]), axis=share)
    lines = alt.Chart(frame).encode(
        x=x,
        y=y,
        color=base.engine_colour(data.engines, legend=True),
        strokeDash=base.engine_dash(data.engines, legend=True),
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("engine:N", title=say("table.engine", language)),
        alt.Tooltip("q:Q", title=say("axis.share", language), format=".0%"),
        alt.Tooltip("value:Q", title=title, format=",.3~r"),
    ]
    line = lines.mark_line(strokeWidth=2, interpolate="step-before")
    every = alt.Chart(frame.filter((pl.col("q") * 100).round().cast(pl.Int64) % 5 == 0))
    touch = every.mark_point(size=180, opacity=0).encode(x=x, y=y, tooltip=tooltip)
    return alt.layer(line, touch).properties(width=base.WIDTH, height=base.HEIGHT)


def at(frame: pl.DataFrame, engine: str, share: float) -> float:
    """Return the value that a share of an engine's requests does not exceed."""
    mine = frame.filter(pl.col("engine") == engine, pl.col("q") >= share - 1e-9).sort("q")
    return float(mine["value"][0]) if not mine.is_empty() else float(frame["value"].to_list()[-1])


def _spans(frame: pl.DataFrame, language: Language) -> str:
    return "; ".join(
        say(
            "chart.ecdf.span",
            language,
            engine=engine,
            median=duration_ms(at(frame, engine, MEDIAN)),
            tail=duration_ms(at(frame, engine, TAIL)),
        )
        for engine in frame["engine"].unique(maintain_order=True)
    )


def _title(frame: pl.DataFrame, metric: str, load: Load, data: StudyData) -> str:
    language = data.language
    name = capital(metric_name(metric, language))
    where = load_place(data, load, "concurrency")
    ends = _fastest_and_slowest(frame)
    spans = _spans(frame.filter(pl.col("engine").is_in(ends)), language)
    return say("chart.ecdf.title", language, metric=name, place=where, spans=spans)


def _fastest_and_slowest(frame: pl.DataFrame) -> list[str]:
    """Return the engines that a title has room for: all, or of many those at both ends."""
    engines = frame["engine"].unique(maintain_order=True).to_list()
    if len(engines) <= MOST_SPANS:
        return engines
    ordered = sorted(engines, key=lambda engine: at(frame, engine, MEDIAN))
    return [ordered[0], ordered[-1]]


def _describe(frame: pl.DataFrame, metric: str, language: Language) -> str:
    name = f"{metric_name(metric, language)} ({unit(metric, language)})"
    return say("chart.ecdf.describe", language, metric=name, spans=_spans(frame, language))
