"""Tables of what an engine costs before it serves: installing, starting, memory."""

from __future__ import annotations

import polars as pl

from enginebook.report.charts.launch import ORDER, totals
from enginebook.report.charts.memory import totals as memory_totals
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, data_size, figure, seconds
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import known, say

MB = 1e6


def installs(data: StudyData) -> Fragment | NoData:
    """Return how each engine was installed: version, seconds, bytes, packages."""
    language = data.language
    if data.installs.is_empty():
        return NoData(say("table.installs", language), say("nodata.installs", language))
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.version", language)),
        Column(say("table.kind", language)),
        Column(say("table.install_time", language), "s", numeric=True),
        Column(say("table.disk", language), "MB", numeric=True),
        Column(say("table.packages", language), numeric=True),
        Column("PyTorch"),
    ]
    rows: list[Row] = []
    for row in data.installs.iter_rows(named=True):
        reused = say("table.reused", language) if row["reused"] else ""
        disk = None if row["bytes"] is None else row["bytes"] / MB
        packages = NONE if row["packages"] is None else f"{row['packages']:,}"
        kind = known(f"install.{row['kind']}", language, row["kind"] or NONE)
        rows.append(
            [
                row["engine"],
                row["version"] or NONE,
                kind,
                Value(seconds(row["seconds"]), sort=row["seconds"], note=reused),
                figure(disk),
                packages,
                row["torch"] or NONE,
            ]
        )
    return table(columns, rows, caption=say("table.installs", language))


def launches(data: StudyData) -> Fragment | NoData:
    """Return the seconds of each start-up phase (median of starts) and of the whole."""
    language = data.language
    if data.launches.is_empty():
        return NoData(say("table.launches", language), say("nodata.launches", language))
    found = set(data.launches["phase"].to_list())
    phases = [p for p in ORDER if p in found] + sorted(found - set(ORDER))
    columns = [
        Column(say("table.engine", language)),
        *[Column(known(f"phase.{p}", language, p), numeric=True) for p in phases],
        Column(say("table.all", language), numeric=True),
        Column(say("table.starts", language), numeric=True),
    ]
    lasted = data.launches.with_columns(seconds=pl.col("end_s") - pl.col("start_s"))
    medians = lasted.group_by("engine", "phase").agg(pl.col("seconds").median())
    known_s = {(e, p): s for e, p, s in medians.iter_rows()}
    rows: list[Row] = []
    for row in totals(data).iter_rows(named=True):
        engine = row["engine"]
        span = f"{seconds(row['least_s'])} – {seconds(row['most_s'])}" if row["starts"] > 1 else ""
        parts = [seconds(known_s.get((engine, p))) for p in phases]
        rows.append(
            [engine, *parts, Value(seconds(row["median_s"]), note=span), str(row["starts"])]
        )
    return table(columns, rows, caption=say("table.launches", language))


def memory(data: StudyData) -> Fragment | NoData:
    """Return what each engine holds, by component, with the source of each figure."""
    language = data.language
    if data.memory.is_empty():
        return NoData(say("table.memory", language), say("nodata.memory", language))
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.state", language)),
        Column(say("table.component", language)),
        Column(say("table.size", language), numeric=True),
        Column(say("table.part", language), "%", numeric=True),
        Column(say("table.source", language)),
    ]
    whole = memory_totals(data)
    rows: list[Row] = []
    for row in data.memory.drop_nulls("bytes").iter_rows(named=True):
        total = whole.get(row["engine"])
        part = 100 * row["bytes"] / total if total else None
        state = known(f"state.{row['state']}", language, row["state"])
        name = known(f"component.{row['component']}", language, row["component"])
        size = Value(data_size(row["bytes"]), sort=float(row["bytes"]))
        rows.append([row["engine"], state, name, size, figure(part), row["source"] or NONE])
    return table(columns, rows, caption=say("table.memory", language))
