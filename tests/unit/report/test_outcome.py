"""Who leads: only whom the comparison calls better, whichever way round it is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from enginebook.report import StudyData, schema
from enginebook.report.outcome import Load, comparable, compare, loads, outcome, outcomes, sweep
from enginebook.report.text import Language
from enginebook.report.wording import brief_reason, reason, sentence

LOAD = Load("s", 4, 64, 32)
KEY = {"scenario": "s", "concurrency": 4, "input_tokens": 64, "output_tokens": 32}
RATE, TIME = "output_tokens_per_s", "ttft_p50_ms"


def study(values: dict[str, float], rows: list[dict[str, Any]], metric: str = RATE) -> StudyData:
    """Return a study of one load with these values and comparisons."""
    points = [
        {
            "engine": e,
            **KEY,
            "metric": metric,
            "n_blocks": 5,
            "value": v,
            "low": v * 0.99,
            "high": v * 1.01,
        }
        for e, v in values.items()
    ]
    usual = {**KEY, "metric": metric, "n_pairs": 5, "reason": "", "blocks_needed": None}
    return StudyData(
        host={},
        manifest={"study": {"engines": [{"name": e} for e in values]}},
        cells=schema.empty("cells"),
        points=pl.DataFrame(points, schema=dict(schema.SCHEMAS["points"])),
        comparisons=pl.DataFrame(
            [usual | row for row in rows], schema=dict(schema.SCHEMAS["comparisons"])
        ),
    )


def row(
    a: str, b: str, verdict: str, ratio: float, *interval: float | None, **more: Any
) -> dict[str, Any]:
    low, high = interval
    pair = {"engine_a": a, "engine_b": b, "verdict": verdict}
    return pair | {"ratio": ratio, "low": low, "high": high} | more


def test_a_better_value_alone_is_no_win() -> None:
    data = study(
        {"a": 100, "b": 90}, [row("a", "b", "undecided", 1.11, 0.97, 1.27, blocks_needed=12)]
    )
    found = outcome(data, LOAD, RATE)
    assert found is not None
    assert (found.kind, found.leader, found.winner) == ("undecided", "a", None)
    text = sentence(found, "en")
    assert "undecided between a and b" in text
    assert "0.97 to 1.27" in text
    assert "about 12 blocks would decide" in text


@pytest.mark.parametrize("swapped", [False, True])
def test_a_rates_advantage_is_the_same_whichever_way_it_is_stored(swapped: bool) -> None:
    stored = (
        row("b", "a", "slower", 0.5, 0.4, 0.625)
        if swapped
        else row("a", "b", "faster", 2.0, 1.6, 2.5)
    )
    found = outcome(study({"a": 100, "b": 50}, [stored]), LOAD, RATE)
    assert found is not None
    assert found.winner == "a"
    assert found.pair is not None
    assert [found.pair.advantage, found.pair.low, found.pair.high] == pytest.approx([2.0, 1.6, 2.5])
    assert "a delivers 2.00 times as much as b" in sentence(found, "en")


@pytest.mark.parametrize("swapped", [False, True])
def test_a_times_advantage_is_turned_round(swapped: bool) -> None:
    stored = (
        row("b", "a", "slower", 2.0, 1.6, 2.5)
        if swapped
        else row("a", "b", "faster", 0.5, 0.4, 0.625)
    )
    found = outcome(study({"a": 50, "b": 100}, [stored], TIME), LOAD, TIME)
    assert found is not None
    assert found.winner == "a"
    assert found.pair is not None
    assert [found.pair.advantage, found.pair.low, found.pair.high] == pytest.approx([2.0, 1.6, 2.5])
    assert "b takes 2.00 times as long as a" in sentence(found, "en")


def test_a_winner_beats_every_other_engine() -> None:
    values = {"a": 100, "b": 98, "c": 50}
    beats_c = [row("a", "c", "faster", 2.0, 1.9, 2.1), row("b", "c", "faster", 1.9, 1.8, 2.0)]
    tied = study(values, [*beats_c, row("a", "b", "tie", 1.02, 0.99, 1.05)])
    found = outcome(tied, LOAD, RATE)
    assert found is not None
    assert (found.kind, found.winner) == ("tie", None)
    assert found.pair is not None
    assert found.pair.second == "b"
    clear = study(values, [*beats_c, row("a", "b", "faster", 1.02, 1.01, 1.03)])
    assert outcome(clear, LOAD, RATE).winner == "a"  # type: ignore[union-attr]


def test_contradicting_data_name_no_winner() -> None:
    data = study({"a": 100, "b": 90}, [row("a", "b", "slower", 0.9, 0.85, 0.95)])
    assert outcome(data, LOAD, RATE).kind == "undecided"  # type: ignore[union-attr]


def test_no_verdict_says_why() -> None:
    refused = row(
        "a",
        "b",
        "no verdict",
        1.1,
        None,
        None,
        reason="the equal-work gate failed for b in block 2",
    )
    found = outcome(study({"a": 100, "b": 90}, [refused]), LOAD, RATE)
    assert found is not None
    assert found.kind == "no verdict"
    assert "gate failed for b in block 2" in sentence(found, "en")
    assert "b 在区组 2 未通过等量工作检查" in sentence(found, "zh")


def test_engines_that_nobody_compared_have_no_verdict() -> None:
    found = outcome(study({"a": 100, "b": 90}, []), LOAD, RATE)
    assert found is not None
    assert found.kind == "no verdict"
    assert "not compared" in sentence(found, "en")


def test_one_engine_is_alone_and_nothing_is_nothing() -> None:
    data = study({"a": 100}, [])
    found = outcome(data, LOAD, RATE)
    assert found is not None
    assert found.kind == "alone"
    assert "no other engine was measured" in sentence(found, "en")
    assert outcome(data, LOAD, TIME) is None
    assert outcomes(data, [RATE]) == []
    assert compare(data, LOAD, RATE, "a", "b") is None


def test_one_block_has_no_interval(one_block: StudyData) -> None:
    load = Load("throughput", 8, 64, 32)
    found = outcome(one_block, load, RATE)
    assert found is not None
    assert found.kind == "undecided"
    assert "one block, so no interval" in sentence(found, "en")


def test_the_sweep_is_the_widest_scenario(data: StudyData) -> None:
    assert [load.concurrency for load in sweep(data, RATE, "concurrency")] == [1, 2, 4, 8]
    assert [load.input_tokens for load in sweep(data, TIME, "input_tokens")] == [64, 256, 1024]
    assert sweep(data, "no_such_ms", "concurrency") == []
    assert len(loads(data, RATE)) == 7


def test_values_that_are_missing_are_not_ranked() -> None:
    data = study({"a": 100, "b": 90}, [])
    points = data.points.with_columns(
        value=pl.when(pl.col("engine") == "a").then(None).otherwise(pl.col("value"))
    )
    found = outcome(replace(data, points=points), LOAD, RATE)
    assert found is not None
    assert (found.kind, found.leader) == ("alone", "b")


def test_unknown_reasons_are_left_as_they_are() -> None:
    assert reason("the moon was full", "zh") == "the moon was full"
    assert reason("", "en") == "no reason was recorded"
    english = "one block: nothing is known of the spread; run at least 5"
    assert reason(english, "en") == english
    assert "只有一个区组" in reason(english, "zh")


def test_the_reasons_are_those_that_the_statistics_give(
    data: StudyData, one_block: StudyData
) -> None:
    """If the statistics change their words, the translation must follow."""
    for study_data in (data, one_block):
        unsure = study_data.comparisons.filter(pl.col("verdict").is_in(["undecided", "no verdict"]))
        texts = set(unsure["reason"].to_list())
        assert texts
        for text in texts:
            assert any("\u4e00" <= c <= "\u9fff" for c in reason(text, "zh")), text


def test_a_clear_interval_that_does_not_decide_is_explained() -> None:
    text = "44% better to 48% better: the margin is 5.0%; significant alone (p = 0.02), not as one of 21 comparisons; about 3 blocks would decide"  # noqa: E501
    open_row = row("a", "b", "undecided", 1.46, 1.44, 1.48, reason=text, blocks_needed=3)
    found = outcome(study({"a": 146, "b": 100}, [open_row]), LOAD, RATE)
    assert found is not None
    assert "clear alone, but not as one of so many comparisons; about 3 blocks" in sentence(
        found, "en"
    )
    assert "作为 21 项比较之一则不显著" in reason(text, "zh")


def test_arms_and_simulations_stay_apart(parts: StudyData) -> None:
    engines = parts.engines
    assert comparable(parts, engines) == ["llamacpp", "vllm"]
    assert comparable(parts, ["sglang (simulated)", "vllm-equal"]) == ["vllm-equal"]
    assert comparable(parts, ["sglang (simulated)"]) == ["sglang (simulated)"]
    assert comparable(parts, []) == []
    equal = parts.arms.with_columns(
        arm=pl.when(pl.col("engine") == "llamacpp").then(pl.lit("equalised")).otherwise("arm")
    )
    assert comparable(replace(parts, arms=equal), engines) == ["llamacpp", "vllm-equal"]


def test_other_arms_do_not_take_the_verdict_away(parts: StudyData) -> None:
    found = outcome(parts, Load("throughput", 8, 64, 32), RATE)
    assert found is not None
    assert (found.kind, found.winner) == ("wins", "llamacpp")
    assert found.pair is not None
    assert found.pair.second == "vllm"


def test_a_baseline_of_another_kind_is_no_sweep(parts: StudyData) -> None:
    """A lone plain load, such as free text beside JSON, does not stand for the study."""
    lengths = pl.col("scenario") == "input_length"
    single = replace(parts, points=parts.points.filter(~lengths))
    found = sweep(single, "e2e_p50_ms", "input_tokens")
    assert [load.scenario for load in found] == ["throughput"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_table_s_reason_leaves_out_what_stands_beside_it(language: Language) -> None:
    gain = "52.3% better to 168.5% better: the margin is 5.0%"
    rivals = "significant alone (p = 0.01), not as one of 15 comparisons"
    full = f"{gain}; {rivals}; about 4 blocks would decide"
    brief = brief_reason(full, language)
    assert "52.3" not in brief
    assert "0.01" in brief
    assert "15" in brief
    assert len(brief_reason(f"{gain}; about 7 blocks would decide", language)) < 40
    assert brief_reason("one block: nothing is known of the spread; run at least 5", language) == (
        reason("one block: nothing is known of the spread; run at least 5", language)
    )
