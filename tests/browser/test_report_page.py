"""The report in a real browser, offline: drawn, quiet, accessible, and everything works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser_support import Open, until
from playwright.sync_api import Page

from enginebook.report import theme

pytestmark = pytest.mark.browser
CHARTS = 10
PHONE, DESK = 390, 1300


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("dark", [False, True])
def test_all_is_drawn_without_a_request_or_an_error(
    report_file: Path, open_page: Open, width: int, dark: bool
) -> None:
    seen = open_page(report_file, width=width, dark=dark)
    assert seen.page.locator(".eb-mount[data-drawn] svg").count() == CHARTS
    assert seen.errors == []
    assert seen.requests == []
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_accessible(report_file: Path, open_page: Open, width: int, dark: bool) -> None:
    page = open_page(report_file, width=width, dark=dark).page
    page.locator("#eb-code").click()
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def test_chinese_is_drawn_and_accessible(chinese_file: Path, open_page: Open) -> None:
    seen = open_page(chinese_file)
    assert seen.page.locator(".eb-mount[data-drawn] svg").count() == CHARTS
    assert seen.errors == []
    assert Axe().run(seen.page).violations_count == 0


def test_the_first_screen_holds_question_answer_and_chart(
    report_file: Path, open_page: Open
) -> None:
    page = open_page(report_file).page
    for selector in ("h1", ".eb-headline", ".eb-found", "figure.eb-chart >> nth=0 >> svg"):
        box = page.locator(selector).first.bounding_box()
        assert box is not None
        assert box["y"] < 900, selector
    assert page.locator(".eb-found li").count() <= 4


def test_a_point_tells_its_value(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file).page
    point = page.locator("figure.eb-chart").first.locator(".mark-symbol path").last
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    tip = page.locator("#eb-tip")
    tip.wait_for(state="visible")
    text = tip.inner_text()
    assert "vllm" in text
    assert "250 (247 – 253)" in text
    assert Axe().run(page).violations_count == 0
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_the_theme_is_switched_and_kept_for_paper(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file).page
    button = page.locator("#eb-theme")

    paper, engine = theme.INK["paper"], theme.colour("llamacpp")

    def look() -> tuple[str, str]:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        line = page.locator(f'figure.eb-chart .mark-line path[stroke="{engine[0]}"]').first
        return background, line.evaluate("e => getComputedStyle(e).stroke")

    light, dark = ((rgb(paper[i]), rgb(engine[i])) for i in (0, 1))
    assert look() == light
    button.click()
    assert "light" in button.inner_text()
    button.click()
    assert "dark" in button.inner_text()
    assert look() == dark
    page.emulate_media(media="print")
    assert look() == light


def test_dark_charts_keep_nothing_of_the_light_theme(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file, dark=True).page
    painted = page.evaluate(
        """() => [...document.querySelectorAll('.eb-mount svg [fill], .eb-mount svg [stroke]')]
            .flatMap(e => [getComputedStyle(e).fill, getComputedStyle(e).stroke])"""
    )
    light_only = set(theme.swaps()) - set(theme.swaps().values())
    as_rgb = {
        f"rgb({', '.join(str(int(c[i : i + 2], 16)) for i in (1, 3, 5))})" for c in light_only
    }
    assert not as_rgb & set(painted)


def rgb(colour: str) -> str:
    """Return a colour as a browser computes it."""
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def visible_rows(page: Page, table: int) -> int:
    return page.locator("table[data-interactive]").nth(table).locator("tbody tr:visible").count()


def test_claims_are_filtered_searched_and_sorted(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file).page
    claims = page.locator("table[data-interactive]").nth(1)
    bar = page.locator(".eb-filters").nth(1)
    assert bar.locator("output").inner_text() == "5 of 5 rows"
    bar.locator("select").nth(2).select_option("contradicted")
    assert visible_rows(page, 1) == 2
    assert bar.locator("output").inner_text() == "2 of 5 rows"
    bar.locator("input").fill("radix")
    assert visible_rows(page, 1) == 1
    bar.locator("input").fill("")
    bar.locator("select").nth(2).select_option("")
    head = claims.locator("th").first
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    first = [claims.locator("tbody tr").nth(i).locator("td").first.inner_text() for i in range(5)]
    assert first == sorted(first, key=str.lower)
    head.locator("button").press("Enter")
    assert claims.locator("tbody tr").first.locator("td").first.inner_text() == first[-1]


def test_figures_sort_as_numbers(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file).page
    heads = page.locator("th", has_text="Advantage")
    table = page.locator("table[data-interactive]", has=heads).first
    titles = [h.inner_text().split("\n")[0] for h in table.locator("th").all()]
    place = titles.index("Advantage")
    cells = table.locator(f"tbody td:nth-child({place + 1})")
    before = [_first_number(text) for text in cells.all_inner_texts()]
    table.locator("th").nth(place).locator("button").click()
    shown = [_first_number(text) for text in cells.all_inner_texts()]
    assert shown == sorted(before)
    assert shown != before


def _first_number(text: str) -> float:
    return float(text.split(maxsplit=1)[0].replace(",", ""))


def test_code_is_shown_on_demand(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file).page
    assert page.locator("details.eb-code:visible").count() == 0
    page.locator("#eb-code").click()
    assert page.locator("details.eb-code:visible").count() > CHARTS
    assert "report.answer(data)" in page.locator("details.eb-code pre").first.inner_text()
    page.locator("#eb-code").click()
    assert page.locator("details.eb-code:visible").count() == 0


def test_links_lead_to_sections(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file, anchor="#published-claims").page
    box = page.locator("#published-claims").bounding_box()
    assert box is not None
    assert -5 < box["y"] < 300
    page.locator('.eb-contents a[href="#speed-under-load"]').click()
    until(
        page,
        "Math.abs(document.getElementById('speed-under-load').getBoundingClientRect().top) < 300",
    )


def test_the_keyboard_reaches_everything(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "eb-skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    reachable = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, a[href], summary')]
            .filter(e => e.offsetParent !== null && e.tabIndex < 0).length"""
    )
    assert reachable == 0


