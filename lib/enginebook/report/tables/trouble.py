"""Tables of what went wrong or may have: failures and flags."""

from __future__ import annotations

import polars as pl

from enginebook.report.cellname import load_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE
from enginebook.report.outcome import Load
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import known, say


def failures(data: StudyData) -> Fragment | NoData:
    """Return what failed and what is missing."""
    language = data.language
    rows: list[Row] = [
        [
            str(row.get("engine") or row.get("stage") or NONE),
            str(row.get("cell") or NONE),
            str(row.get("reason") or row.get("error") or NONE),
        ]
        for row in data.failures
    ]
    rows += [[NONE, name, say("table.not_measured", language)] for name in data.missing]
    if not rows:
        return NoData(say("table.failures", language), say("nodata.failures", language))
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.load", language)),
        Column(say("table.reason", language)),
    ]
    return table(columns, rows, caption=say("table.failures", language))


KEYS = ("engine", "scenario", "concurrency", "input_tokens", "output_tokens", "block")


def flagged(data: StudyData) -> Fragment | NoData:
    """Return load cells with a flag or a failed equal-work check, the failed ones first.

    A flag names a check that failed or could not be made; only a failed one that forbids a
    comparison fails the cell.
    """
    language, keys = data.language, list(KEYS)
    cells = data.cells.group_by(keys, maintain_order=True).agg(
        ok=pl.col("gate_ok").all(), flags=pl.col("flags").explode().drop_nulls().unique()
    )
    cells = cells.filter(~pl.col("ok") | (pl.col("flags").list.len() > 0)).sort("ok", *keys)
    if cells.is_empty():
        return NoData(say("table.flags", language), say("nodata.flags", language))
    columns = [
        Column(say("table.engine", language), filtered=True),
        Column(say("table.load", language)),
        Column(say("table.block", language), numeric=True),
        Column(say("table.gate", language), filtered=True),
        Column(say("table.flag", language)),
    ]
    rows: list[Row] = []
    for row in cells.iter_rows(named=True):
        load = Load(*(row[k] for k in keys[1:5]))
        names = sorted(known(f"flag.{f}", language, f.replace("_", " ")) for f in row["flags"])
        gate = say("table.passed" if row["ok"] else "table.failed", language)
        tone = "good" if row["ok"] else "bad"
        flags = ", ".join(names) or NONE
        rows.append(
            [row["engine"], load_name(data, load), str(row["block"]), Value(gate, tone=tone), flags]
        )
    return table(columns, rows, caption=say("table.flags", language), interactive=True)
