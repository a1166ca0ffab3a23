"""Tables of where figures come from: machine, ceilings, instrument, parameters, files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, data_size, figure
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import Language, known, say

APART = ("ceilings", "calibration")
MOST_TEXT = 400


def host(data: StudyData) -> Fragment | NoData:
    """Return what the machine is."""
    facts = {k: v for k, v in data.host.items() if k not in APART}
    return _facts(facts, "table.host", "nodata.host", data.language)


def ceilings(data: StudyData) -> Fragment | NoData:
    """Return the measured limits of the machine, against which figures are held."""
    found = data.host.get("ceilings")
    facts = found if isinstance(found, Mapping) else {}
    return _facts(facts, "table.ceilings", "nodata.ceilings", data.language)


def calibration(data: StudyData) -> Fragment | NoData:
    """Return the load generator's own error and cost on this machine."""
    facts = data.calibration or {}
    return _facts(facts, "table.calibration", "doubt.no_calibration", data.language)


def parameters(data: StudyData) -> Fragment | NoData:
    """Return every parameter of the study, folded."""
    fold = say("table.parameters_fold", data.language)
    return _facts(data.study, "table.parameters", "nodata.manifest", data.language, fold)


def manifest(data: StudyData) -> Fragment | NoData:
    """Return versions, digests and state of the source, folded."""
    skip = ("study", "host")
    facts = {k: v for k, v in data.manifest.items() if k not in skip}
    fold = say("table.manifest_fold", data.language)
    return _facts(facts, "table.manifest", "nodata.manifest", data.language, fold)


def _facts(
    facts: Mapping[str, Any], caption: str, missing: str, language: Language, folded: str = ""
) -> Fragment | NoData:
    rows: list[Row] = [[_name(path, language), _shown(path, v)] for path, v in flat(facts)]
    if not rows:
        return NoData(say(caption, language), say(missing, language))
    columns = [Column(say("table.what", language)), Column(say("table.value", language))]
    return table(columns, rows, caption=say(caption, language), folded=folded)


def flat(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, leaf) of nested JSON; short lists of plain values stay together."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from flat(inner, (*path, str(name)))
    elif _is_list(value) and any(isinstance(v, Mapping) or _is_list(v) for v in value):
        for place, inner in enumerate(value):
            yield from flat(inner, (*path, str(place + 1)))
    else:
        yield path, value


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _name(path: tuple[str, ...], language: Language) -> str:
    return " › ".join(known(f"fact.{part}", language, part.replace("_", " ")) for part in path)


def _shown(path: tuple[str, ...], value: Any) -> Value:
    """Return a leaf as text, with the unit that the name's ending tells."""
    name = path[-1] if path else ""
    if value is None or (_is_list(value) and not value):
        return Value(NONE)
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = ", ".join(str(v) for v in value) if _is_list(value) else str(value)
        return Value(text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} …")
    if name.endswith("bytes"):
        return Value(data_size(value))
    return Value(_number(name, value))


def _number(name: str, value: float) -> str:
    if isinstance(value, int):
        plain = name.endswith(("version", "unix", "seed", "port", "pid")) or abs(value) < 10_000  # noqa: PLR2004
        return str(value) if plain else f"{value:,}"
    if name.endswith("unix"):
        return f"{value:.0f}"
    return figure(value)


def downloads(data: StudyData) -> Fragment | NoData:
    """Return links to the study's frames, relative to the report's place."""
    language = data.language
    files = _files(data)
    if not files:
        return NoData(say("table.downloads", language), say("nodata.files", language))
    columns = [
        Column(say("table.file", language)),
        Column(say("table.size", language), numeric=True),
        Column(say("table.holds", language)),
    ]
    rows: list[Row] = [
        [
            Value(path.name, href=link),
            data_size(path.stat().st_size),
            known(f"frame.{path.stem}", language, ""),
        ]
        for path, link in files
    ]
    return table(columns, rows, caption=say("table.downloads", language))


def _files(data: StudyData) -> list[tuple[Path, str]]:
    """Return the run's data files and their links as seen from the HTML report."""
    folder, named = data.folder, data.manifest.get("report")
    if folder is None or not isinstance(named, Mapping) or "html" not in named:
        return []
    html = Path(os.path.normpath(folder / str(named["html"])))
    places = {str(data.manifest.get("data", "data")), str(data.manifest.get("claims", "data"))}
    found = sorted(
        path
        for place in places
        for path in Path(os.path.normpath(folder / place)).glob("*")
        if path.suffix in {".parquet", ".json"}
    )
    return [(path, os.path.relpath(path, html.parent)) for path in found]


def repeat(data: StudyData) -> Fragment:
    """Return the exact commands that take this study again."""
    language = data.language
    git = data.manifest.get("git")
    commit = str(git.get("commit") or "") if isinstance(git, Mapping) else ""
    study = str(data.study.get("study", "study"))
    lines = [
        *([f"git checkout {commit}"] if commit else []),
        f"make study PARAMS=params/{study}.yaml",
    ]
    columns = [Column(say("table.command", language))]
    rows: list[Row] = [[Value(line, code=True)] for line in lines]
    return table(columns, rows, caption=say("table.repeat", language))
