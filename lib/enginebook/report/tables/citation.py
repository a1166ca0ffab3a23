"""How to cite a run: as text, and for reference managers."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from enginebook.report.answer import machine_name, model_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, neutral
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import listing, say

AUTHORS = "The Enginebook authors"


def citation(data: StudyData) -> Fragment:
    """Return a reference to this run, which names all that its figures hold for."""
    language = data.language
    columns = [Column(say("table.form", language)), Column(say("table.reference_text", language))]
    rows: list[Row] = [
        [say("table.as_text", language), as_text(data)],
        ["BibTeX", Value(as_bibtex(data), code=True)],
    ]
    return table(columns, rows, caption=say("table.citation", language))


def as_text(data: StudyData) -> str:
    """Return the reference as one sentence of a list of references."""
    made = f"Enginebook {_version(data)}".strip()
    when = _date(data)
    parts = [
        f"{AUTHORS} ({when[:4]})" if when else AUTHORS,
        data.question.rstrip("."),
        f"{made}, {say('table.run', data.language)} {data.run_id}{f', {when}' if when else ''}",
        ", ".join(_circumstances(data)),
    ]
    return " ".join(f"{part.rstrip('.')}." for part in parts if part)


def as_bibtex(data: StudyData) -> str:
    """Return the reference as one BibTeX entry on one line."""
    fields = {
        "author": f"{{{AUTHORS}}}",
        "title": f"{{{data.question}}}",
        "year": _date(data)[:4],
        "howpublished": f"Enginebook {_version(data)}".strip(),
        "note": f"run {data.run_id}; {'; '.join(_circumstances(data))}",
    }
    key = re.sub(r"[^A-Za-z0-9-]", "", f"enginebook-{data.run_id}")
    inner = ", ".join(f"{k} = {{{_escaped(v)}}}" for k, v in fields.items() if v)
    return f"@misc{{{key}, {inner}}}"


def _escaped(text: str) -> str:
    """Return text that TeX takes as it is; braces that we set ourselves stay."""
    return re.sub(r"([%&#_$])", r"\\\1", neutral(text)).replace("\n", " ")


def _circumstances(data: StudyData) -> list[str]:
    versions = dict(data.installs.select("engine", "version").iter_rows())
    engines = [f"{e} {versions.get(e) or ''}".strip() for e in data.engines]
    named = [listing(engines, data.language), model_name(data), machine_name(data.host)]
    return [part for part in named if part]


def _version(data: StudyData) -> str:
    versions = data.manifest.get("versions")
    return str(versions.get("enginebook", "")) if isinstance(versions, dict) else ""


def _date(data: StudyData) -> str:
    starts = data.manifest.get("starts_unix") or []
    return f"{datetime.fromtimestamp(starts[0], UTC):%Y-%m-%d}" if starts else ""