def test_a_chart_is_saved_as_svg(report_file: Path, open_page: Open, tmp_path: Path) -> None:
    page = open_page(report_file).page
    with page.expect_download() as download:
        page.locator(".eb-save").first.click()
    saved = tmp_path / "chart.svg"
    download.value.save_as(saved)
    assert saved.read_text(encoding="utf-8").startswith("<svg")


def test_charts_follow_the_window(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file).page
    page.set_viewport_size({"width": PHONE, "height": 900})
    widths = "[...document.querySelectorAll('.eb-mount')].every(m => Number(m.dataset.width) < 400)"
    until(page, widths)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_smuggled_script_does_not_run(report_file: Path, open_page: Open, tmp_path: Path) -> None:
    """Even if one got past the escaping, the page's own policy stops it."""
    text = report_file.read_text(encoding="utf-8")
    evil = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace("<h1>", f"{evil}<h1>", 1), encoding="utf-8")
    seen = open_page(changed)
    assert seen.page.title() != "owned"
    assert any("Content Security Policy" in error for error in seen.errors)


def test_without_scripts_it_can_still_be_read(report_file: Path, chromium: object) -> None:
    context = chromium.new_context(java_script_enabled=False, offline=True)  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto(report_file.as_uri())
    assert page.locator("figure.eb-chart img:visible").count() == CHARTS
    assert page.locator("details.eb-code:visible").count() > CHARTS
    assert page.locator(".eb-tools:visible").count() == 0
    context.close()


def test_descriptions_hold_the_values(report_file: Path, open_page: Open) -> None:
    page = open_page(report_file).page
    labels = page.locator(".eb-mount").evaluate_all(
        "all => all.map(e => e.getAttribute('aria-label'))"
    )
    assert len(labels) == CHARTS
    assert all(len(label) > 60 for label in labels), json.dumps(labels)
