"""The further sections and the decision guide in a real browser, offline."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample_study
from axe_playwright_python.sync_playwright import Axe
from browser_support import Open
from playwright.sync_api import Page

from enginebook.report import StudyData
from enginebook.report.guide_page import Wanted, choose, measured_points
from enginebook.report.guide_table import INPUTS, cells

pytestmark = pytest.mark.browser
CHARTS = 16
SECTIONS = (
    "which-engine-for-your-load",
    "reuse-conversations-json-and-online-load",
    "what-it-takes-to-deploy",
    "the-machine-its-limits-and-the-engines",
    "repeat-it-and-what-it-cost",
)
QUESTIONS = (
    Wanted(1, 64, 32),
    Wanted(250, 64, 32, price=3.5),
    Wanted(12.5, 900, 4, price=0.0),
    Wanted(40, 128, 16, ttft_ms=150, price=2),
    Wanted(40, 64, 32, tpot_ms=25.5),
    Wanted(3, 64, 32, ttft_ms=200, tpot_ms=20, price=1.25),
    Wanted(1, 64, 32, ttft_ms=0.5),
)


@pytest.fixture
def report(parts_root: Path) -> Path:
    return parts_root / "reports" / "sample.html"


def ask(page: Page, wanted: Wanted) -> list[list[str]]:
    """Fill the guide's inputs and return the texts of its rows."""
    for name in INPUTS:
        value = getattr(wanted, name)
        page.locator(f'.eb-guide input[data-name="{name}"]').fill(
            "" if value is None else f"{value:g}"
        )
    rows = page.locator(".eb-guide tbody tr")
    return [rows.nth(i).locator("td").all_inner_texts() for i in range(rows.count())]


@pytest.mark.parametrize("width", [390, 1300])
def test_every_section_is_there_and_every_chart_is_drawn(
    report: Path, open_page: Open, width: int
) -> None:
    seen = open_page(report, width=width)
    for section in SECTIONS:
        assert seen.page.locator(f"h2#{section}").count() == 1, section
    assert seen.page.locator(".eb-mount[data-drawn] svg").count() == CHARTS
    assert seen.page.locator(".eb-nodata:visible").count() == 0
    assert seen.errors == []
    assert seen.requests == []
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_accessible(report: Path, open_page: Open, dark: bool) -> None:
    page = open_page(report, dark=dark).page
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def test_page_and_python_give_the_same_answers(
    report: Path, parts_root: Path, open_page: Open
) -> None:
    page = open_page(report).page
    points = measured_points(StudyData.read(parts_root / "runs" / sample_study.RUN))
    seen = set()
    for wanted in QUESTIONS:
        expected = [cells(choice, "en") for choice in choose(points, wanted)]
        assert ask(page, wanted) == expected, wanted
        seen.add(str(expected))
    assert len(seen) == len(QUESTIONS)
    assert "For 1 requests/s of 64 input" in page.locator(".eb-guide [role=status]").inner_text()


def test_a_wrong_input_is_said_and_gives_no_answer(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    rate = page.locator('.eb-guide input[data-name="rate_per_s"]')
    for wrong in ("", "0", "-1"):
        rate.fill(wrong)
        assert rate.get_attribute("aria-invalid") == "true"
        assert page.locator(".eb-guide tbody tr").count() == 0
        assert "positive" in page.locator(".eb-guide [role=status]").inner_text()
    assert Axe().run(page).violations_count == 0
    rate.fill("2")
    assert rate.get_attribute("aria-invalid") == "false"
    assert page.locator(".eb-guide tbody tr").count() == 2


def test_without_scripts_the_first_answer_stands(report: Path, chromium: object) -> None:
    context = chromium.new_context(java_script_enabled=False, offline=True)  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator(".eb-guide tbody tr:visible").count() == 2
    assert page.locator(".eb-guide input:visible").count() == 0
    context.close()


def test_simulated_engines_are_called_so_and_never_advised(report: Path, open_page: Open) -> None:
    page = open_page(report).page
    assert "sglang" not in page.locator(".eb-guide tbody").inner_text()
    named = page.locator("td, .eb-mount svg text").all_inner_texts()
    assert "sglang (simulated)" in named
    assert "sglang" not in named
