"""Figures as people read them, and text that cannot become markup."""

from __future__ import annotations

import pytest

from enginebook.report.fragment import Fragment, NoData, neutral, safe
from enginebook.report.numbers import (
    NONE,
    data_size,
    duration_ms,
    figure,
    in_unit,
    ratio,
    seconds,
    share,
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, NONE), (float("nan"), NONE), (float("inf"), NONE), (0, "0"),
        (1234.5, "1,234"),
        (123.45, "123"), (12.345, "12.3"), (1.2345, "1.23"), (0.012345, "0.0123"),
        (-3.2, "\u22123.20"),
        (1e-9, "0.000000"),
    ],
)  # fmt: skip
def test_figures_have_three_digits(value: float | None, shown: str) -> None:
    assert figure(value) == shown


def test_units_grow_with_their_value() -> None:
    assert duration_ms(999.4) == "999 ms"
    assert duration_ms(1234.0) == "1.23 s"
    assert duration_ms(None) == NONE
    assert in_unit(250.0, "tokens/s") == "250 tokens/s"
    assert in_unit(2500.0, "ms") == "2.50 s"
    assert in_unit(None, "ms") == NONE


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, NONE),
        (512, "512 B"),
        (2048, "2.00 KiB"),
        (3 * 2**30, "3.00 GiB"),
        (5 * 2**40, "5.00 TiB"),
    ],
)
def test_sizes_are_binary(value: int | None, shown: str) -> None:
    assert data_size(value) == shown


def test_other_forms() -> None:
    assert [ratio(v) for v in (None, 1.014, 12.34)] == [NONE, "1.01", "12.3"]
    assert [seconds(v) for v in (None, 0.0523, 17.23, 123.4)] == [NONE, "0.05", "17.2", "123"]
    assert share(0.081) == "8.10\u202f%"
    assert share(None) == NONE


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%", "100%"),
        ("line\r\nnext", "line\nnext"),
        ("a\x00b\x08c\u202ed", "abcd"),
        ("tab\tand 中文 stay", "tab\tand 中文 stay"),
        ("\x1b", ""),
    ],
)
def test_terminal_escapes_are_neutralised(raw: str, plain: str) -> None:
    assert neutral(raw) == plain


def test_markup_is_escaped_also_in_attributes() -> None:
    assert (
        safe('<img src=x onerror="a">&\'') == "&lt;img src=x onerror=&quot;a&quot;&gt;&amp;&#x27;"
    )


def test_what_a_cell_shows_has_a_plain_twin() -> None:
    assert Fragment("<b>x</b>", "x")._repr_mimebundle_() == {
        "text/html": "<b>x</b>",
        "text/plain": "x",
    }
    note = NoData("Memory", "no <engine> said")
    assert str(note) == "Memory: no <engine> said"
    assert "&lt;engine&gt;" in note._repr_mimebundle_()["text/html"]
