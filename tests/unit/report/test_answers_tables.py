"""Tables of answers: who is the reference, who was not compared, and what a bound says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bs4 import BeautifulSoup

from enginebook.report import StudyData, tables
from enginebook.report.doubts import doubts


def texts_of(made: Any) -> list[list[str]]:
    rows = BeautifulSoup(made.html, "html.parser").select("tr")
    return [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in rows]


def answered(engine: str, right: int, **more: Any) -> dict[str, Any]:
    return {
        "engine": engine, "right": right, "of": 40, "low": 0.0, "high": 1.0, "reference": None,
        "same_weights": None, "lost": None, "gained": None, "p": None, "wrong": False,
    } | more  # fmt: skip


def test_only_a_reference_is_called_one(data: StudyData) -> None:
    against = {"reference": "b", "same_weights": True, "lost": 30, "gained": 0, "p": 1e-9}
    rows = (answered("a", 0, **against, wrong=True), answered("b", 30))
    head, *shown = texts_of(tables.accuracy(replace(data, accuracy=rows)))
    assert head[-1] == "Verdict"
    assert [row[-1] for row in shown] == ["worse: no verdict for this engine", "the reference"]
    alone = texts_of(tables.accuracy(replace(data, accuracy=(answered("a", 0),))))
    assert alone[1][-1] == "not compared"


def test_a_bound_from_below_is_no_explanation(data: StudyData) -> None:
    row = {
        "engine": "b", "reference": "a", "same_weights": True, "prompt": "p", "equal": False,
        "first_difference": 3, "same_tokens": 1, "gap_nats": 0.01, "gap_exact": False,
    }  # fmt: skip
    said = {
        known: texts_of(tables.same_text(replace(data, greedy=({**row, "explained": known},))))
        for known in (True, False, None)
    }
    assert said[True][1][-1].startswith("rounding: ")
    assert said[False][1][-1].startswith("not rounding: ")
    assert said[None][1][-1].startswith("not known: ")
    assert "by at least 0.0100 nats" in said[None][1][-1]


def test_the_limits_of_rounding_are_called_assumptions(data: StudyData) -> None:
    assert "assumptions" in tables.same_text(data).plain


def test_the_doubt_counts_the_answers_of_the_engines_that_it_names(data: StudyData) -> None:
    same = {"engine": "c", "reference": "a", "equal": True}
    rows = (
        {"engine": "b", "reference": "a", "equal": False},
        {"engine": "b", "reference": "a", "equal": True},
        same,
        same,
    )
    found = [d for d in doubts(replace(data, greedy=rows)) if "greedy" in d]
    assert len(found) == 1
    assert found[0].startswith("1 of 2 greedy answers of b differ from their reference's")
