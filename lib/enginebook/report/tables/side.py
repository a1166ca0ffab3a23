"""Tables of several runs side by side: what each is, and in what they differ."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from enginebook.report.answer import machine_name, model_name
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE
from enginebook.report.side import SideBySide
from enginebook.report.tables.provenance import fact_name, fact_value, flat
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import say

PASSING = frozenset(
    {"load", "available_bytes", "free_bytes", "others_cpu_share", "seconds", "repeats", "spread",
     "calibration", "uuid", "median_bytes_per_s", "median_flops_per_s", "max_mhz", "study",
     "question", "language", "port"}
)  # fmt: skip
"""Facts of a moment, or of how a thing was measured: they differ between any two runs."""


def runs(side: SideBySide, page: Path) -> Fragment:
    """Return one row a run: what it asked, on what, with a link to its own report.

    Parameters
    ----------
    page
        The file that will hold the table; links are relative to it.
    """
    language = side.data.language
    titles = ("run", "question", "engines", "machine", "blocks", "started")
    columns = [Column(say(f"side.{t}", language), numeric=t == "blocks") for t in titles]
    rows: list[Row] = [
        [
            Value(label, note=run.run_id),
            Value(run.question, href=_link(run, page)),
            _engines(run),
            machine_name(run.host) or NONE,
            str(run.blocks),
            _started(run),
        ]
        for run, label in zip(side.runs, side.labels, strict=True)
    ]
    return table(columns, rows, caption=say("side.runs", language))


def _engines(run: StudyData) -> str:
    versions = dict(run.installs.select("engine", "version").iter_rows())
    named = ", ".join(f"{e} {versions.get(e) or ''}".strip() for e in run.engines)
    return " · ".join(filter(None, [named, model_name(run)])) or NONE


def _started(run: StudyData) -> str:
    times = [t for t in run.manifest.get("starts_unix") or [] if isinstance(t, int | float)]
    return f"{datetime.fromtimestamp(times[0], UTC):%Y-%m-%d %H:%M}" if times else NONE


def _link(run: StudyData, page: Path) -> str:
    """Return the way from a page to a run's own report, or an empty text."""
    named = run.manifest.get("report")
    if run.folder is None or not isinstance(named, Mapping) or "html" not in named:
        return ""
    html = Path(os.path.normpath(run.folder / str(named["html"])))
    return quote(os.path.relpath(html, page.parent)) if html.is_file() else ""


def differences(side: SideBySide) -> Fragment | NoData:
    """Return every fact of host, ceilings, versions and parameters in which the runs differ."""
    language, caption = side.data.language, say("side.differences", side.data.language)
    facts = [_facts(run) for run in side.runs]
    paths = list(dict.fromkeys(path for found in facts for path in found))
    differing = [p for p in paths if len({_key(found.get(p)) for found in facts}) > 1]
    if not differing:
        return NoData(caption, say("side.no_differences", language))
    columns = [Column(say("table.what", language)), *[Column(label) for label in side.labels]]
    rows: list[Row] = [
        [fact_name(path, language), *[fact_value(path, found.get(path)) for found in facts]]
        for path in differing
    ]
    same = len(paths) - len(differing)
    return table(columns, rows, caption=f"{caption} ({say('side.same', language, n=same)})")


def _key(value: Any) -> str:
    return repr(value)


def _facts(run: StudyData) -> dict[tuple[str, ...], Any]:
    """Return what a run's results depend on, by path."""
    installs = {
        row["engine"]: {"version": row["version"], "torch": row["torch"], "kind": row["kind"]}
        for row in run.installs.iter_rows(named=True)
    }
    versions, git = run.manifest.get("versions"), run.manifest.get("git")
    tree = {
        "host": run.host, "engines": installs, "study": _named(run.study),
        "versions": versions, "git": git,
    }  # fmt: skip
    return dict(_lasting(tree))


def _named(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's parameters, its lists of named things by name and not by place."""
    return {key: _by_name(value) for key, value in study.items()}


def _by_name(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        return {str(v.get("name", i)): v for i, v in enumerate(value)}
    return value


def _lasting(tree: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for path, value in flat(tree):
        if path[0] == "study" and path[-1] == "name":
            continue
        if not PASSING & set(path[1:]):
            yield path, value
