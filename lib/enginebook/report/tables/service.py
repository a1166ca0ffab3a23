"""Tables of starts, swaps, probes and simulations: what no load cell measures."""

from __future__ import annotations

from typing import Any

import polars as pl

from enginebook.report import families
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, figure, seconds
from enginebook.report.numbers import share as percent
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import known, say
from enginebook.report.wording import capital, metric_name


def starts(data: StudyData) -> Fragment | NoData:
    """Return the time to the first token by the state of caches, one row a start."""
    language, caption = data.language, say("part.starts", data.language)
    frame = data.starts.filter(pl.col("phase").is_in(["ready", "first_token"]))
    if frame.is_empty():
        return NoData(caption, say("part.nothing", language))
    keys = ["engine", "arm", "repeat"]
    wide = frame.pivot("phase", index=[*keys, "source"], values="seconds", aggregate_function="max")
    rows: list[Row] = [
        [
            r["engine"],
            known(f"arm.{r['arm']}", language, r["arm"]),
            str(r["repeat"] + 1),
            Value(seconds(r.get("ready")), sort=r.get("ready")),
            Value(seconds(r.get("first_token")), sort=r.get("first_token")),
            r["source"],
        ]
        for r in wide.sort(*keys).iter_rows(named=True)
    ]
    columns = [
        Column(say("table.engine", language), filtered=True),
        Column(say("table.arm", language), filtered=True),
        Column(say("table.repetition", language), numeric=True),
        Column(capital(known("phase.ready", language, "ready")), numeric=True),
        Column(capital(known("phase.first_token", language, "first token")), numeric=True),
        Column(say("table.source", language)),
    ]
    return table(columns, rows, caption=caption, interactive=True)


def swaps(data: StudyData) -> Fragment | NoData:
    """Return how long clients were without an answer while the engine restarted."""
    language, caption = data.language, say("part.swaps", data.language)
    if data.swaps.is_empty():
        return NoData(caption, say("part.nothing", language))
    rows: list[Row] = [
        [
            r["engine"],
            str(r["to_model"]),
            str(r["repeat"] + 1),
            Value(seconds(r["outage_s"]), sort=r["outage_s"]),
            Value(f"{r['failed']:,}", sort=float(r["failed"])),
            f"{r['clients']:,}",
        ]
        for r in data.swaps.sort("engine", "repeat").iter_rows(named=True)
    ]
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.to_model", language)),
        Column(say("table.repetition", language), numeric=True),
        Column(say("table.outage", language), numeric=True),
        Column(say("table.failed_requests", language), numeric=True),
        Column(say("table.streams", language), numeric=True),
    ]
    return table(columns, rows, caption=caption)


def probes(data: StudyData) -> Fragment | NoData:
    """Return what each engine was asked and what it answered."""
    language, caption = data.language, say("part.probes", data.language)
    if data.probes.is_empty():
        return NoData(caption, say("part.nothing", language))
    tones = {True: ("yes", "good"), False: ("no", "bad"), None: ("open", "open")}
    rows: list[Row] = []
    for r in data.probes.iter_rows(named=True):
        word, tone = tones[r["ok"]]
        offered = NONE if r["topic"] == "metadata" else say(f"yesno.{word}", language)
        rows.append(
            [
                r["engine"],
                known(f"probed.{r['topic']}", language, r["topic"]),
                r["probe"],
                Value(offered, tone="" if r["topic"] == "metadata" else tone),
                r["value"] or NONE,
                r["claim"] or NONE,
            ]
        )
    columns = [
        Column(say("table.engine", language), filtered=True),
        Column(say("table.topic", language), filtered=True),
        Column(say("table.probe", language)),
        Column(say("table.offered", language), filtered=True),
        Column(say("table.value", language)),
        Column(say("table.claim", language)),
    ]
    return table(columns, rows, caption=caption, interactive=True, folded=caption)


def simulations(data: StudyData) -> Fragment | NoData:
    """Return simulated and estimated figures; nothing of it was measured."""
    language, caption = data.language, say("part.simulations", data.language)
    if data.simulations.is_empty():
        return NoData(caption, say("part.nothing", language))
    rows: list[Row] = [
        [
            r["scenario"],
            r["label"],
            _point(r),
            metric_name(r["metric"], language),
            Value(percent(r["value"]) if families.is_share(r["metric"]) else figure(r["value"])),
            r["source"],
        ]
        for r in data.simulations.iter_rows(named=True)
    ]
    columns = [
        Column(say("table.what", language), filtered=True),
        Column(say("table.load", language), filtered=True),
        Column(say("table.part", language)),
        Column(say("table.metric", language)),
        Column(say("table.value", language), numeric=True),
        Column(say("table.source", language)),
    ]
    return table(columns, rows, caption=caption, interactive=True)


def _point(row: dict[str, Any]) -> str:
    if row["x"] is None:
        return NONE
    return f"{(row['x_name'] or '').replace('_', ' ')} {row['x']:g}".strip()
