"""Tables of arms: under which options engines ran, and what equal options change."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from enginebook.report.cellname import load_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, ratio
from enginebook.report.outcome import Load, loads
from enginebook.report.tables.parts import value_cell
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import known, say
from enginebook.report.wording import capital, metric_name, unit
from enginebook.stats import PRIMARY

DEFAULTS, EQUALISED = "defaults", "equalised"


def arms(data: StudyData) -> Fragment | NoData:
    """Return each engine's arm, model, version and options, as the study set them."""
    language, caption = data.language, say("part.options", data.language)
    if data.arms.is_empty():
        return NoData(caption, say("part.nothing", language))
    rows: list[Row] = [
        [
            r["engine"],
            known(f"arm.{r['arm']}", language, r["arm"]),
            r["version"],
            r["model"],
            Value(r["options"], code=True),
        ]
        for r in data.arms.iter_rows(named=True)
    ]
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.option_set", language)),
        Column(say("table.version", language)),
        Column(say("table.model", language)),
        Column(say("table.options", language)),
    ]
    return table(columns, rows, caption=caption)


def arm_comparison(data: StudyData) -> Fragment | NoData:
    """Return each engine at the same load with its defaults and with equalised options.

    The ratio has no verdict: engines are compared with each other within an arm, and this is one
    engine with itself.
    """
    language, caption = data.language, say("part.arms", data.language)
    rows = [row for first, second in _pairs(data) for row in _pair_rows(data, first, second)]
    if not rows:
        return NoData(caption, say("nodata.arms", language))
    columns = [
        Column(say("table.engine", language), filtered=True),
        Column(say("table.load", language), filtered=True),
        Column(say("table.metric", language), filtered=True),
        Column(capital(say("arm.defaults", language)), numeric=True),
        Column(capital(say("arm.equalised", language)), numeric=True),
        Column(say("table.arm_ratio", language), numeric=True),
    ]
    return table(columns, rows, caption=caption, interactive=True)


def _pairs(data: StudyData) -> Iterator[tuple[str, str]]:
    """Yield the labels of one engine's two arms with the same model."""
    same = ["engine_id", "model", "simulated"]
    plain, equal = (data.arms.filter(pl.col("arm") == arm) for arm in (DEFAULTS, EQUALISED))
    both = plain.join(equal, on=same, suffix="_equalised", maintain_order="left")
    yield from both.select("engine", "engine_equalised").iter_rows()


def _pair_rows(data: StudyData, first: str, second: str) -> Iterator[Row]:
    language = data.language
    for metric in PRIMARY:
        name = f"{capital(metric_name(metric, language))} ({unit(metric, language)})"
        for load in loads(data, metric):
            found = [_of(data, load, metric, engine) for engine in (first, second)]
            if not any(frame.is_empty() for frame in found):
                values = [value_cell(frame, metric) for frame in found]
                plain, equal = (float(frame["value"][0]) for frame in found)
                shown = Value(ratio(equal / plain), sort=equal / plain) if plain else Value(NONE)
                yield [f"{first}, {second}", load_name(data, load), name, *values, shown]


def _of(data: StudyData, load: Load, metric: str, engine: str) -> pl.DataFrame:
    rows = load.rows(data.points, metric).drop_nulls("value")
    return rows.filter(pl.col("engine") == engine)
