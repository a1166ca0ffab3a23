"""How near the measured figures come to what the hardware allows: MBU, MFU, and a verdict."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from enginebook.report.cellname import load_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import share
from enginebook.report.outcome import LOAD, Load
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import say
from enginebook.report.wording import capital, metric_name

ORDER: Final = ("impossible", "implausible", "tight", "possible")
TONES: Final = {"impossible": "bad", "implausible": "bad", "tight": "open"}
MOST_DOUBTED = 12


def efficiency(data: StudyData) -> Fragment | NoData:
    """Return each engine's figures nearest to the limits, and all that come too near.

    Every figure of every cell was held against its limit; a table of all would be the study over
    again. Shares are means over blocks; the verdict is that of the worst block.
    """
    language, caption = data.language, say("part.efficiency", data.language)
    if data.audit.is_empty():
        return NoData(caption, say("nodata.efficiency", language))
    kept = _worth_showing(_means(data.audit))
    rows = [_row(data, row) for row in kept.iter_rows(named=True)]
    counts = dict(data.audit["verdict"].value_counts().iter_rows())
    told = ", ".join(f"{counts[v]:,} {say(f'verdict.{v}', language)}" for v in ORDER if v in counts)
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.load", language)),
        Column(say("table.metric", language)),
        Column(say("table.of_limit", language), numeric=True),
        Column("MBU", numeric=True),
        Column("MFU", numeric=True),
        Column(say("table.verdict", language)),
    ]
    text = say("table.audited", language, n=f"{len(data.audit):,}", told=told)
    caption = say("table.captioned", language, caption=caption, text=text)
    return table(columns, rows, caption=caption)


def _means(audit: pl.DataFrame) -> pl.DataFrame:
    """Return one row an engine, load and metric."""
    worst = pl.col("verdict").replace_strict({v: i for i, v in enumerate(ORDER)}).min()
    return audit.group_by("engine", *LOAD, "metric", maintain_order=True).agg(
        pl.col("efficiency", "mbu", "mfu").mean(), worst.alias("rank")
    )


def _worth_showing(means: pl.DataFrame) -> pl.DataFrame:
    doubted = means.filter(pl.col("rank") < ORDER.index("possible"))
    nearest = means.sort("efficiency", descending=True).unique(
        ["engine", "metric"], keep="first", maintain_order=True
    )
    found = pl.concat([doubted.sort("rank", -pl.col("efficiency")).head(MOST_DOUBTED), nearest])
    return found.unique(maintain_order=True).sort("rank", "engine", "metric", maintain_order=True)


def _row(data: StudyData, row: dict[str, Any]) -> Row:
    language, verdict = data.language, ORDER[row["rank"]]
    shares = [Value(share(row[name]), sort=row[name]) for name in ("efficiency", "mbu", "mfu")]
    return [
        row["engine"],
        load_name(data, Load(*(row[name] for name in LOAD))),
        capital(metric_name(row["metric"], language)),
        *shares,
        Value(say(f"verdict.{verdict}", language), tone=TONES.get(verdict, "")),
    ]
