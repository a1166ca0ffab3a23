"""Tables of the decision guide: paired ranking, the article's tree derived anew, features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginebook.claims import Workload, decision_rules, feature_table, load_register, rank
from enginebook.claims.model import TITLES
from enginebook.report.charts.claims import key_of, tone
from enginebook.report.claim_texts import reason, statement
from enginebook.report.data import StudyData
from enginebook.report.fragment import Fragment, NoData
from enginebook.report.guide_page import commonest_lengths, measured_points
from enginebook.report.numbers import NONE, figure, share
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import Language, known, listing, say

MARGIN = 0.03
TONES = {"best": "good", "worse": "bad", "misses the limits": "bad"}


def ranking(data: StudyData) -> Fragment | NoData:
    """Return the engines for the guide's first question, held against each other block by block."""
    language, points = data.language, measured_points(data)
    if not points:
        return NoData(say("advice.ranking_none", language), say("nodata.guide", language))
    workload = Workload(*commonest_lengths(points), requests_per_s=1.0)
    # the comparisons tell by which margin the host's noise floor had this study judged
    frames = {"cells": data.cells, "arms": data.arms, "comparisons": data.comparisons}
    frames |= {} if data.loads.is_empty() else {"loads": data.loads}
    found = rank(workload, frames, margin=float(data.study.get("margin") or MARGIN))
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.verdict", language)),
        Column(say("advice.carries", language), say("unit.per_s", language), numeric=True),
        Column(say("advice.lost", language), numeric=True),
        Column(say("advice.next", language)),
    ]
    rows = [_ranked(row, language) for row in found.iter_rows(named=True)]
    inputs = found["measured_input_tokens"].drop_nulls().first() or workload.input_tokens
    outputs = found["measured_output_tokens"].drop_nulls().first() or workload.output_tokens
    caption = say("advice.ranking", language, input=inputs, output=outputs)
    return table(columns, rows, caption=caption)


def _ranked(row: Mapping[str, Any], language: Language) -> Row:
    word = str(row["verdict"])
    rate, loss = row["requests_per_s"], row["regret"]
    # an interval below nothing says that it may as well be the best: then nothing is lost
    least = None if row["regret_low"] is None else max(0.0, row["regret_low"])
    return [
        row["engine"],
        Value(say(f"advice.verdict.{key_of(word)}", language), tone=TONES.get(word, "open")),
        Value(figure(rate), sort=rate, note=_span(row["low"], row["high"], figure)),
        Value(share(loss), sort=loss, note=_span(least, row["regret_high"], share)),
        _next(row, language),
    ]


def _span(low: float | None, high: float | None, text: Any) -> str:
    return "" if low is None or high is None else f"{text(low)} – {text(high)}"


def _next(row: Mapping[str, Any], language: Language) -> str:
    """Return the run that would settle a row, as the ranking names it."""
    if row["next_kind"] is None:
        return NONE
    return say(
        f"advice.{row['next_kind']}",
        language,
        scenario=row["next_scenario"],
        input=row["next_input_tokens"],
        output=row["next_output_tokens"],
        blocks=row["next_blocks"],
        streams=row["next_concurrency"],
        engines=listing(row["next_engines"] or [], language),
    )


def decision_tree(data: StudyData) -> Fragment | NoData:
    """Return each rule of the article's tree beside what this study measured."""
    language, caption = data.language, say("advice.tree", data.language)
    if data.cells.is_empty():
        return NoData(caption, say("nodata.points", language))
    frames = {"arms": data.arms} | ({} if data.loads.is_empty() else {"loads": data.loads})
    found = decision_rules(
        load_register(), data.cells, host=data.host, manifest=data.manifest, frames=frames,
        margin=float(data.study.get("margin") or MARGIN),
    )  # fmt: skip
    # one mean above the others is no winner: then the column says no more than that
    best = "best_here" if found.drop_nulls("best_here")["best_decided"].all() else "highest_here"
    columns = [
        Column(say("advice.rule", language)),
        Column(say("advice.advised", language)),
        Column(say(f"advice.{best}", language)),
        Column(say("advice.loss", language)),
        Column(say("table.verdict", language), filtered=True),
        Column(say("table.reason", language)),
    ]
    rows = [_rule(row, language) for row in found.iter_rows(named=True)]
    return table(columns, rows, caption=caption, interactive=True)


def _rule(row: Mapping[str, Any], language: Language) -> Row:
    verdict = str(row["verdict"])
    best, decided = row["best_here"], row["best_decided"]
    note = "" if decided else say("advice.not_decided", language, n=row["best_n"])
    return [
        Value(statement(row["rule"], language), note=row["claim_id"]),
        TITLES.get(row["advised"], row["advised"]),
        NONE if best is None else Value(TITLES.get(best, best), note=note),
        Value(row["regret"] or NONE, note=_span(row["low"], row["high"], share)),
        Value(known(f"verdict.{key_of(verdict)}", language, verdict), tone=tone(verdict)),
        reason(row["reason"], language),
    ]


def features(data: StudyData) -> Fragment | NoData:
    """Return what every engine needs and offers, with the page where it was read, and when."""
    language = data.language
    columns = [
        Column(say("table.engine", language), filtered=True),
        Column(say("advice.feature", language), filtered=True),
        Column(say("advice.fact", language)),
        Column(say("advice.read", language)),
    ]
    rows: list[Row] = [
        [
            TITLES.get(row["engine"], row["engine"]),
            say(f"feature.{row['feature']}", language),
            row["value"],
            Value(", ".join(row["pages"]), href=row["sources"][0], note=row["as_of"]),
        ]
        for row in feature_table().sort("engine", maintain_order=True).iter_rows(named=True)
    ]
    return table(
        columns, rows, caption=say("advice.features", language), interactive=True,
        folded=say("advice.fold", language),
    )  # fmt: skip
