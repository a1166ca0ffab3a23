"""Lines over a load axis: one line an engine, intervals over blocks, names at the line's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from enginebook.report import theme
from enginebook.report.cellname import series_name
from enginebook.report.charts import base
from enginebook.report.data import StudyData
from enginebook.report.fragment import NoData
from enginebook.report.numbers import figure
from enginebook.report.outcome import LOAD, PLAIN, Load, outcome, shared, sweep
from enginebook.report.text import Language, count, listing, say
from enginebook.report.wording import Place, metric_name, sentence, unit

MOST_PANELS = 4
ENGINE, LIMIT = "engine", "limit"


@dataclass(frozen=True)
class Curve:
    """What a line chart shows.

    Attributes
    ----------
    metric
        On the vertical axis.
    axis
        The load axis on the horizontal one: ``concurrency`` or ``input_tokens``.
    """

    metric: str
    axis: Place

    def column(self) -> str:
        """Return the load column of the horizontal axis."""
        return str(self.axis)


def draw(data: StudyData, curve: Curve) -> base.Drawing:
    """Return the line chart of a metric over a load axis, or why there is none."""
    language = data.language
    points = _points(data, curve)
    if points.is_empty():
        what = metric_name(curve.metric, language)
        measured = (data.points["metric"] == curve.metric).any()
        return NoData(what, say("nodata.axis" if measured else "nodata.metric", language))
    panels = points["panel"].unique(maintain_order=True).to_list()
    limits = _limits(data, curve, points)
    frame = pl.concat([points, limits], how="diagonal")
    chart = _layers(frame, curve, data, single=len(panels) == 1)
    return base.finish(
        chart,
        title=_title(data, curve, points),
        subtitle=_subtitle(points, limits, language),
        description=_describe(points, curve, language),
        language=language,
    )


def _points(data: StudyData, curve: Curve) -> pl.DataFrame:
    """Return one row an engine and load, in the panels that vary along the axis."""
    axis = curve.column()
    rest = [name for name in LOAD if name != axis]
    frame = _on_axes(
        data, data.points.filter(pl.col("metric") == curve.metric, pl.col("value") > 0)
    )
    if frame.is_empty():
        return frame
    frame = frame.with_columns(_width=pl.col(axis).n_unique().over(rest))
    widest = int(frame["_width"].to_numpy().max())
    if widest == 1 and axis != "concurrency":
        return frame.clear()
    frame = frame.filter(pl.col("_width") >= min(2, widest)).sort(*rest, axis, "engine")
    # the sweep of which the findings speak comes first, and is never left out
    main = {tuple(getattr(load, n) for n in rest) for load in sweep(data, curve.metric, axis)}
    kept = frame.select(rest).unique(maintain_order=True)
    first = [row in main for row in kept.iter_rows()]
    kept = kept.with_columns(_first=pl.Series(first)).sort(
        "_first", descending=True, maintain_order=True
    )
    kept = kept.head(MOST_PANELS).with_row_index("_panel")
    frame = frame.join(kept, on=rest, how="inner", maintain_order="left")
    frame = frame.sort("_panel", maintain_order=True).drop("_panel", "_first")
    varied = [name for name in rest if kept[name].n_unique() > 1]
    return frame.with_columns(
        x=pl.col(axis),
        kind=pl.lit(ENGINE),
        panel=_panel_name(varied, data),
        tip=pl.struct("value", "low", "high").map_elements(_tip, return_dtype=pl.String),
    ).drop("_width")


def _on_axes(data: StudyData, points: pl.DataFrame) -> pl.DataFrame:
    """Return points that lie on axes of streams and lengths, those of plain loads if there are."""
    streamed = points.filter(pl.col("concurrency") > 0)
    plain = streamed.join(data.loads.filter(PLAIN), on=list(LOAD), how="semi")
    return streamed if plain.is_empty() else plain


def _panel_name(varied: Sequence[str], data: StudyData) -> pl.Expr:
    """Return the panel's heading: the load axes that differ between panels, with their values."""
    language = data.language
    if not varied:
        return pl.lit("")
    series = {s: series_name(data, s) for s in data.points["scenario"].unique().to_list()}
    words = [
        pl.format(f"{say(f'axis.{name}', language)} {{}}", pl.col(name).cast(pl.String))
        if name != "scenario"
        else pl.col("scenario").replace(series)
        for name in varied
    ]
    return pl.concat_str(words, separator=", ")


