"""A notebook as the parts of a page: title, contents, sections of text, outputs and folded code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from enginebook.report.fragment import neutral, safe
from enginebook.report.markdown import Heading, Headings, split_title, to_html
from enginebook.report.outputs import output_html
from enginebook.report.renderer import CHART_MIME
from enginebook.report.text import Language, catalogue, say

HIDDEN = frozenset({"remove-cell", "notebook-only", "parameters", "injected-parameters"})
"""Tags of cells that serve the notebook and not the reader of the report."""


@dataclass
class Page:
    """What the template needs.

    Attributes
    ----------
    blocks
        HTML of the cells, in order.
    headings
        All headings; `contents` are those that the table of contents shows.
    has_charts
        Whether the page needs the chart library.
    """

    title: str
    language: Language
    blocks: list[str] = field(default_factory=list)
    headings: Headings = field(default_factory=Headings)
    has_charts: bool = False

    @property
    def contents(self) -> list[Heading]:
        """Return headings of level 2 and 3."""
        return [h for h in self.headings.found if h.level in {2, 3}]


def build(notebook: Mapping[str, Any], title: str | None, language: Language) -> Page:
    """Return the page of an executed notebook.

    Parameters
    ----------
    notebook
        nbformat 4.
    title
        The page's heading; the notebook's own first heading when None.
    language
        Text cells that are in the catalogue appear in this language.
    """
    page = Page(neutral(title or _own_title(notebook)), language)
    for cell in notebook["cells"]:
        if HIDDEN.isdisjoint(cell.get("metadata", {}).get("tags", [])):
            _add_cell(page, cell)
    return page


def _own_title(notebook: Mapping[str, Any]) -> str:
    """Return the heading with which the notebook begins, also when its cell is not shown."""
    first = next(iter(notebook["cells"]), {"cell_type": "", "source": ""})
    title = split_title("".join(first["source"]))[0] if first["cell_type"] == "markdown" else None
    return title or "Enginebook"


def _add_cell(page: Page, cell: Mapping[str, Any]) -> None:
    source = neutral("".join(cell["source"]))
    if cell["cell_type"] == "markdown":
        _add_text(page, source)
    elif cell["cell_type"] == "code":
        _add_code(page, source, cell.get("outputs", []))


def _add_text(page: Page, source: str) -> None:
    if not page.blocks and not page.headings.found:
        source = split_title(source)[1]  # the page has its heading already
    source = translated(source, page.language)
    if source.strip():
        text = to_html(source, page.headings, page.language)
        page.blocks.append(f'<section class="eb-text">{text}</section>')


def _add_code(page: Page, source: str, outputs: list[Mapping[str, Any]]) -> None:
    shown = "".join(output_html(output, page.language) for output in outputs)
    page.has_charts |= any(CHART_MIME in output.get("data", {}) for output in outputs)
    if not shown:
        return  # preparation: the notebook has it, the reader need not
    code = safe(source.strip("\n"))
    fold = (
        f'<details class="eb-code"><summary>{safe(say("page.code", page.language))}</summary>'
        f'<pre tabindex="0"><code>{code}</code></pre></details>'
    )
    page.blocks.append(f'<section class="eb-cell">{shown}{fold}</section>')


def translated(source: str, language: Language) -> str:
    """Return a text cell in the report's language, when it is the one the catalogue knows.

    A text that an analyst has changed is left as the analyst wrote it.
    """
    english = catalogue("en")
    wanted = _squeezed(source)
    for key, text in english.items():
        if key.startswith("section.") and _squeezed(text) == wanted:
            return catalogue(language)[key]
    return source


def _squeezed(text: str) -> str:
    return " ".join(text.split())
