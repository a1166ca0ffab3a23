"""Families of scenarios and their metrics, as charts and tables of the report need both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from enginebook.report.data import StudyData
from enginebook.report.numbers import figure, share
from enginebook.report.outcome import LOAD, Load
from enginebook.report.text import Language, say
from enginebook.report.wording import metric_name, unit

TEXT = "text"


@dataclass(frozen=True)
class Family:
    """Loads that are shown together: their title's key, and which rows of `loads` they are."""

    title: str
    chosen: pl.Expr


PREFIX = Family("part.prefix", (pl.col("cache") == "warm") & (pl.col("kind") == "closed_loop"))
SESSIONS = Family("part.sessions", pl.col("kind") == "sessions")
STRUCTURED = Family("part.structured", (pl.col("answer_format") != TEXT).any().over("family"))
ONLINE = Family("part.online", pl.col("kind") == "open_loop")
TRACE = Family("part.trace", pl.col("kind") == "trace")


def loads(data: StudyData, family: Family) -> list[Load]:
    """Return the loads of a family in the study's order."""
    return [Load(*row) for row in data.loads.filter(family.chosen).select(LOAD).iter_rows()]


def metrics(data: StudyData, starts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the metrics that begin so, which name an objective after a dot."""
    found = data.points["metric"].unique().to_list()
    return tuple(sorted(m for m in found if m.startswith(starts)))


def stem(metric: str) -> str:
    """Return a metric without the objective that it names."""
    return metric.split(".", maxsplit=1)[0]


def is_share(metric: str) -> bool:
    """Return whether a metric is a share between 0 and 1."""
    return stem(metric).endswith("_share")


def name(metric: str, language: Language) -> str:
    """Return a metric in words, with its objective."""
    words, (_, _, objective) = metric_name(stem(metric), language), metric.partition(".")
    return f"{words}: {objective}" if objective else words


def row_name(metric: str, language: Language) -> str:
    """Return what tells a metric from its neighbours in one chart: its objective, if it has one."""
    objective = metric.partition(".")[2]
    return say("part.objective", language, name=objective) if objective else name(metric, language)


def units(metric: str, language: Language) -> str:
    """Return a metric's unit, or an empty text."""
    return unit(stem(metric), language)


def axis(metric: str, language: Language) -> str:
    """Return an axis title: the metric with its unit."""
    words, shown = metric_name(stem(metric), language), units(metric, language)
    return f"{words} ({shown})" if shown else words


def shown(row: Mapping[str, Any], metric: str) -> str:
    """Return a row of `points` in words: the value, and its interval in brackets."""
    text = share if is_share(metric) else figure
    if row["low"] is None or row["high"] is None:
        return text(row["value"])
    return f"{text(row['value'])} ({text(row['low'])} – {text(row['high'])})"


def nothing(family: Family, language: Language) -> tuple[str, str]:
    """Return what a family shows, and that the study has none of it."""
    return say(family.title, language), say("part.nothing", language)
