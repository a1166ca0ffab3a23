"""A run whose every text is an attack, in the report and in a browser: it is read, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile_support
import nbformat
import polars as pl
import pytest
import sample_notebook
import sample_study
from browser_support import Open, chromium, open_page
from bs4 import BeautifulSoup
from hostile_support import EVIL, FORBIDDEN_CHARACTERS, HTML, LONG, NOTEBOOK, SCRIPT, VEGA, is_quiet
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from enginebook.report import StudyData, renderer, schema
from enginebook.report.exporter import render
from enginebook.report.index import write_index
from enginebook.report.outputs import clean_html

__all__ = ["chromium", "hostile_support", "open_page"]
PHONE, DESK = 390, 1300
# Names that hang together over all frames: an engine of this name was "measured".
RENAMED = {"vllm": f"vllm{SCRIPT}\u202e\x1b[31m{VEGA[0]}", "throughput": f"throughput{HTML[2]}"}
FREE = {
    "comparisons": ("reason",),
    "launches": ("source",),
    "memory": ("source",),
    "loads": ("title", "trace"),
    "arms": ("model", "version", "options", "recipe"),
    "starts": ("source",),
    "swaps": ("to_model",),
    "probes": ("probe", "claim", "value", "source"),
    "simulations": ("label", "source"),
    "installs": ("version", "torch", "kind"),
    "claims": ("claim_id", "topic", "statement", "claimed", "rule", "measured", "reason"),
    "limits": ("source",),
    "samples": ("unit",),
}
"""Columns of free text; the others are words of the product's own."""


def poisoned(folder: Path) -> None:
    """Put attacks into every text of a run's frames, manifest and host, and into file names."""
    for path in (folder / "data").glob("*.parquet"):
        frame = pl.read_parquet(path)
        columns = [
            pl.col(c).replace(RENAMED) if c not in FREE.get(path.stem, ()) else pl.col(c) + EVIL
            for c, kind in frame.schema.items()
            if kind == pl.String
        ]
        flags = [pl.col("flags").list.eval(pl.element() + EVIL)] if "flags" in frame else []
        frame.with_columns(*columns, *flags).write_parquet(path)
    for name in ("manifest.json", "host.json", "data/checks.json"):
        file = folder / name
        file.write_text(json.dumps(_poisoned(json.loads(file.read_text()))), encoding="utf-8")
    (folder / "data" / "x\" onclick='document.title=1' <b>&javascript:.json").write_text("{}")


KEPT = {"data", "claims", "report", "schema", "stages", "language", "outcome", "git", "run"}


def _poisoned(value: Any, key: str = "") -> Any:
    if key in KEPT:
        return value
    if isinstance(value, dict):
        return {k: _poisoned(v, k) for k, v in value.items()} | {f"more{SCRIPT}": EVIL}
    if isinstance(value, list):
        return [_poisoned(v) for v in value]
    if isinstance(value, str):
        return RENAMED.get(value, value + EVIL)
    return value


def cells() -> Iterator[Any]:
    """Yield cells of the notebook itself whose outputs are attacks."""
    outputs = [
        new_output("stream", name="stdout", text=EVIL + LONG),
        new_output("stream", name="stderr", text=NOTEBOOK + EVIL),
        new_output("error", ename=SCRIPT, evalue=EVIL + LONG[:5000], traceback=[EVIL, LONG]),
        new_output("display_data", data={"text/plain": EVIL}),
        new_output("display_data", data={"text/html": EVIL + f"<table><td>{LONG[:20_000]}"}),
        new_output("display_data", data={"text/markdown": EVIL, "text/plain": EVIL}),
        new_output("display_data", data={"application/javascript": "document.title='owned'"}),
        new_output("display_data", data={"image/svg+xml": f"<svg>{SCRIPT}{EVIL}</svg>"}),
        new_output("display_data", data={"text/latex": "$\\href{javascript:alert(1)}{x}$"}),
    ]
    for output in outputs:
        yield new_code_cell(f"show('{EVIL}')", outputs=[output])
    yield new_markdown_cell(
        f"## {EVIL}\n\n{EVIL}\n\n```html\n{EVIL}\n```\n\n| a |\n|-|\n| {SCRIPT} |"
    )