def _tip(row: dict[str, float | None]) -> str:
    if row["low"] is None or row["high"] is None:
        return figure(row["value"])
    return f"{figure(row['value'])} ({figure(row['low'])} – {figure(row['high'])})"


def _limits(data: StudyData, curve: Curve, points: pl.DataFrame) -> pl.DataFrame:
    """Return what physics allows at the loads that are drawn."""
    panels = points.select(*LOAD, "panel", "x").unique(maintain_order=True)
    found = data.limits.filter(pl.col("metric") == curve.metric, pl.col("high") > 0)
    return panels.join(found, on=list(LOAD), how="inner", maintain_order="left").select(
        "panel", "x", "source", pl.lit(LIMIT).alias("kind"), "low", "high"
    )


def _layers(frame: pl.DataFrame, curve: Curve, data: StudyData, *, single: bool) -> base.Figure:
    scale, ticks = base.value_scale(
        [*frame["value"].to_list(), *frame["low"].to_list(), *frame["high"].to_list()]
    )
    direct = single and base.named_directly(frame["engine"].drop_nulls().unique().to_list())
    x, y = _x(frame, curve, data.language, room=direct), _y(curve, scale, ticks, data.language)
    measured = alt.Chart().transform_filter(alt.datum.kind == ENGINE).encode(x=x, y=y)
    layers: list[alt.Chart] = []
    if (frame["kind"] == LIMIT).any():
        layers += _limit_layers(x, y)
    layers += _engine_layers(measured, y, data, legend=not direct)
    if direct:
        layers.append(_label_layer(_labels(frame, scale), x, y, data))
    if single:
        return alt.layer(*layers, data=frame).properties(width=base.WIDTH, height=base.HEIGHT)
    panel = alt.layer(*layers, data=frame).properties(width=280, height=220)
    return panel.facet(
        facet=alt.Facet(
            "panel:N", title=None, sort=frame["panel"].unique(maintain_order=True).to_list()
        ),
        columns=2,
    )


def _x(frame: pl.DataFrame, curve: Curve, language: Language, *, room: bool) -> alt.X:
    values = sorted(set(frame["x"].to_list()))
    ends: Any = [0, alt.ExprRef(f"width - {base.LABEL_ROOM}")] if room else alt.Undefined
    if base.is_wide(values):
        scale = alt.Scale(type="log", base=2, nice=False, padding=14, range=ends)
    else:
        scale = alt.Scale(zero=False, nice=False, padding=14, range=ends)
    axis = alt.Axis(values=values, format=",d", title=say(f"axis.{curve.axis}", language))
    return alt.X("x:Q", scale=scale, axis=axis)


def _y(curve: Curve, scale: alt.Scale, ticks: list[float] | None, language: Language) -> alt.Y:
    title = f"{metric_name(curve.metric, language)} ({unit(curve.metric, language)})"
    axis = alt.Axis(title=title, format="~r", values=ticks or alt.Undefined, tickCount=6)
    if ticks:
        axis = alt.Axis(title=title, format=",~r", values=ticks)
    return alt.Y("value:Q", scale=scale, axis=axis)


