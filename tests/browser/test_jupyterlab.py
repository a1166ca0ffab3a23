"""JupyterLab as an analyst uses it: open, change a parameter, run all, look, export; offline.

The notebook reads the small stored study of tests/data, so no engine is started.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from enginebook.paths import notebooks_dir, project_root
from enginebook.pipeline.plan import Plan

pytestmark = pytest.mark.browser
DATA = project_root() / "tests" / "data" / "study"
NOTEBOOK = "40_compare.ipynb"
READY_S, STOP_S, RUN_MS = 60, 10, 90_000
OPTIONS = [
    "--no-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port_retries=0",
    "--ServerApp.allow_root=True",
]
SETTINGS = "@jupyterlab/apputils-extension/notification.jupyterlab-settings"
PAINTED = """canvas => {
    const {width, height} = canvas;
    const pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
}"""


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address, token, and the folders its kernels use."""

    url: str
    token: str
    outputs: Path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    (root / "notebooks").mkdir()
    shutil.copy(notebooks_dir() / NOTEBOOK, root / "notebooks" / NOTEBOOK)
    shutil.copytree(DATA / "outputs", root / "outputs")
    settings = root / "jupyterlab_settings_dir" / SETTINGS
    settings.parent.mkdir(parents=True)
    settings.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    port, token = free_port(), secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", *OPTIONS]
    command += [f"--ServerApp.port={port}", f"--ServerApp.root_dir={root / 'notebooks'}"]
    with (root / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            command, env=environment(root, token), cwd=root, stdout=log, stderr=log
        )
    try:
        found = Lab(f"http://127.0.0.1:{port}", token, root / "outputs")
        wait_ready(found, server, root / "lab.log")
        yield found
    finally:
        server.terminate()  # Lab ends its kernels and then itself
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(root: Path, token: str) -> dict[str, str]:
    """Return an environment in which nothing of the user's own Jupyter is read or changed."""
    own = {
        name: str(root / name.lower())
        for name in (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "JUPYTERLAB_SETTINGS_DIR",
            "JUPYTERLAB_WORKSPACES_DIR",
            "IPYTHONDIR",
            "ENGINEBOOK_CACHE",
        )
    }
    stored = {
        "ENGINEBOOK_ROOT": str(DATA),
        "ENGINEBOOK_OUTPUTS": str(root / "outputs"),
        "ENGINEBOOK_PLAN": str(DATA / "plan.json"),
    }
    return {**os.environ, **own, **stored, "JUPYTER_TOKEN": token}


def wait_ready(found: Lab, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{found.url}/api", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(log.read_text()[-2000:])


@dataclass
class Heard:
    """What the page said and asked for while it was open."""

    home: str
    errors: list[str] = field(default_factory=list)
    abroad: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.home, "data:", "blob:")):
            self.abroad.append(request.url)


@dataclass
class Desk:
    """A notebook that was opened, changed and run, and what was heard meanwhile."""

    page: Page
    heard: Heard


@pytest.fixture(scope="module")
def desk(lab: Lab, chromium: Browser) -> Iterator[Desk]:
    context = chromium.new_context(viewport={"width": 1300, "height": 1000})
    page, heard = context.new_page(), Heard(lab.url)
    heard.listen(page)
    page.goto(f"{lab.url}/lab/tree/{NOTEBOOK}?token={lab.token}")
    change(page, "margin: float = 0.05", "margin: float = 0.9  # changed by hand")
    change(page, 'language: str = "en"', 'language: str = "zh"')
    run_all(page)
    yield Desk(page, heard)
    context.close()


def change(page: Page, old: str, new: str) -> None:
    """Write a line of the parameters cell anew, as one types."""
    line = page.locator(".jp-CodeCell .cm-line", has_text=old).first
    line.click(timeout=60_000)
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    page.keyboard.insert_text(new)
    expect(page.locator(".jp-CodeCell .cm-line", has_text=new).first).to_be_visible()


def run_all(page: Page) -> None:
    """Run all cells in a fresh kernel, by the menu, and wait until the last one is done."""
    expect(page.locator("#jp-bottom-panel")).to_contain_text("| Idle", timeout=RUN_MS)
    page.get_by_role("menubar").get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator(".jp-InputPrompt", has_text="[*]").first.wait_for()
    expect(page.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(0, timeout=RUN_MS)


def test_every_cell_ran_without_an_error(desk: Desk) -> None:
    trouble = desk.page.locator("[data-mime-type*=error]").all_inner_texts()
    assert trouble == []
    prompts = desk.page.locator(".jp-CodeCell .jp-InputPrompt").all_text_contents()
    assert all(re.fullmatch(r"\[\d+\]:", prompt) for prompt in prompts), prompts
    assert desk.page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0


def test_a_chart_is_drawn(desk: Desk) -> None:
    canvas = desk.page.locator(".jp-OutputArea-output .vega-embed canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    assert box["width"] > 400
    assert box["height"] > 150
    assert canvas.evaluate(PAINTED) > 20  # colours, not an empty sheet


def test_the_changed_parameters_reach_results_and_tables(desk: Desk, lab: Lab) -> None:
    """Where 5 % told engines apart, differences below 90 % are now ties."""
    stage = Plan.read(DATA / "plan.json").stage("compare")
    before, after = (
        pl.read_parquet(root / stage.folder / "data" / "comparisons.parquet")["verdict"].to_list()
        for root in (DATA / "outputs", lab.outputs)
    )
    assert after.count("tie") > before.count("tie")
    assert after.count("faster") < before.count("faster")
    tables = " ".join(desk.page.locator(".eb-table caption").all_inner_texts())
    assert re.search(r"[\u4e00-\u9fff]", tables), tables


def test_it_stays_at_home_and_says_nothing_wrong(desk: Desk) -> None:
    assert desk.heard.abroad == []
    assert desk.heard.errors == []


def test_the_export_menu_has_the_report(desk: Desk, lab: Lab) -> None:
    page = desk.page
    page.keyboard.press("Control+s")
    page.get_by_role("menubar").get_by_role("menuitem", name="File", exact=True).click()
    page.locator(".lm-Menu-item", has_text="Save and Export Notebook As").hover()
    page.locator(".lm-Menu-item", has_text="Enginebook").wait_for()
    page.keyboard.press("Escape")
    # What the entry opens; as a window of its own, which a browser without a user would hold back.
    address = f"{lab.url}/nbconvert/enginebook/{NOTEBOOK}?download=true"
    answer = page.context.request.get(address, headers={"Authorization": f"token {lab.token}"})
    assert answer.ok, answer.status_text
    assert "Content-Security-Policy" in answer.text()
    assert answer.text().count('<figure class="eb-chart"') >= 2
