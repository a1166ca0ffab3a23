"""One small page that lists all runs of an outputs folder, with links to their reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from enginebook.report import assets
from enginebook.report.answer import machine_name
from enginebook.report.exporter import texts
from enginebook.report.fragment import neutral
from enginebook.report.text import Language
from enginebook.store import read_json, write_text

SIDE_BY_SIDE = "side by side"


@dataclass(frozen=True)
class Entry:
    """A run as the index shows it; ``report`` is a file name beside the index, or empty."""

    run: str
    study: str
    question: str
    engines: str
    machine: str
    started: str
    started_unix: float
    done: bool
    report: str


@dataclass(frozen=True)
class Beside:
    """A page of several runs side by side, as the index shows it."""

    title: str
    runs: str
    page: str
    unix: float


def write_index(outputs: Path, language: Language = "en") -> Path:
    """Write ``reports/index.html`` of an outputs folder and return its path."""
    path = outputs / "reports" / "index.html"
    entries = sorted(read_entries(outputs), key=lambda e: (-e.started_unix, e.run))
    beside = sorted(read_pages(outputs / "reports"), key=lambda b: (-b.unix, b.page))
    head = assets.script("theme.js")
    page = assets.environment().get_template("index.html.j2").render(
        entries=entries,
        beside=beside,
        language=language,
        text=texts("index", language),
        styles=assets.styles(),
        policy=assets.policy([head]),
        head_script=head,
        version=version("enginebook"),
    )  # fmt: skip
    write_text(path, page)
    return path


def read_entries(outputs: Path) -> list[Entry]:
    """Return all runs below ``runs/``; a damaged manifest is listed by its folder's name."""
    folders = sorted(p.parent for p in (outputs / "runs").glob("*/manifest.json"))
    return [_entry(folder, outputs / "reports") for folder in folders]


def read_pages(reports: Path) -> list[Beside]:
    """Return the pages of several runs; each has a JSON file of its name that describes it."""
    found = []
    for path in sorted(reports.glob("*.json")):
        about, html = _manifest(path), path.with_suffix(".html")
        if about.get("kind") == SIDE_BY_SIDE and html.is_file():
            runs = ", ".join(str(run) for run in about.get("runs") or [])
            unix = float(about.get("unix") or 0.0)
            found.append(Beside(neutral(about.get("title", "")), neutral(runs), html.name, unix))
    return found


def _entry(folder: Path, reports: Path) -> Entry:
    manifest = _manifest(folder / "manifest.json")
    study = manifest.get("study")
    study = study if isinstance(study, Mapping) else {}
    engines = study.get("engines") or []
    names = [str(e.get("name", "")) for e in engines if isinstance(e, Mapping)]
    starts = [t for t in manifest.get("starts_unix") or [] if isinstance(t, int | float)]
    outcome, host = manifest.get("outcome"), manifest.get("host")
    html = reports / f"{folder.name}.html"
    return Entry(
        run=neutral(folder.name),
        study=neutral(study.get("study", folder.name)),
        question=neutral(study.get("question", "")),
        engines=neutral(", ".join(names)),
        machine=neutral(machine_name(host) if isinstance(host, Mapping) else ""),
        started=f"{datetime.fromtimestamp(starts[0], UTC):%Y-%m-%d %H:%M}" if starts else "",
        started_unix=float(starts[0]) if starts else 0.0,
        done=isinstance(outcome, Mapping) and outcome.get("exit_status") == 0,
        report=html.name if html.is_file() else "",
    )


def _manifest(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