def _limit_layers(x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Draw the physical limit as a band, since the limit itself is known within bounds."""
    limit = alt.Chart().transform_filter(alt.datum.kind == LIMIT)
    ink = theme.light("muted")
    band = limit.mark_area(opacity=0.16, color=ink).encode(x=x, y=y_of(y, "low"), y2="high:Q")
    edge = limit.mark_line(color=ink, strokeDash=[3, 3], strokeWidth=1)
    return [band, edge.encode(x=x, y=y_of(y, "low")), edge.encode(x=x, y=y_of(y, "high"))]


def y_of(y: alt.Y, field: str) -> alt.Y:
    """Return the same vertical encoding over another column."""
    made: alt.Y = y.copy()
    made.shorthand = f"{field}:Q"
    return made


def _engine_layers(
    measured: alt.Chart, y: alt.Y, data: StudyData, *, legend: bool
) -> list[alt.Chart]:
    colour = base.engine_colour(data.engines, legend=legend)
    shape = base.engine_shape(data.engines)
    dash = base.engine_dash(data.engines, legend=legend)
    interval = measured.transform_filter("isValid(datum.low)")
    return [
        interval.mark_rule(strokeWidth=1.5).encode(y=y_of(y, "low"), y2="high:Q", color=colour),
        measured.mark_line(strokeWidth=2).encode(color=colour, strokeDash=dash),
        measured.mark_point(size=64, filled=True, opacity=1).encode(
            color=colour, shape=shape, tooltip=_tooltip(data.language)
        ),
    ]


def _tooltip(language: Language) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("engine:N", title=say("table.engine", language)),
        alt.Tooltip("x:Q", title=say("chart.at", language), format=",d"),
        alt.Tooltip("tip:N", title=say("chart.value", language)),
        alt.Tooltip("n_blocks:Q", title=say("table.blocks", language)),
    ]


def _labels(frame: pl.DataFrame, scale: alt.Scale) -> pl.DataFrame:
    """Return each engine's last point, with a height at which its name has room."""
    last = frame.filter(pl.col("kind") == ENGINE).sort("x").group_by("engine").last()
    last = last.sort("engine")
    heights = base.spread(last["value"].to_list(), scale)
    return last.with_columns(value=pl.Series(heights, dtype=pl.Float64)).select(
        "engine", "x", "value"
    )


def _label_layer(labels: pl.DataFrame, x: alt.X, y: alt.Y, data: StudyData) -> alt.Chart:
    text: alt.Chart = alt.Chart(labels).mark_text(align="left", dx=12, fontWeight=600)
    colour = base.engine_colour(data.engines)
    return text.encode(x=x, y=y, text="engine:N", color=colour)


def _title(data: StudyData, curve: Curve, points: pl.DataFrame) -> str:
    """Return the finding at the far end of the axis, where the engines differ in practice."""
    swept = shared(data, sweep(data, curve.metric, curve.column()), curve.metric)
    end = points.filter(pl.col("x") == pl.col("x").max().over("panel"))
    full = end.group_by([*LOAD], maintain_order=True).agg(pl.col("engine").n_unique())
    at = full.sort("engine", descending=True, maintain_order=True).row(0, named=True)
    drawn = {Load(*row) for row in points.select(LOAD).iter_rows()}
    load = Load(*(at[name] for name in LOAD))
    if swept and swept[-1] in drawn:
        load = swept[-1]
    found = outcome(data, load, curve.metric)
    if found is None:
        raise AssertionError("a drawn point has no outcome")
    several = points["panel"].n_unique() > 1
    return sentence(found, data.language, "full" if several else curve.axis)


def _subtitle(points: pl.DataFrame, limits: pl.DataFrame, language: Language) -> str:
    blocks = int(points["n_blocks"].to_numpy().max())
    key = "chart.intervals" if points["low"].is_not_null().any() else "chart.no_intervals"
    text = say(key, language, blocks=count(blocks, "block", language))
    if limits.is_empty():
        return text
    sources = listing(sorted(set(limits["source"].to_list())), language)
    return f"{text} {say('chart.limit', language, source=sources)}"


def _describe(points: pl.DataFrame, curve: Curve, language: Language) -> str:
    """Return every drawn value in words, for readers who cannot see the chart."""
    name = f"{metric_name(curve.metric, language)} ({unit(curve.metric, language)})"
    text = say("chart.describe.lines", language, y=name, x=say(f"axis.{curve.axis}", language))
    for (panel, engine), rows in points.group_by(["panel", "engine"], maintain_order=True):
        values = "; ".join(f"{x:,}: {tip}" for x, tip in rows.select("x", "tip").iter_rows())
        text += f" {panel + ' ' if panel else ''}{engine}: {values}."
    return text
