"""Notebook to one self-contained HTML file: for batch runs, and for JupyterLab's export menu."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import Exporter
from traitlets import Unicode

from enginebook.errors import InputError
from enginebook.plain import neutral
from enginebook.report import assets
from enginebook.report.page import Page, build
from enginebook.report.text import LANGUAGES, Language, catalogue
from enginebook.store import write_text


class EnginebookExporter(Exporter):
    """Exports an executed notebook as Enginebook's report (``nbconvert --to enginebook``)."""

    export_from_notebook = "Enginebook report (HTML)"
    output_mimetype = "text/html"
    title = Unicode("", help="Heading of the page; the notebook's own when empty.").tag(config=True)
    language = Unicode("en", help="Language of the page: en or zh.").tag(config=True)

    def _file_extension_default(self) -> str:
        return ".html"

    def from_notebook_node(  # type: ignore[override]
        self, nb: Any, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        """Return (html, resources) of a notebook."""
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        language: Language = "zh" if self.language == "zh" else "en"
        return to_html(build(nb, self.title or None, language)), resources


def to_html(page: Page, run: str = "") -> str:
    """Return the whole page as text."""
    head = assets.script("theme.js")
    body = f"{assets.script('report.js')}\n{assets.script('guide.js')}"
    library = assets.chart_library() if page.has_charts else ""
    scripts = [s for s in (head, library, body) if s]
    return assets.environment().get_template("page.html.j2").render(
        page=page,
        text=texts("page", page.language),
        styles=assets.styles(),
        policy=assets.policy(scripts),
        head_script=head,
        library=library,
        body_script=body,
        version=version("enginebook"),
        run=neutral(run),
    )  # fmt: skip


def texts(group: str, language: Language) -> dict[str, str]:
    """Return the catalogue's texts of one group by their last name."""
    known = catalogue(language)
    return {k.removeprefix(f"{group}."): v for k, v in known.items() if k.startswith(f"{group}.")}


def render(
    notebook: Path,
    html: Path,
    *,
    title: str | None = None,
    language: Language = "en",
    run: str = "",
) -> None:
    """Render an executed notebook into one HTML file.

    Parameters
    ----------
    notebook
        Executed .ipynb.
    html
        Where the page goes; written whole or not at all.
    title
        The page's heading, usually the study's question; the notebook's own when None.
    language
        ``en`` or ``zh``.
    run
        The run's name, for the page's foot.

    Raises
    ------
    InputError
        When the notebook cannot be read or the language is unknown.
    """
    if language not in LANGUAGES:
        raise InputError(f"no language {language!r}", f"use one of {', '.join(LANGUAGES)}")
    try:
        node = nbformat.read(notebook, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise InputError(
            f"{notebook} cannot be read as a notebook: {error}", "run the report stage again"
        ) from error
    write_text(html, to_html(build(node, title, language), run))
