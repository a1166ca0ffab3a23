"""Tables of where figures come from: machine, ceilings, instrument, parameters, files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote

from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.numbers import NONE, data_size, figure
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import Language, known, say
from enginebook.report.wording import reason
from enginebook.study import slug

APART = ("ceilings", "calibration")
MOST_TEXT = 400

# ending of a JSON key -> the unit shown and what it is divided by; longer endings first
UNITS: Mapping[str, tuple[str, float]] = {
    "_bytes_per_s": ("GB/s", 1e9),
    "_flops_per_s": ("GFLOP/s", 1e9),
    "bytes_per_s": ("GB/s", 1e9),
    "flops_per_s": ("GFLOP/s", 1e9),
    "_events_per_s": ("events/s", 1.0),
    "_us_per_token": ("µs per token", 1.0),
    "_mhz": ("MHz", 1.0),
    "_ms": ("ms", 1.0),
    "_w": ("W", 1.0),
}


def host(data: StudyData) -> Fragment | NoData:
    """Return what the machine is."""
    facts = {k: v for k, v in data.host.items() if k not in APART}
    return _facts(facts, "table.host", "nodata.host", data.language)


def ceilings(data: StudyData) -> Fragment | NoData:
    """Return the measured limits of the machine, against which figures are held."""
    found = data.host.get("ceilings")
    facts = found if isinstance(found, Mapping) else {}
    return _facts(facts, "table.ceilings", "nodata.ceilings", data.language)


LEVEL = (
    ("streams", "table.streams"),
    ("events_per_s", "table.events"),
    ("ttft_error_p50_ms", "table.ttft_error_p50"),
    ("ttft_error_p99_ms", "table.ttft_error_p99"),
    ("itl_error_p99_ms", "table.itl_error_p99"),
    ("cpu_us_per_token", "table.cpu_per_token"),
    ("lost", "table.lost"),
)


def calibration(data: StudyData) -> Fragment | NoData:
    """Return the load generator's own error and cost on this machine, by number of streams."""
    language, facts = data.language, data.calibration or {}
    caption = say("table.calibration", language)
    if not facts:
        return NoData(caption, say("doubt.no_calibration", language))
    levels = facts.get("levels")
    if not _is_list(levels) or not levels:
        return _facts(facts, "table.calibration", "doubt.no_calibration", language)
    columns = [Column(say(key, language), numeric=True) for _, key in LEVEL]
    rows: list[Row] = [[_level_value(level.get(name)) for name, _ in LEVEL] for level in levels]
    verdict = facts.get("verdict")
    if verdict:
        caption = say("table.captioned", language, caption=caption, text=reason(verdict, language))
    return table(columns, rows, caption=caption)


def _level_value(value: float | None) -> str:
    return f"{value:,}" if isinstance(value, int) else figure(value)


def parameters(data: StudyData) -> Fragment | NoData:
    """Return every parameter of the study that is set, folded."""
    fold = say("table.parameters_fold", data.language)
    return _facts(_set(data.study), "table.parameters", "nodata.manifest", data.language, fold)


def _set(value: Any) -> Any:
    """Return a parameter without the parts that were left at nothing."""
    if isinstance(value, Mapping):
        kept = {k: _set(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not None and v not in ({}, [], ())}
    return [_set(v) for v in value] if isinstance(value, list | tuple) else value


def manifest(data: StudyData) -> Fragment | NoData:
    """Return versions, digests and state of the source, folded."""
    skip = ("study", "host")
    facts = {k: v for k, v in data.manifest.items() if k not in skip}
    fold = say("table.manifest_fold", data.language)
    return _facts(facts, "table.manifest", "nodata.manifest", data.language, fold)


def _facts(
    facts: Mapping[str, Any], caption: str, missing: str, language: Language, folded: str = ""
) -> Fragment | NoData:
    rows: list[Row] = [
        [fact_name(path, language), fact_value(path, v)] for path, v in flat(facts) if path
    ]
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


def fact_name(path: tuple[str, ...], language: Language) -> str:
    """Return a JSON path in words."""
    return " › ".join(known(f"fact.{part}", language, _words(part)) for part in path)


def _words(name: str) -> str:
    """Return a JSON key in words, without the unit that its value shows."""
    for ending in (*UNITS, "_unix"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def fact_value(path: tuple[str, ...], value: Any) -> Value:
    """Return a leaf as text, with the unit that the name's ending tells."""
    name = path[-1] if path else ""
    if value is None or (isinstance(value, Mapping | list) and not value):
        return Value(NONE)
    if name.endswith("_unix"):
        return Value(", ".join(_time(v) for v in (value if _is_list(value) else [value])))
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = ", ".join(str(v) for v in value) if _is_list(value) else str(value)
        return Value(text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} …")
    for ending, (unit, scale) in UNITS.items():
        if name.endswith(ending):
            return Value(f"{figure(value / scale)} {unit}")
    if name.endswith("bytes"):
        return Value(data_size(value))
    return Value(_number(value))


def _time(value: float) -> str:
    return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _number(value: float) -> str:
    """Return integers as they are, and other numbers with four significant digits at most."""
    if isinstance(value, int):
        return str(value)
    return figure(value) if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004


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
    return [(path, quote(os.path.relpath(path, html.parent))) for path in found]


def repeat(data: StudyData) -> Fragment:
    """Return the exact commands that take this study again."""
    language = data.language
    git = data.manifest.get("git")
    commit = str(git.get("commit") or "") if isinstance(git, Mapping) else ""
    # readers copy these lines into a shell: what a manifest says is a name or is left out
    commit = commit if re.fullmatch(r"[0-9a-f]{7,64}", commit) else ""
    study = slug(str(data.study.get("study", "study")))
    lines = [
        *([f"git checkout {commit}"] if commit else []),
        f"make study PARAMS=params/{study}.yaml",
    ]
    columns = [Column(say("table.command", language))]
    rows: list[Row] = [[Value(line, code=True)] for line in lines]
    return table(columns, rows, caption=say("table.repeat", language))
