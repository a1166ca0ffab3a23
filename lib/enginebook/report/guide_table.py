"""The decision guide as a part of the page: inputs, points and the answer to the first question."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData, neutral, safe
from enginebook.report.guide_page import (
    Choice,
    Point,
    Wanted,
    choose,
    commonest_lengths,
    measured_points,
)
from enginebook.report.numbers import NONE, figure
from enginebook.report.tables.table import Column, Row, table
from enginebook.report.text import Language, catalogue, say

INPUTS = ("rate_per_s", "input_tokens", "output_tokens", "ttft_ms", "tpot_ms", "price")
GROUP = "guide.page."
COLUMNS = (
    "engine", "rank", "measured", "streams", "speed", "loss", "replicas", "per_hour", "per_million",
)  # fmt: skip
NUMBERS = frozenset(COLUMNS[3:])


def decision_guide(data: StudyData) -> Fragment | NoData:
    """Return inputs, the table for the first question, and the points for the page's script."""
    language, points = data.language, measured_points(data)
    if not points:
        return NoData(say("guide.caption", language), say("nodata.guide", language))
    wanted = first_question(points, data)
    answer = answered(points, wanted, language)
    inputs = "".join(_input(name, wanted, language) for name in INPUTS)
    html = (
        f'<div class="eb-guide" data-guide="{safe(embedded(points, language))}">'
        f'<div class="eb-asked" hidden>{inputs}</div>'
        f'{answer.html}<p class="eb-sub" role="status">{safe(asked(wanted, language))}</p></div>'
    )
    return Fragment(html, f"{answer.plain}\n{asked(wanted, language)}")


def first_question(points: list[Point], data: StudyData) -> Wanted:
    """Return a question that the points can answer: their commonest lengths, one request/s."""
    price = data.study.get("hourly_price")
    return Wanted(1.0, *commonest_lengths(points), price=float(price) if price else None)


def embedded(points: list[Point], language: Language) -> str:
    """Return points and words as JSON that may stand in an attribute or a script of the page."""
    rows = [asdict(p) | {"engine": neutral(p.engine)} for p in points]
    words = {
        k.removeprefix(GROUP): v for k, v in catalogue(language).items() if k.startswith(GROUP)
    }
    text = json.dumps({"points": rows, "words": words}, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def answered(points: list[Point], wanted: Wanted, language: Language) -> Fragment:
    """Return the table of choices."""
    columns = [Column(say(f"guide.{n}", language), numeric=n in NUMBERS) for n in COLUMNS]
    rows: list[Row] = [cells(choice, language) for choice in choose(points, wanted)]
    return table(columns, rows, caption=say("guide.caption", language))


def cells(choice: Choice, language: Language) -> list[str]:
    """Return a row's texts, as template/guide.js writes them too."""
    at = say("guide.page.lengths", language, input=choice.input_tokens, output=choice.output_tokens)
    if choice.point is None:
        return [choice.engine, say("guide.page.none", language), at, *[NONE] * 6]
    rank = str(choice.rank)
    if choice.undecided:
        rank = say("guide.page.undecided", language, rank=rank)
    return [
        choice.engine,
        rank,
        at,
        str(choice.point.concurrency),
        _span(choice.point),
        figure(None if choice.loss is None else 100 * choice.loss),
        _replicas(choice),
        figure(choice.per_hour),
        figure(choice.per_million),
    ]


def _span(point: Point) -> str:
    if point.low is None or point.high is None:
        return figure(point.value)
    return f"{figure(point.value)} ({figure(point.low)} – {figure(point.high)})"


def _replicas(choice: Choice) -> str:
    if choice.replicas_most is None or choice.replicas_most == choice.replicas:
        return str(choice.replicas)
    return f"{choice.replicas} – {choice.replicas_most}"


def asked(wanted: Wanted, language: Language) -> str:
    """Return the question in words, as the page's script writes it too."""
    given: dict[str, Any] = {name: getattr(wanted, name) for name in INPUTS[:3]}
    return say("guide.page.asked", language, **{k: f"{v:.12g}" for k, v in given.items()})


def _input(name: str, wanted: Wanted, language: Language) -> str:
    value = getattr(wanted, name)
    shown = "" if value is None else f"{value:.12g}"
    label = safe(say(f"guide.input.{name}", language))
    return (
        f'<label>{label} <input type="number" min="0" step="any" inputmode="decimal" '
        f'data-name="{name}" value="{safe(shown)}"></label>'
    )