@pytest.mark.parametrize("text", ["a\x00b", "\x1b[31mred", "\x07", "\x08", "\ud800"])
def test_a_control_character_in_a_chart_does_not_end_the_process(text: str) -> None:
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": text, "description": f"about {text}", "mark": "bar",
        "data": {"values": [{"a": text, "b": 1, text: text}]},
        "encoding": {"x": {"field": "a", "type": "nominal"}},
    }  # fmt: skip
    bundle = renderer.mimebundle(spec)
    shown = json.dumps(bundle, ensure_ascii=False)
    assert not [c for c in FORBIDDEN_CHARACTERS if c in shown]
    assert bundle["image/svg+xml"].startswith("<svg")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    folder = sample_study.write(root, parts=True, engines=("llamacpp", "vllm"))
    poisoned(folder)
    notebook = sample_notebook.executed(folder, *cells())
    nbformat.write(notebook, root / "notebook.ipynb")
    data = StudyData.read(folder)
    html = root / "reports" / "sample.html"
    render(root / "notebook.ipynb", html, title=data.question, run=data.run_id)
    write_index(root)
    return html


@pytest.fixture(scope="module")
def soup(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def test_every_frame_was_poisoned() -> None:
    """A column that is new must be put into one of the two kinds."""
    known = {c for columns in FREE.values() for c in columns}
    words = {
        *("engine", "scenario", "metric", "cell", "engine_a", "engine_b", "verdict", "phase"),
        *("component", "state", "family", "kind", "arrival", "answer_format", "schema_name"),
        *("cache", "engine_id", "arm", "x_name", "physics_verdict", "series", "topic"),
    }
    texts = {c for s in schema.SCHEMAS.values() for c, t in s.items() if t == pl.String}
    assert texts <= known | words


def test_the_page_holds_no_attack(soup: BeautifulSoup) -> None:
    scripts = [s for s in soup.find_all("script") if s.get("type") != "application/json"]
    assert len(scripts) == 3, "the theme, the chart library, the page's own"
    assert not [t for t in soup.find_all() if any(a.lower().startswith("on") for a in t.attrs)]
    for name in ("iframe", "object", "embed", "base", "form", "link"):
        assert soup.find_all(name) == []
    assert len(soup.find_all("style")) == 1
    assert [m.get("http-equiv") for m in soup.find_all("meta") if m.get("http-equiv")] == [
        "Content-Security-Policy"
    ]
    for tag in soup.find_all(href=True):
        assert not tag["href"].lower().startswith(("javascript", "data", "vbscript", "http://evil"))
    for tag in soup.find_all(src=True):
        assert tag["src"].startswith("data:image/")


def test_no_character_hides_or_turns_a_word(soup: BeautifulSoup) -> None:
    for data in soup.find_all("script"):
        data.extract()
    text = str(soup)
    assert not [c for c in FORBIDDEN_CHARACTERS if c in text]


def test_the_words_are_there_to_be_read(soup: BeautifulSoup) -> None:
    text = soup.get_text()
    assert text.count(SCRIPT) > 20
    assert "event.view.alert(1)" in text


def test_the_executed_notebook_shows_words_too(page: Path) -> None:
    """JupyterLab renders what a trusted notebook holds as it is: it must be safe by itself."""
    notebook = nbformat.read(page.parents[1] / "notebook.ipynb", as_version=4)
    own = [c for c in notebook.cells if c.cell_type == "code" and c.source.startswith("report.")]
    shown = [o.data["text/html"] for c in own for o in c.outputs if "text/html" in o.data]
    assert len(shown) > 20
    for html in shown:
        soup = BeautifulSoup(html, "html.parser")
        scripts = [t for t in soup.find_all("script") if t.get("type") != "application/json"]
        assert scripts + soup.find_all(["iframe", "img", "object", "embed", "meta", "base"]) == []
        assert not [t for t in soup.find_all() if any(a.startswith("on") for a in t.attrs)]
        assert not [c for c in FORBIDDEN_CHARACTERS if c in html]
    plain = [o.data.get("text/plain", "") for c in own for o in c.outputs]
    assert all(is_quiet(text) for text in plain)


def test_specs_of_charts_are_data(page: Path) -> None:
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    specs = [json.loads(s.string) for s in soup.select('script[type="application/json"]')]
    assert len(specs) > 8
    for spec in specs:
        for expression in _expressions(spec):
            assert "constructor" not in expression, expression
            assert "<script" not in expression


def _expressions(value: Any) -> Iterator[str]:
    """Yield what Vega evaluates: filters, calculations and `expr` in any place but the data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in {"expr", "filter", "calculate", "labelExpr", "test", "update", "signal"}:
                yield json.dumps(inner) if not isinstance(inner, str) else inner
            elif key not in {"datasets", "values"}:
                yield from _expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _expressions(inner)


@pytest.mark.parametrize(
    "dirty",
    [
        *HTML, EVIL, "<scr<script>ipt>alert(1)</scr</script>ipt>",
        "<svg><style><img src=x onerror=1>",
        "<math><mi xlink:href='javascript:1'>", "<a href='jav\tascript:1'>x</a>",
        "<a href='&#106;avascript:1'>x</a>", "<img src='x' srcset='http://evil.example/x'>",
        "<template><script>1</script></template>", "<noscript><p title='</noscript><img src=x>'>",
        "<div style='background:url(//evil.example)'>", "<video poster=http://evil.example>",
        "<button formaction='javascript:1'>", "<svg><a xlink:href='javascript:1'>", "<p " * 300,
        "<b>" * 900,
    ],
    ids=lambda d: d[:24],
)  # fmt: skip
def test_html_of_others_is_cleaned(dirty: str) -> None:
    soup = BeautifulSoup(clean_html(dirty), "html.parser")
    assert soup.find_all(["script", "iframe", "style", "meta", "base", "object", "link"]) == []
    for tag in soup.find_all():
        assert not [a for a in tag.attrs if a.lower().startswith("on")]
        for name in ("href", "xlink:href", "src", "srcset", "formaction", "poster"):
            value = str(tag.attrs.get(name, "")).lower()
            assert "script:" not in value.replace("\t", "")
            assert "evil.example" not in value or name == "href"


@pytest.mark.browser
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_in_a_browser_nothing_runs_loads_or_breaks(page: Path, open_page: Open, width: int) -> None:
    dialogs: list[str] = []
    seen = open_page(page, width=width)
    seen.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for selector in ("#eb-code", "#eb-theme", "table[data-interactive] th button >> nth=0"):
        seen.page.locator(selector).first.click()
    for summary in seen.page.locator("details > summary:visible").all()[:5]:
        summary.click()
    seen.page.locator(".mark-symbol path, .mark-rect path").last.hover(force=True)
    seen.page.wait_for_timeout(300)
    assert seen.page.title() not in {"1", "owned"}
    assert dialogs == []
    assert seen.requests == []
    # not even an attempt: the policy had nothing to stop (Vega itself warns of long legends)
    assert [e for e in seen.errors if not e.startswith("WARN ")] == []
    mounted = seen.page.locator(".eb-mount").count()
    assert seen.page.locator(".eb-mount[data-drawn] svg").count() == mounted > 8
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_the_index_of_runs_is_as_calm(page: Path, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": PHONE, "height": 900}, offline=True)
    try:
        index = context.new_page()
        errors: list[str] = []
        index.on("pageerror", lambda error: errors.append(str(error)))
        index.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        index.goto((page.parent / "index.html").as_uri())
        assert SCRIPT in index.inner_text("body")
        assert index.title() != "owned"
        assert errors == []
        assert index.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finally:
        context.close()
