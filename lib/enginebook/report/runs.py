"""Runs on disk: finding one by id or folder, and rendering its report again."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from enginebook.errors import InputError
from enginebook.paths import inside
from enginebook.report.data import StudyData
from enginebook.report.exporter import render
from enginebook.report.text import Language


def find_run(name: str, outputs: Path) -> Path:
    """Return a run's folder.

    Parameters
    ----------
    name
        A folder with a manifest.json, or the name of one below ``outputs/runs``; an unambiguous
        beginning of a name will do.

    Raises
    ------
    InputError
        When there is none, or several begin so.
    """
    for folder in (Path(name), outputs / "runs" / name):
        if (folder / "manifest.json").is_file():
            return folder.resolve()
    known = sorted(p.parent.name for p in (outputs / "runs").glob("*/manifest.json"))
    fitting = [run for run in known if run.startswith(name)]
    if len(fitting) == 1:
        return (outputs / "runs" / fitting[0]).resolve()
    if fitting:
        raise InputError(f"several runs begin with {name!r}", f"give one of {', '.join(fitting)}")
    raise InputError(f"no run {name!r} in {outputs / 'runs'}", _remedy(name, known))


def _remedy(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or known[:3]
    return f"there is {', '.join(close)}" if close else "run a study first: enginebook run PARAMS"


def render_run(folder: Path, language: Language | None = None) -> Path:
    """Render a run's executed report notebook again and return the HTML file's path.

    Parameters
    ----------
    folder
        The run's folder; its manifest names the notebook and the HTML file.
    language
        The page's language; the study's own when None. Charts keep the language they were made in.

    Raises
    ------
    InputError
        When the manifest names no report, or the report stage has not been run.
    """
    data = StudyData.read(folder)
    named = data.manifest.get("report")
    if not isinstance(named, Mapping) or not {"notebook", "html"} <= set(named):
        raise InputError(f"{folder / 'manifest.json'} names no report", "run the study again")
    root = folder.absolute().parent.parent
    notebook, html = (inside(root, folder, named[k]) for k in ("notebook", "html"))
    if html.suffix != ".html":
        raise InputError(f"{folder / 'manifest.json'} names a report that is no .html file")
    if not notebook.is_file():
        raise InputError(
            f"run {folder.name} has no executed report notebook ({notebook})",
            "let the study finish: enginebook run PARAMS",
        )
    chosen = language or data.language
    render(notebook, html, title=data.question, language=chosen, run=data.run_id)
    return html
