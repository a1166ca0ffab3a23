"""Chinese readers get every claim of the register in Chinese, and nobody's own claim is changed."""

from __future__ import annotations

import re

import polars as pl
import pytest
from bs4 import BeautifulSoup

from enginebook.claims import explain_register, judge, load_register
from enginebook.load.calibration import Level, _verdict
from enginebook.report import StudyData, charts, tables
from enginebook.report.claim_texts import reason, statement, texts
from enginebook.report.wording import reason as translated

CHINESE = re.compile(r"[\u4e00-\u9fff]")
CLAIMS = load_register().claims


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.id for claim in CLAIMS])
def test_every_statement_is_translated_with_its_figures(claim) -> None:  # type: ignore[no-untyped-def]
    shown = statement(claim.statement, "zh")
    assert CHINESE.search(shown), claim.statement
    for number in re.findall(r"\d[\d.,]*\d|\d", claim.statement):
        assert number in shown, (number, shown)


def test_no_translation_belongs_to_a_claim_that_is_gone() -> None:
    known = texts("zh")
    assert known is not None
    english = {c.statement for c in CLAIMS}
    assert len(known.statements) >= len(
        [c for c in CLAIMS if not c.id.startswith(("THR", "TTFT", "MEM"))]
    )
    judged = judge(load_register())
    orphans = set(known.statements) - english - set(judged["claimed"].drop_nulls())
    assert orphans == set()


def test_what_was_claimed_and_why_is_translated() -> None:
    judged = judge(load_register())
    for row in judged.iter_rows(named=True):
        shown = statement(row["claimed"] or "1 GB", "zh")
        words = re.findall(
            r"[a-z]{3,}", re.sub(r"`[^`]*`|TensorRT|SGLang|vLLM|ms|tokens/s|GB", "", shown)
        )
        assert not words or CHINESE.search(shown), shown
        assert CHINESE.search(reason(row["reason"], "zh")), row["reason"]


def test_a_time_is_said_to_be_faster_than_the_limit_and_not_a_share_of_it() -> None:
    judged = judge(load_register())
    row = judged.filter(pl.col("claim_id") == "TTFT-tensorrt_llm-2048").row(0, named=True)
    english = "claimed is 155 ms, 1.86 times as fast as the limit allows"
    assert english in row["reason"]
    assert "of it is claimed" not in row["reason"]
    shown = reason(row["reason"], "zh")
    assert "所称为 155 ms，速度是极限所允许的 1.86 倍" in shown
    by_memory = judged.filter(pl.col("claim_id") == "TTFT-vllm-0128")["reason"][0]
    for text in (shown, reason(by_memory, "zh")):
        assert not re.search(r"\b(limit|claimed|allows)\b", text)


def test_english_and_the_words_of_others_stay_as_they_are() -> None:
    assert statement(CLAIMS[0].statement, "en") == CLAIMS[0].statement
    assert statement("Our engine is best", "zh") == "Our engine is best"
    assert reason("physics: no", "en") == "physics: no"


def test_the_table_is_in_the_reports_language(nothing: StudyData) -> None:
    judged = judge(load_register()).head(30)
    columns = [c for c in nothing.claims.columns if c in judged.columns]
    frame = pl.concat([nothing.claims, judged.select(columns)], how="diagonal_relaxed")
    study = {"study": {"language": "zh", "question": "?"}}
    data = StudyData(
        host={}, manifest=study, cells=nothing.cells, points=nothing.points,
        comparisons=nothing.comparisons, claims=frame,
    )  # fmt: skip
    soup = BeautifulSoup(tables.claims(data).html, "html.parser")
    rows = soup.select("tbody tr")
    assert len(rows) == 30
    for row in rows:
        assert CHINESE.search(row.select("td")[0].get_text())
        assert CHINESE.search(row.select("td")[-1].get_text())


def test_the_chart_says_that_several_hypotheses_allow_the_speeds(parts: StudyData) -> None:
    title = charts.hypotheses(parts).to_dict()["usermeta"]["title"]
    found = explain_register(load_register())
    broken = found["rate_impossible"] + found["ttft_impossible"]
    allowed = int((broken == 0).sum())
    assert 1 < allowed < found.height
    assert title.startswith(f"{allowed} of {found.height} hypotheses allow all 33 speed figures")
    fitting = found.filter(broken == 0)
    best = fitting.row(int(fitting["weights_error"].abs().arg_min() or 0), named=True)
    assert found["hypothesis"][0] == best["hypothesis"] == "4 x H100-SXM bf16"
    assert "4 × H100 BF16 also fits the stated weights best" in title


def test_the_calibrations_verdict_is_translated() -> None:

    fields = dict.fromkeys(Level.__dataclass_fields__, 0)
    good, bad = Level(**{**fields, "streams": 64}), Level(**{**fields, "streams": 256})
    for verdict in (_verdict([good], []), _verdict([good, bad], [bad])):
        shown = translated(verdict, "zh")
        assert CHINESE.search(shown)
        assert not re.search(r"streams|exact", shown)
