"""Memory by component: what an engine holds once it serves."""

from __future__ import annotations

import altair as alt
import polars as pl

from enginebook.report import theme
from enginebook.report.charts import base
from enginebook.report.data import StudyData
from enginebook.report.numbers import data_size
from enginebook.report.text import Language, known, say

ORDER = ("weights", "kv_cache", "graphs", "activations", "other")
TOTAL = "total"
READY = "ready"
MIB, GIB = 2**20, 2**30
ROW = 46


def ready(data: StudyData) -> pl.DataFrame:
    """Return what engines hold once they are ready, before any load."""
    return data.memory.filter(pl.col("state") == READY)


def totals(data: StudyData) -> dict[str, int]:
    """Return bytes an engine holds in all: what it reports as total, else the sum of its parts."""
    found: dict[str, int] = {}
    for engine in data.engines:
        mine = ready(data).filter(pl.col("engine") == engine).drop_nulls("bytes")
        whole = mine.filter(pl.col("component") == TOTAL)
        chosen = whole if not whole.is_empty() else mine
        if not chosen.is_empty():
            found[engine] = int(sum(chosen["bytes"].to_list()))
    return found


def memory(data: StudyData) -> base.Drawing:
    """Return bytes by component and engine; what the parts leave of the total is shown as such."""
    language = data.language
    whole = totals(data)
    if not whole:
        return base.no_data("chart.memory.what", "nodata.memory", language)
    parts = _parts(data, whole)
    return base.finish(
        _chart(parts, whole, data),
        title=_title(whole, language),
        subtitle=say("chart.memory.subtitle", language),
        description=_describe(parts, whole, language),
        language=language,
    )


def _parts(data: StudyData, whole: dict[str, int]) -> pl.DataFrame:
    """Return the parts of each engine, and what they leave of its total as "not broken down"."""
    language = data.language
    parts = ready(data).filter(pl.col("component") != TOTAL, pl.col("bytes") > 0)
    rows = [dict(row) for row in parts.iter_rows(named=True)]
    for engine, total in whole.items():
        rest = total - sum(r["bytes"] for r in rows if r["engine"] == engine)
        if rest > total * 0.005:
            left = {"engine": engine, "component": "rest", "bytes": rest, "source": ""}
            rows.append(left | {"state": READY})
    frame = pl.DataFrame(rows, schema=data.memory.schema)
    names = {c: known(f"component.{c}", language, c) for c in frame["component"].unique()}
    return frame.with_columns(
        name=pl.col("component").replace(names),
        size=pl.col("bytes").map_elements(data_size, return_dtype=pl.String),
        order=pl.col("component").replace_strict(
            {c: i for i, c in enumerate(ORDER)}, default=len(ORDER), return_dtype=pl.Int64
        ),
    ).sort("engine", "order")


def _chart(parts: pl.DataFrame, whole: dict[str, int], data: StudyData) -> base.Figure:
    scale, unit = (GIB, "GiB") if max(whole.values()) >= GIB else (MIB, "MiB")
    frame = parts.with_columns(amount=pl.col("bytes") / scale)
    rows = alt.Y(
        "engine:N", title=None, sort=sorted(whole, key=lambda e: whole[e]), axis=row_axis()
    )
    room = base.room_for_values(max(whole.values()) / scale)
    title = say("axis.memory", data.language, unit=unit)
    axis = alt.Axis(title=title, grid=True, tickCount=6)
    x = alt.X("amount:Q", stack="zero", scale=room, axis=axis)
    bars = alt.Chart(frame).mark_bar(height=22, stroke=theme.light("paper"), strokeWidth=1)
    bars = bars.encode(
        x=x,
        y=rows,
        order=alt.Order("order:Q"),
        color=part_colour(frame.sort("order")["name"].unique(maintain_order=True).to_list()),
        tooltip=_tooltip(data.language),
    )
    ends = pl.DataFrame(
        [{"engine": e, "amount": b / scale, "text": data_size(b)} for e, b in whole.items()]
    )
    label = alt.Chart(ends).mark_text(align="left", dx=6, fontWeight=600)
    label = label.encode(x=alt.X("amount:Q", scale=room), y=rows, text="text:N")
    return alt.layer(bars, label).properties(width=base.WIDTH, height=ROW * len(whole))


def part_colour(names: list[str]) -> alt.Color:
    """Return the colour encoding of the parts of a whole, in their order."""
    domain, colours = theme.parts(names)
    scale = alt.Scale(domain=domain, range=colours)
    return alt.Color("name:N", scale=scale, sort=domain, legend=alt.Legend(columns=4))


def row_axis() -> alt.Axis:
    """Return an axis that names the engines at the left of their bars."""
    return alt.Axis(
        labelFontWeight=600, labelColor=theme.light("ink"), labelFontSize=13, grid=False
    )


def _tooltip(language: Language) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("engine:N", title=say("table.engine", language)),
        alt.Tooltip("name:N", title=say("table.component", language)),
        alt.Tooltip("size:N", title=say("table.size", language)),
        alt.Tooltip("source:N", title=say("table.source", language)),
    ]


def _title(whole: dict[str, int], language: Language) -> str:
    ordered = sorted(whole, key=lambda e: whole[e])
    least, most = ordered[0], ordered[-1]
    fields = {"least": least, "least_size": data_size(whole[least])}
    if len(ordered) == 1:
        return say("chart.memory.alone", language, **fields)
    fields |= {"most": most, "most_size": data_size(whole[most])}
    return say("chart.memory.title", language, **fields)


def _describe(parts: pl.DataFrame, whole: dict[str, int], language: Language) -> str:
    text = say("chart.memory.describe", language)
    for engine, total in whole.items():
        mine = parts.filter(pl.col("engine") == engine)
        listed = "; ".join(
            f"{name} {size}" for name, size in mine.select("name", "size").iter_rows()
        )
        text += f" {engine}: {data_size(total)}: {listed}."
    return text
