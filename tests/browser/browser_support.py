"""A real Chromium without network, and the report it opens."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

import sample_notebook
import sample_study

from enginebook.report import StudyData
from enginebook.report.exporter import render

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
DRAWN_MS = 60_000


# Of one module and not of the session: while Playwright's synchronous interface is open, asyncio
# takes a loop for running in this thread, and every test after it that runs one of its own fails.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = next((p for p in map(shutil.which, NAMES) if p), None)
    if path is None:
        pytest.skip(f"no Chromium on this machine (looked for {', '.join(NAMES)})")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


def rendered(root: Path, language: str, *, parts: bool = False) -> Path:
    engines = sample_study.FULL if parts else sample_study.ENGINES
    folder = sample_study.write(root, engines=engines, language=language, parts=parts)
    nbformat.write(sample_notebook.executed(folder), root / "notebook.ipynb")
    data = StudyData.read(folder)
    html = root / "reports" / "sample.html"
    render(
        root / "notebook.ipynb", html, title=data.question, language=data.language, run=data.run_id
    )
    return html


@pytest.fixture(scope="session")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("report"), "en")


@pytest.fixture(scope="session")
def chinese_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("bericht"), "zh")


@pytest.fixture(scope="session")
def parts_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an outputs folder with a study of every kind of scenario, and its report."""
    root = tmp_path_factory.mktemp("parts")
    rendered(root, "en", parts=True)
    return root


@dataclass
class Seen:
    """What a page did that it should not: errors, and requests beyond its own file."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith(("file:", "data:")):
            self.requests.append(request.url)


def until(page: Page, expression: str, timeout_s: float = 30.0) -> None:
    """Wait until an expression holds; Playwright's own waiting needs eval, which a page forbids."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(100)


Open = Callable[..., Seen]


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Open]:
    """Return a function that opens a file offline and waits until its charts are drawn."""
    contexts = []

    def opened(path: Path, *, width: int = 1300, dark: bool = False, anchor: str = "") -> Seen:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            offline=True,
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        seen = Seen(context.new_page())
        seen.page.goto(path.as_uri() + anchor)
        seen.page.wait_for_selector("html[data-ready]", timeout=DRAWN_MS, state="attached")
        return seen

    yield opened
    for context in contexts:
        context.close()
