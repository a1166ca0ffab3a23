"""Tables of whether engines compute their model: greedy texts compared, questions answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, figure, share
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import Language, say


def same_text(data: StudyData) -> Fragment | NoData:
    """Return whether engines gave the same text for the same prompts, and if not, why."""
    language = data.language
    if not data.greedy:
        return NoData(say("table.greedy", language), say("nodata.greedy", language))
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.reference", language)),
        Column(say("table.prompt", language)),
        Column(say("table.equal", language)),
        Column(say("table.rounding", language)),
    ]
    rows: list[Row] = [
        [
            *(str(row.get(k, NONE)) for k in ("engine", "reference", "prompt")),
            _equal(row, language),
            _rounding(row, language),
        ]
        for row in data.greedy
    ]
    caption = f"{say('table.greedy', language)} {say('table.greedy_note', language)}"
    return table(columns, rows, caption=caption)


def _equal(row: Mapping[str, Any], language: Language) -> Value:
    if row.get("equal"):
        return Value(say("table.same", language), tone="good")
    tokens = row.get("same_tokens")
    if tokens is None:
        text = say("table.differs", language, place=row.get("first_difference", NONE))
    else:
        text = say("table.differs_token", language, place=tokens + 1)
    return Value(text, tone="open" if row.get("explained") else "bad")


def _rounding(row: Mapping[str, Any], language: Language) -> str:
    """Say by how much the reference preferred its token, and what follows from that."""
    if row.get("equal"):
        return NONE
    if row.get("same_weights") is False:
        return say("table.other_weights", language)
    gap = row.get("gap_nats")
    if gap is None:
        return say("table.gap_unknown", language)
    known = row.get("explained")
    key = "table.gap_unexplained" if known is False else "table.gap_at_least"
    key = "table.gap_explained" if known else key
    return say(key, language, gap=figure(gap))


def accuracy(data: StudyData) -> Fragment | NoData:
    """Return how many short questions each engine answers, against its reference."""
    language = data.language
    if not data.accuracy:
        return NoData(say("table.accuracy", language), say("nodata.accuracy", language))
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.right", language), numeric=True),
        Column(say("table.interval", language), numeric=True),
        Column(say("table.reference", language)),
        Column(say("table.lost", language), numeric=True),
        Column(say("table.gained", language), numeric=True),
        Column(say("table.verdict", language)),
    ]
    references = {row.get("reference") for row in data.accuracy}
    rows: list[Row] = [
        _accuracy_row(row, language, is_reference=row["engine"] in references)
        for row in data.accuracy
    ]
    return table(columns, rows, caption=say("table.accuracy", language))


def _accuracy_row(row: Mapping[str, Any], language: Language, *, is_reference: bool) -> Row:
    against = row.get("reference")
    word = say("table.is_reference" if is_reference else "table.not_compared", language)
    tone = ""
    if against is not None:
        word, tone = say("table.as_good", language), "good"
        if row["wrong"]:
            word, tone = say("table.wrong", language), "bad"
        elif not row["same_weights"]:
            word, tone = say("table.p_of_loss", language, p=figure(row["p"])), "open"
    return [
        row["engine"],
        f"{row['right']}/{row['of']}",
        say("table.share_range", language, low=share(row["low"]), high=share(row["high"])),
        against or NONE,
        *(NONE if row[k] is None else str(row[k]) for k in ("lost", "gained")),
        Value(word, tone=tone),
    ]
