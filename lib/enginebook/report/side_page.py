"""The page of several runs side by side: a small notebook made and rendered in this process."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from enginebook.report import charts, renderer, tables
from enginebook.report.doubts import doubts
from enginebook.report.exporter import to_html
from enginebook.report.fragment import Fragment, NoData, safe
from enginebook.report.index import SIDE_BY_SIDE
from enginebook.report.page import build
from enginebook.report.side import SideBySide, side_by_side
from enginebook.report.tables import side as side_tables
from enginebook.report.text import Language, say
from enginebook.store import write_json, write_text

LONGEST_NAME = 120
Draw = Callable[[Any], Any]
# text cell (a key below `side.section`) -> what stands below it
SECTIONS: tuple[tuple[str, tuple[Draw, ...]], ...] = (
    ("load", (charts.tpot, charts.pareto)),
    ("first", (charts.ttft, charts.itl, charts.ecdf)),
    ("figures", (tables.summary, tables.comparisons)),
    ("parts", (tables.prefix_reuse, tables.conversations, tables.structured, tables.online,
               tables.trace_replay)),
    ("deploy", (tables.installs, charts.time_to_serve, tables.launches, charts.memory,
                tables.memory)),
    ("trouble", (tables.failures, tables.same_text, tables.accuracy)),
)  # fmt: skip


def page_name(runs: Sequence[str]) -> str:
    """Return the page's file name: the runs' names, or a digest where they would be too long."""
    name = "+".join(runs)
    if len(name) <= LONGEST_NAME:
        return f"{name}.html"
    return f"side-by-side-{hashlib.sha256(name.encode()).hexdigest()[:12]}.html"


def render_side_by_side(
    folders: Sequence[Path], reports: Path, language: Language | None = None
) -> Path:
    """Render several runs into one page and return its path.

    Parameters
    ----------
    folders
        Two or more run folders.
    reports
        Folder of the page. A JSON file beside it tells the index which runs it holds.
    language
        The page's language; the first run's own when None.
    """
    side = side_by_side(folders, language)
    names = [run.run_id for run in side.runs]
    html = reports / page_name(names)
    renderer.enable()
    page = build(_notebook(side, folders, html), side.data.question, side.data.language)
    write_text(html, to_html(page, side.data.run_id))
    about = {"kind": SIDE_BY_SIDE, "runs": names, "title": side.data.question, "unix": time.time()}
    write_json(html.with_suffix(".json"), about)
    return html


def _notebook(side: SideBySide, folders: Sequence[Path], html: Path) -> Any:
    language = side.data.language
    made = ", ".join(repr(str(folder)) for folder in folders)
    cells = [
        new_code_cell(f"side = side_by_side([{made}])\ndata = side.data"),
        _cell("side_tables.runs(side, html)", side_tables.runs(side, html)),
        _cell("charts.throughput(data)", charts.throughput(side.data)),
        _text("doubts", language),
        _cell("caveats(side)", caveats(side)),
        _text("differences", language),
        _cell("side_tables.differences(side)", side_tables.differences(side)),
    ]
    for text, drawn in SECTIONS:
        shown = [(draw, draw(side.data)) for draw in drawn]
        if all(isinstance(part, NoData) for _, part in shown):
            continue  # what no run has measured needs no chapter here
        cells.append(_text(text, language))
        cells += [_cell(f"{draw.__name__}(data)", part) for draw, part in shown
                  if not isinstance(part, NoData)]  # fmt: skip
    return new_notebook(cells=cells)


def _text(name: str, language: Language) -> Any:
    return new_markdown_cell(say(f"side.section.{name}", language))


def _cell(source: str, part: Any) -> Any:
    found = part._repr_mimebundle_(None, None)
    data = found[0] if isinstance(found, tuple) else found
    output = new_output("execute_result", data=dict(data), execution_count=1)
    return new_code_cell(source, outputs=[output])


def caveats(side: SideBySide) -> Fragment:
    """Return what could make the picture wrong: first what several runs share, then each run's."""
    language = side.data.language
    first = say("side.doubt.apart", language)
    found = [first] if side.same_work else [first, say("side.doubt.other_work", language)]
    for run, label in zip(side.runs, side.labels, strict=True):
        found += [f"{label}: {doubt}" for doubt in doubts(run, language)[:-1]]
    found.append(say("doubt.scope", language))
    items = "".join(f"<li>{safe(text)}</li>" for text in found)
    title = say("page.doubts", language)
    html = f'<aside class="eb-doubts" aria-label="{safe(title)}"><ul>{items}</ul></aside>'
    return Fragment(html, "\n".join([f"{title}:", *(f"- {text}" for text in found)]))
