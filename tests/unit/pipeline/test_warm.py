"""An engine that stays after the cell, for an analyst who tries things out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginebook.errors import InputError
from enginebook.lifecycle import leases
from enginebook.pipeline.book import Book, begin
from enginebook.pipeline.steps.load import load_engine
from enginebook.pipeline.steps.warm import LONGEST_S, seconds_of, warm_for

STUDY: dict[str, Any] = {
    "study": "warm",
    "question": "?",
    "model": {"dummy": "llama-3.1-8b"},
    "engines": ["simulated"],
    "scenarios": [
        {"name": "s", "concurrency": 1, "input_tokens": 16, "output_tokens": 4, "min_requests": 2,
         "requests_per_stream": 2, "warmup_per_stream": 0, "precision": None}
    ],
    "blocks": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15min", 900), ("90s", 90), ("2 h", 7200), (30, 30), (0, 0), ("1.5h", 5400)],
)
def test_times_as_people_write_them(text: float | str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["15 minutes", "-1s", "", "min", "1d", LONGEST_S + 1, "nan"])
def test_what_is_no_time_is_refused(text: float | str) -> None:
    with pytest.raises(InputError, match="no time"):
        seconds_of(text)


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ENGINEBOOK_PLAN", raising=False)

    def open_block(block: int) -> Book:
        return begin("load", STUDY | {"engine": "simulated", "block": block},
                     outputs=tmp_path / "outputs")  # fmt: skip

    yield open_block
    for running in leases.all_noted():
        leases.end(running)


def test_a_batch_run_keeps_nothing_and_blocks_share_nothing(
    notebook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (warm_for(notebook(block), "5min") for block in (0, 1))
    assert first[0] == second[0] == 300
    assert first[1] != second[1]
    book = notebook(0)
    monkeypatch.setenv("ENGINEBOOK_PLAN", "/some/plan.json")
    assert warm_for(book, "5min") == (0.0, {})


def test_the_next_call_takes_the_engine_over(notebook: Any) -> None:
    book = notebook(0)
    load_engine(book, keep_warm="2min")
    (kept,) = leases.all_noted()
    for cell in book.cells():
        shutil.rmtree(book.cell_folder(cell, book.engine))
    again = load_engine(book, keep_warm="2min")
    assert again["measured"] == 1
    assert [r.facts["engine_pid"] for r in leases.all_noted()] == [kept.facts["engine_pid"]]
    load_engine(notebook(1), keep_warm="2min")  # another block is another start
    assert len(leases.all_noted()) == 2
