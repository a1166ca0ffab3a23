"""The answer in words: three sentences, numbers with intervals, and no more than the data carry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sample_study

from enginebook.report import StudyData, answer, caveats, doubts, findings, headline, schema
from enginebook.report.wording import metric_name


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("study", ["data", "one_block", "three", "nothing"])
def test_there_are_exactly_three_plain_sentences(
    study: str, language: Any, request: pytest.FixtureRequest
) -> None:
    found = findings(request.getfixturevalue(study), language)
    assert len(found) == 3
    for text in found:
        assert text.endswith("." if language == "en" else "。")
        assert "{" not in text
        assert "None" not in text
        assert "nan" not in text.lower()


def test_they_name_numbers_and_intervals(data: StudyData) -> None:
    throughput, first_token, serve = findings(data)
    assert throughput.startswith("Output throughput at 8 streams: llamacpp delivers 1.4")
    assert "interval" in throughput
    assert first_token.startswith(
        "Time to first token, median at 1,024 input tokens: llamacpp takes"
    )
    assert "over 6 starts" in serve


def test_one_block_names_no_winner(one_block: StudyData) -> None:
    throughput = findings(one_block)[0]
    assert "undecided" in throughput
    assert "no interval" in throughput
    assert headline(one_block).startswith("These data name no winner")
    assert any("One block" in text for text in doubts(one_block))


def test_a_load_whose_cell_was_flagged_gets_no_verdict(tmp_path: Path) -> None:
    folder = sample_study.write(tmp_path)
    path = folder / "data" / "cells.parquet"
    cells = pl.read_parquet(path).with_columns(
        gate_ok=(pl.col("concurrency") != 8) | (pl.col("engine") != "vllm")
    )
    cells.write_parquet(path)
    sample_study.comparisons(cells, margin=0.05).write_parquet(
        folder / "data" / "comparisons.parquet"
    )
    found = findings(StudyData.read(folder))[0]
    assert "no verdict between llamacpp and vllm" in found
    assert "gate failed for vllm" in found


def test_a_turn_at_light_load_is_told(data: StudyData) -> None:
    light = (pl.col("concurrency") == 1) & (pl.col("metric") == "output_tokens_per_s")
    light &= pl.col("scenario") == "throughput"
    points = data.points.with_columns(
        value=pl.when(light & (pl.col("engine") == "llamacpp"))
        .then(30.0)
        .otherwise(pl.col("value"))
    )
    comparisons = data.comparisons.with_columns(
        ratio=pl.when(light).then(0.5).otherwise(pl.col("ratio")),
        low=pl.when(light).then(0.4).otherwise(pl.col("low")),
        high=pl.when(light).then(0.6).otherwise(pl.col("high")),
        verdict=pl.when(light).then(pl.lit("slower")).otherwise(pl.col("verdict")),
    )
    text = findings(replace(data, points=points, comparisons=comparisons))[0]
    assert "the lighter load turns it round" in text
    assert "at 1 stream: vllm delivers 2.00 times as much as llamacpp" in text


def test_the_headline_says_when_it_depends(data: StudyData) -> None:
    text = headline(data)
    assert text.startswith("It depends on the load. Of 21 comparisons, llamacpp is ahead in")
    assert "vllm is ahead in 3 (time to first token)" in text
    assert "without a verdict" in text


def with_verdicts(data: StudyData, verdict: str) -> StudyData:
    better = {"faster": 1.2, "slower": 1.2, "tie": 1.0, "undecided": 1.05}[verdict]
    rate = pl.col("metric").str.ends_with("_per_s")
    ratio = pl.when(rate).then(better).otherwise(1 / better)
    base = pl.when(rate).then(100.0).otherwise(10.0)
    points = data.points.with_columns(
        value=pl.when(pl.col("engine") == "llamacpp").then(base * ratio).otherwise(base)
    )
    comparisons = data.comparisons.with_columns(ratio=ratio, verdict=pl.lit(verdict))
    return replace(data, points=points, comparisons=comparisons)


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("faster", "llamacpp is ahead in all of 21 comparisons"),
        ("tie", "the engines are level in all of 21 comparisons"),
        ("undecided", "These data name no winner: of 21 comparisons"),
    ],
)
def test_the_headline_says_no_more_than_the_verdicts(
    data: StudyData, verdict: str, told: str
) -> None:
    assert told in headline(with_verdicts(data, verdict))


def test_one_leader_with_open_cases_is_not_called_clear(data: StudyData) -> None:
    won = with_verdicts(data, "faster")
    at_one = pl.col("concurrency") == 1
    verdicts = pl.when(at_one).then(pl.lit("tie")).otherwise(pl.col("verdict"))
    text = headline(replace(won, comparisons=won.comparisons.with_columns(verdict=verdicts)))
    assert text == "llamacpp is ahead in 9 of 21 comparisons and behind in none; the rest: 12 ties."


def test_a_leader_that_is_behind_somewhere_is_not_called_behind_in_none(three: StudyData) -> None:
    """Where two others share the lead, nobody wins, and yet the leader elsewhere has lost."""
    long_prompts = pl.col("input_tokens") == 1024
    others = (pl.col("engine_a") == "vllm") & (pl.col("engine_b") == "sglang")
    a_first = pl.col("engine_a") == "llamacpp"
    verdict = (
        pl.when(long_prompts & others).then(pl.lit("tie"))
        .when(long_prompts & a_first).then(pl.lit("slower"))
        .when(a_first).then(pl.lit("faster"))
        .otherwise(pl.lit("tie"))
    )  # fmt: skip
    rate = pl.col("metric").str.ends_with("_per_s")
    best = pl.when(rate).then(200.0).otherwise(1.0)
    worst = pl.when(rate).then(50.0).otherwise(100.0)
    middle = pl.when(rate).then(100.0).otherwise(10.0)
    llamacpp = pl.col("engine") == "llamacpp"
    value = pl.when(llamacpp & long_prompts).then(worst).when(llamacpp).then(best).otherwise(middle)
    changed = replace(
        three,
        points=three.points.with_columns(value=value),
        comparisons=three.comparisons.with_columns(verdict=verdict),
    )
    text = headline(changed)
    assert text.startswith("llamacpp is ahead of all others in 18 of 21 comparisons")
    assert "behind another engine in 3" in text


def test_without_rivals_or_data_it_says_so(nothing: StudyData, data: StudyData) -> None:
    assert headline(nothing) == "Only no engine was measured, so there is nothing to compare."
    alone = replace(
        data,
        points=data.points.filter(pl.col("engine") == "vllm"),
        comparisons=schema.empty("comparisons"),
        launches=schema.empty("launches"),
        memory=schema.empty("memory"),
        installs=schema.empty("installs"),
    )
    assert headline(alone) == "Only vllm was measured, so there is nothing to compare."
    assert findings(nothing)[2] == "The time to serve was not measured."


def test_doubts_come_from_the_data(data: StudyData) -> None:
    text = "\n".join(doubts(data))
    assert "Failed or not measured: 1 load cell" in text
    assert "1 of 70 load cells failed the equal-work check" in text
    assert "quiet host (1)" in text
    assert "3 of 21 comparisons" in text
    assert doubts(data)[-1].startswith("The figures hold for this machine")
    assert "calibration" not in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"calibration": None}, "was not calibrated"),
        (
            {"calibration": {"ok": False, "verdict": "not exact at 64 streams"}},
            "not exact at 64 streams.",
        ),
        ({"greedy": ({"engine": "vllm", "equal": False},)}, "1 of 1 greedy answers of vllm differ"),
        (
            {"accuracy": ({"engine": "vllm", "wrong": True},)},
            "vllm answers far fewer of the short questions",
        ),
        ({"missing": ("a", "b")}, "Failed or not measured: 3 load cells"),
    ],
)
def test_each_weakness_is_named(data: StudyData, change: dict[str, Any], told: str) -> None:
    assert any(told in text for text in doubts(replace(data, **change)))


def test_a_busy_host_is_named(data: StudyData) -> None:
    busy = pl.col("metric") == "others_cpu_share"
    cells = data.cells.with_columns(
        value=pl.when(busy & (pl.col("block") == 0)).then(0.25).otherwise(pl.col("value"))
    )
    (told,) = [
        text for text in doubts(replace(data, cells=cells)) if text.startswith("Other processes")
    ]
    assert "25.0\u202f%" in told
    assert "14 load cells" in told


def test_the_first_screen_holds_it_all_and_escapes_it(data: StudyData) -> None:
    evil = {**data.manifest, "study": {**data.study, "model": {"name": "<script>m"}}}
    shown = answer(replace(data, manifest=evil))
    assert "<script>" not in shown.html
    assert "&lt;script&gt;m" in shown.html
    for text in findings(data):
        assert text in shown.plain
    assert headline(data) in shown.plain
    assert "llamacpp 0.3.5 and vllm 0.32.0" in shown.plain
    assert caveats(data).html.count("<li>") == len(doubts(data))


def test_many_set_ups_of_one_engine_are_named_once(data: StudyData) -> None:
    labels = [f"vllm-{n}" for n in range(5)]
    kinds = [{"engine": e, "engine_id": "vllm"} for e in labels]
    versions = [{"engine": e, "version": "0.32.0"} for e in labels]
    points = pl.concat([data.points.head(1).with_columns(engine=pl.lit(e)) for e in labels])
    study = {**data.study, "engines": [{"name": e} for e in labels]}
    wide = replace(
        data,
        points=points,
        launches=data.launches.clear(),
        memory=data.memory.clear(),
        arms=pl.DataFrame(kinds, schema=data.arms.schema),
        installs=pl.DataFrame(versions, schema=data.installs.schema),
        manifest={**data.manifest, "study": study},
    )
    assert answer(wide).plain.startswith("vllm 0.32.0 in 5 set-ups · ")


def test_metrics_of_an_objective_carry_its_name() -> None:
    assert metric_name("slo_share.chat", "en") == "share within the objective: chat"
    assert metric_name("itl_p50_ms", "en") == "time between tokens, median"
