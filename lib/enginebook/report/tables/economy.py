"""Tables of what a study and its answers cost: energy, money, time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from enginebook.report.cellname import load_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, figure, seconds
from enginebook.report.outcome import LOAD, Load
from enginebook.report.tables.parts import value_cell
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import say
from enginebook.report.wording import capital, metric_name
from enginebook.store import read_json

S_PER_HOUR, MILLION = 3600.0, 1e6
RATE, ENERGY, POWER = "output_tokens_per_s", "energy_j_per_output_token", "power_w"


def energy(data: StudyData) -> Fragment | NoData:
    """Return energy per output token and, where the study names a price, cost per million."""
    language, caption = data.language, say("part.energy", data.language)
    measured = pl.col("metric").is_in([RATE, ENERGY]) & pl.col("value").is_not_null()
    at = data.points.filter(measured).select(LOAD).unique(maintain_order=True)
    rows = [row for load in at.iter_rows() for row in _energy_rows(data, Load(*load))]
    if not rows:
        return NoData(caption, say("nodata.energy", language))
    columns = [
        Column(say("table.load", language), filtered=True),
        Column(say("table.engine", language), filtered=True),
        Column(capital(metric_name(ENERGY, language)), "J", numeric=True),
        Column(capital(metric_name(POWER, language)), "W", numeric=True),
        Column(capital(metric_name("cost_per_million", language)), numeric=True),
    ]
    return table(columns, rows, caption=caption, interactive=True)


def _energy_rows(data: StudyData, load: Load) -> Iterator[Row]:
    frames = {m: load.rows(data.points, m) for m in (RATE, ENERGY, POWER)}
    for engine in data.engines:
        mine = {m: f.filter(pl.col("engine") == engine) for m, f in frames.items()}
        cost = _cost(data, load, mine[RATE])
        if cost is None and mine[ENERGY].drop_nulls("value").is_empty():
            continue
        used = [value_cell(mine[m], m) for m in (ENERGY, POWER)]
        yield [load_name(data, load), engine, *used, Value(figure(cost), sort=cost)]


def _cost(data: StudyData, load: Load, found: pl.DataFrame) -> float | None:
    """Return the price of a million output tokens; None without a price, or where load was paced.

    At a given rate of requests a host is idle in part, and the price is that of the rate.
    """
    price = data.study.get("hourly_price")
    rate = found["value"][0] if not found.is_empty() else None
    if not price or not rate or load.concurrency == 0:
        return None
    return float(price) / S_PER_HOUR / float(rate) * MILLION


def effort(data: StudyData) -> Fragment | NoData:
    """Return how long each stage really took, and which were taken from an earlier run."""
    language, caption = data.language, say("part.effort", data.language)
    found = list(_stages(data))
    if not found:
        return NoData(caption, say("nodata.effort", language))
    rows: list[Row] = [
        [name, Value(seconds(s["seconds"]), sort=s["seconds"]), say(_taken(s, data), language)]
        for name, s in found
    ]
    whole = sum(s["seconds"] for _, s in found)
    rows.append([say("table.all", language), Value(seconds(whole), sort=whole), NONE])
    columns = [
        Column(say("table.stage", language)),
        Column(say("table.seconds", language), numeric=True),
        Column(say("table.taken", language)),
    ]
    return table(columns, rows, caption=caption)


def _stages(data: StudyData) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name, stage.json) of the stages that are done, in the plan's order."""
    folders = data.manifest.get("stages")
    if data.folder is None or not isinstance(folders, Mapping):
        return
    outputs = data.folder.parent.parent
    for name, folder in folders.items():
        path = outputs / Path(str(folder)) / "stage.json"
        facts = read_json(path) if path.is_file() else {}
        if isinstance(facts.get("seconds"), int | float):
            yield str(name), facts


def _taken(stage: Mapping[str, Any], data: StudyData) -> str:
    starts = data.manifest.get("starts_unix") or []
    earlier = bool(starts) and float(stage.get("started_unix") or 0) < float(starts[0])
    return "table.earlier" if earlier else "table.this_run"
