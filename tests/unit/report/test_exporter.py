"""The page: self-contained, locked down, escaped, small, and in the reader's language."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
import sample_notebook
import sample_study
from bs4 import BeautifulSoup
from nbconvert.exporters.base import get_exporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from enginebook.errors import InputError
from enginebook.paths import notebooks_dir
from enginebook.report import StudyData
from enginebook.report.exporter import EnginebookExporter, render
from enginebook.report.outputs import clean_html
from enginebook.report.page import HIDDEN, build, translated
from enginebook.report.text import catalogue

EVIL = "<script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>"


@pytest.fixture(scope="module")
def page(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    nbformat.write(sample_notebook.executed(run_folder), folder / "notebook.ipynb")
    data = StudyData.read(run_folder)
    html = folder / "reports" / "sample.html"
    render(folder / "notebook.ipynb", html, title=data.question, language="en", run=data.run_id)
    return html


def export(*cells: Any, **options: Any) -> BeautifulSoup:
    html, _ = EnginebookExporter(**options).from_notebook_node(new_notebook(cells=list(cells)))
    return BeautifulSoup(html, "html.parser")


def output(kind: str, **content: Any) -> Any:
    return new_code_cell("x", outputs=[new_output(kind, **content)])


def test_it_loads_nothing(page: Path) -> None:
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    for tag in soup.find_all():
        for name in ("src", "srcset", "data", "poster"):
            assert str(tag.get(name, "data:")).startswith("data:"), tag
        if tag.name in {"link", "iframe", "object", "embed", "base"}:
            raise AssertionError(tag)
    styles = "".join(str(s.string) for s in soup.find_all("style"))
    assert "@import" not in styles
    assert "url(" not in styles


def test_only_its_own_scripts_may_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])  # type: ignore[index]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 3
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.count("sha256-") == 3


def test_it_is_small_and_carries_the_library_once(page: Path) -> None:
    assert page.stat().st_size <= 1_500_000
    assert page.read_text(encoding="utf-8").count("window.vegaEmbed=") == 1


def test_without_charts_there_is_no_library() -> None:
    soup = export(new_markdown_cell("# T\n\nWords."))
    assert len(str(soup)) < 60_000


def test_it_has_title_contents_and_deep_links(page: Path) -> None:
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    assert [h.text for h in soup.find_all("h1")] == [soup.title.string]  # type: ignore[union-attr]
    targets = {str(a["href"]) for a in soup.select(".eb-contents a")}
    assert len(targets) == len(sample_notebook.SECTIONS) - 1
    for target in targets:
        assert soup.select_one(f'[id="{target[1:]}"]') is not None
    ids = [str(tag["id"]) for tag in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))


def test_charts_have_captions_descriptions_and_a_static_twin(page: Path) -> None:
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    figures = soup.select("figure.eb-chart")
    assert len(figures) == 10
    for figure in figures:
        assert len(str(figure.select_one(".eb-mount")["aria-label"])) > 40  # type: ignore[index]
        assert figure.select_one("figcaption b").text  # type: ignore[union-attr]
        assert str(figure.select_one("noscript img")["src"]).startswith("data:image/svg+xml,")  # type: ignore[index]


def test_code_is_folded_and_preparation_is_left_out() -> None:
    soup = export(new_code_cell("import x"), output("stream", name="stdout", text="seen"))
    assert len(soup.select("details.eb-code")) == 1
    assert not soup.select("details.eb-code[open]")


def test_hidden_cells_serve_the_notebook_only() -> None:
    hidden = [
        new_markdown_cell("secret", metadata={"tags": [tag]})
        for tag in ("parameters", "injected-parameters", "remove-cell", "notebook-only")
    ]
    soup = export(new_markdown_cell("# T"), *hidden, new_markdown_cell("shown"))
    assert "secret" not in soup.get_text()
    assert "shown" in soup.get_text()


def test_the_title_is_the_notebooks_own_unless_given() -> None:
    first = new_markdown_cell("# Own title\n\nIntro", metadata={"tags": ["notebook-only"]})
    assert export(first).title.string == "Own title"  # type: ignore[union-attr]
    assert export(first, title="Given <b>").title.string == "Given <b>"  # type: ignore[union-attr]
    assert export().title.string == "Enginebook"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "cell",
    [
        output("stream", name="stdout", text=f"\x1b[31m{EVIL}"),
        output("stream", name="stderr", text=EVIL),
        output("execute_result", data={"text/plain": EVIL}),
        output("display_data", data={"text/html": EVIL}),
        output("error", ename=EVIL, evalue=EVIL, traceback=[EVIL]),
        new_markdown_cell(EVIL),
        new_markdown_cell(f"## {EVIL}"),
        new_markdown_cell("[x](javascript:alert(1)) ![y](http://evil.example/y.png)"),
    ],
)
def test_nothing_that_a_cell_holds_becomes_a_script(cell: Any) -> None:
    soup = export(new_markdown_cell("# T"), cell)
    assert len(soup.find_all("script")) == 2
    assert not [t for t in soup.find_all() if any(a.startswith("on") for a in t.attrs)]
    assert "\x1b" not in str(soup)
    assert not soup.select('a[href^="javascript"]')


def test_a_chart_cannot_end_its_script_early() -> None:
    spec = {"description": "</script><script>alert(1)</script>", "usermeta": {"title": EVIL}}
    soup = export(output("display_data", data={"application/vnd.vegalite.v5+json": spec}))
    (kept,) = soup.select('script[type="application/json"]')
    assert "</script" not in str(kept.string)
    assert len(soup.find_all("script")) == 4


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ('<b onclick="x()">a</b>', "<b>a</b>"),
        ("<a href=' java\nscript:alert(1)'>a</a>", "<a>a</a>"),
        ('<img src="http://x/y">', "<img/>"),
        ('<img src="data:image/png;base64,AA=="/>', '<img src="data:image/png;base64,AA=="/>'),
        ('<td style="background:url(http://x)">a</td>', "<td>a</td>"),
        ('<td style="text-align:right">a</td>', '<td style="text-align:right">a</td>'),
        ("<div><span>unclosed", "<div><span>unclosed</span></div>"),
        ("<iframe src=x></iframe><style>p{}</style>ok", "ok"),
        ("</div></main>ok", "ok"),
    ],
)
def test_foreign_html_is_cleaned(dirty: str, clean: str) -> None:
    assert clean_html(dirty) == clean


def test_a_failed_cell_says_so() -> None:
    soup = export(
        output("error", ename="EngineError", evalue="it died", traceback=["\x1b[0;31mline"])
    )
    (alert,) = soup.select('[role="alert"]')
    assert "EngineError: it died" in alert.text
    assert "line" in alert.text


def test_links_to_notebooks_become_text_and_raw_html_stays_text() -> None:
    soup = export(
        new_markdown_cell("See [load](30_load.ipynb#x), [site](https://example.org), <b>x</b>.")
    )
    assert [a["href"] for a in soup.select(".eb-text a")] == ["https://example.org"]
    assert "See load, site, <b>x</b>." in soup.get_text()


def test_headings_of_the_same_name_keep_apart() -> None:
    soup = export(new_markdown_cell("## Same\n\n## Same\n\n## 中文 标题"))
    assert [h["id"] for h in soup.find_all("h2")] == ["same", "same-2", "中文-标题"]


def test_known_texts_are_translated_and_changed_ones_are_not() -> None:
    known = catalogue("en")["section.ttft"]
    soup = export(new_markdown_cell(known), new_markdown_cell("## My own\n\nwords"), language="zh")
    assert [h.text.rstrip("#") for h in soup.find_all("h2")] == ["首 token 时间", "My own"]
    assert soup.html["lang"] == "zh-Hans"  # type: ignore[index]


def test_chinese_pages_are_chinese(tmp_path: Path) -> None:
    folder = sample_study.write(tmp_path, language="zh")
    made = build(sample_notebook.executed(folder), "标题", "zh")
    assert all(re.search(r"[\u4e00-\u9fff]", h.text) for h in made.headings.found)
    text = BeautifulSoup("".join(made.blocks), "html.parser")
    for caption in text.select("caption, figcaption b, summary"):
        assert re.search(r"[\u4e00-\u9fff]", caption.get_text()), caption


def test_unreadable_notebooks_and_unknown_languages_are_input_errors(tmp_path: Path) -> None:
    (tmp_path / "bad.ipynb").write_text("{")
    for path in (tmp_path / "bad.ipynb", tmp_path / "none.ipynb"):
        with pytest.raises(InputError, match="cannot be read"):
            render(path, tmp_path / "x.html")
    with pytest.raises(InputError, match="no language"):
        render(tmp_path / "bad.ipynb", tmp_path / "x.html", language="fr")  # type: ignore[arg-type]
    assert not (tmp_path / "x.html").exists()


def test_nbconvert_knows_the_exporter() -> None:
    """As JupyterLab's export menu does: by the name of the entry point."""
    assert get_exporter("enginebook") is EnginebookExporter
    html, _ = get_exporter("enginebook")().from_notebook_node(
        new_notebook(cells=[new_markdown_cell("# Exported")])
    )
    assert "<h1>Exported</h1>" in html


def test_every_text_of_the_report_notebook_can_be_translated() -> None:
    """An edited sentence must be edited in the catalogue too, or Chinese reports show English."""
    notebook = nbformat.read(notebooks_dir() / "60_report.ipynb", as_version=4)
    shown = [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "markdown" and HIDDEN.isdisjoint(cell.metadata.get("tags", []))
    ]
    assert shown
    for source in shown:
        assert re.search(r"[\u4e00-\u9fff]", translated(source, "zh")), source
