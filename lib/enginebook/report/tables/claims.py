"""Published claims, each with what physics and this study say of it."""

from __future__ import annotations

from typing import Any

from enginebook.report.charts.claims import key_of, tone
from enginebook.report.claim_texts import reason, statement
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, figure
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import Language, known, say


def claims(data: StudyData) -> Fragment | NoData:
    """Return all claims; the page can filter them by topic and verdict and sort them."""
    language = data.language
    if data.claims.is_empty():
        return NoData(say("table.claims", language), say("nodata.claims", language))
    columns = [
        Column(say("table.statement", language)),
        Column(say("table.topic", language), filtered=True),
        Column(say("table.claimed", language)),
        Column(say("table.measured", language)),
        Column(say("table.physics", language), filtered=True),
        Column(say("table.verdict", language), filtered=True),
        Column(say("table.reason", language)),
    ]
    rows = [_row(row, language) for row in data.claims.iter_rows(named=True)]
    return table(columns, rows, caption=say("table.claims", language), interactive=True)


def _row(row: dict[str, Any], language: Language) -> Row:
    span, same = "", {None, row["statement"]}
    if row["low"] is not None and row["high"] is not None:
        span = f"{figure(row['low'])} – {figure(row['high'])}"
    return [
        Value(statement(row["statement"] or NONE, language), note=row["claim_id"]),
        _word("topic", row["topic"], language),
        NONE if row["claimed"] in same else statement(row["claimed"], language),
        Value(row["measured"] or NONE, note=span),
        _verdict(row["physics_verdict"], language),
        _verdict(row["verdict"], language),
        reason(row["reason"] or NONE, language),
    ]


def _word(group: str, value: str | None, language: Language) -> str:
    if not value:
        return NONE
    return known(f"{group}.{key_of(value)}", language, value)


def _verdict(value: str | None, language: Language) -> Value:
    return Value(_word("verdict", value, language), tone=tone(value or ""))
