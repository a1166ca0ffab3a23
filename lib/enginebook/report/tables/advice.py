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
from enginebook.report.guide_page import Wanted, commonest_lengths, measured_points
from enginebook.report.numbers import NONE, figure, share
from enginebook.report.tables.table import Column, Row, Value, table
from enginebook.report.text import Language, known, say

MARGIN = 0.03
TONES = {"best": "good", "worse": "bad", "misses the limits": "bad"}


def ranking(data: StudyData) -> Fragment | NoData:
    """Return the engines for the guide's first question, held against each other block by block."""
    language, caption = data.language, say("advice.ranking", data.language)
    points = measured_points(data)
    if not points:
        return NoData(caption, say("nodata.guide", language))
    wanted = Wanted(1.0, *commonest_lengths(points))
    workload = Workload(int(wanted.input_tokens), int(wanted.output_tokens), wanted.rate_per_s)
    frames = {"cells": data.cells, "arms": data.arms}
    frames |= {} if data.loads.is_empty() else {"loads": data.loads}
    found = rank(workload, frames, margin=float(data.study.get("margin") or MARGIN))
    columns = [
        Column(say("table.engine", language)),
        Column(say("table.verdict", language)),
        Column(say("advice.carries", language), say("unit.per_s", language), numeric=True),
        Column(say("advice.lost", language), numeric=True),
        Column(say("advice.next", language)),
    ]
    rows = [_ranked(row, workload, language) for row in found.iter_rows(named=True)]
    return table(columns, rows, caption=caption)


def _ranked(row: Mapping[str, Any], workload: Workload, language: Language) -> Row:
    word = str(row["verdict"])
    rate, loss = row["requests_per_s"], row["regret"]
    # an interval below nothing says that it may as well be the best: then nothing is lost
    least = None if row["regret_low"] is None else max(0.0, row["regret_low"])
    return [
        row["engine"],
        Value(say(f"advice.verdict.{key_of(word)}", language), tone=TONES.get(word, "open")),
        Value(figure(rate), sort=rate, note=_span(row["low"], row["high"], figure)),
        Value(share(loss), sort=loss, note=_span(least, row["regret_high"], share)),
        _next(row, workload, language),
    ]


def _span(low: float | None, high: float | None, text: Any) -> str:
    return "" if low is None or high is None else f"{text(low)} – {text(high)}"


def _next(row: Mapping[str, Any], workload: Workload, language: Language) -> str:
    if row["next_kind"] is None:
        return NONE
    return say(
        f"advice.{row['next_kind']}",
        language,
        scenario=row["scenario"] or "throughput",
        input=workload.input_tokens,
        output=workload.output_tokens,
        blocks=row["blocks_needed"] or 5,
    )


def decision_tree(data: StudyData) -> Fragment | NoData:
    """Return each rule of the article's tree beside what this study measured."""
    language, caption = data.language, say("advice.tree", data.language)
    if data.cells.is_empty():
        return NoData(caption, say("nodata.points", language))
    frames = {"arms": data.arms} | ({} if data.loads.is_empty() else {"loads": data.loads})
    found = decision_rules(
        load_register(), data.cells, host=data.host, manifest=data.manifest, frames=frames
    )
    columns = [
        Column(say("advice.rule", language)),
        Column(say("advice.advised", language)),
        Column(say("advice.best_here", language)),
        Column(say("advice.loss", language)),
        Column(say("table.verdict", language), filtered=True),
        Column(say("table.reason", language)),
    ]
    rows = [_rule(row, language) for row in found.iter_rows(named=True)]
    return table(columns, rows, caption=caption, interactive=True)


def _rule(row: Mapping[str, Any], language: Language) -> Row:
    verdict = str(row["verdict"])
    best = row["best_here"]
    return [
        Value(statement(row["rule"], language), note=row["claim_id"]),
        TITLES.get(row["advised"], row["advised"]),
        NONE if best is None else TITLES.get(best, best),
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
