"""The decision guide: only what was measured, the nearest lengths, and no rank without a gap."""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest
from bs4 import BeautifulSoup

from enginebook.report import Fragment, NoData, StudyData, decision_guide, schema
from enginebook.report.guide_page import Point, Wanted, choose, measured_points, nearest
from enginebook.report.guide_table import cells, embedded
from enginebook.report.outputs import clean_html
from enginebook.report.tables.advice import decision_tree, ranking


def point(engine: str, streams: int, rate: float, **other: float | None) -> Point:
    fields: dict[str, object] = {
        "input_tokens": 64, "output_tokens": 32, "low": rate * 0.98, "high": rate * 1.02,
        "ttft_p50_ms": 40.0 * streams, "ttft_p95_ms": 50.0 * streams, "tpot_p50_ms": 5.0 * streams,
    }  # fmt: skip
    return Point(engine, concurrency=streams, value=rate, **(fields | other))  # type: ignore[arg-type]


POINTS = [
    *[point("a", n, 60.0 * n**0.8) for n in (1, 2, 4, 8)],
    *[point("b", n, 50.0 * n**0.9) for n in (1, 2, 4, 8)],
]


def test_the_highest_load_within_the_limits_is_taken() -> None:
    free, tight = (choose(POINTS, Wanted(1, 64, 32, ttft_ms=t)) for t in (None, 210.0))
    assert {c.engine: c.point.concurrency for c in free if c.point} == {"a": 8, "b": 8}
    assert {c.engine: c.point.concurrency for c in tight if c.point} == {"a": 4, "b": 4}
    by_tpot = choose(POINTS, Wanted(1, 64, 32, tpot_ms=10.0))
    assert {c.point.concurrency for c in by_tpot if c.point} == {2}


def test_hosts_and_cost_follow_from_the_measured_rate() -> None:
    wanted = Wanted(100, 64, 32, price=2.0)
    first = choose(POINTS, wanted)[0]
    assert first.engine == "b"
    assert first.point is not None
    assert first.replicas == 10  # 3200 tokens/s over 50 * 8 ** 0.9 = 325
    assert first.replicas_most == 11  # over the low end, 318
    assert first.per_hour == 20.0
    assert first.per_million == pytest.approx(20.0 / (3200 * 3600) * 1e6)
    assert choose(POINTS, Wanted(100, 64, 32))[0].per_hour is None


def test_what_a_wrong_choice_loses() -> None:
    best, other = choose(POINTS, Wanted(1, 64, 32))
    assert (best.loss, other.engine) == (0.0, "a")
    assert other.loss == pytest.approx(1 - 60 * 8**0.8 / (50 * 8**0.9))
    alone = choose([point("slow", 1, 500.0, ttft_p95_ms=9000.0), *POINTS], Wanted(1, 64, 32, 1000))
    assert alone[-1].loss is None


def test_an_engine_that_meets_nothing_has_no_rank_and_stands_last() -> None:
    slow = [point("slow", 1, 500.0, ttft_p95_ms=9000.0), *POINTS]
    last = choose(slow, Wanted(1, 64, 32, ttft_ms=1000))[-1]
    assert (last.engine, last.point, last.rank) == ("slow", None, None)
    assert cells(last, "en")[1] == "no measured point meets the limits"
    unmeasured = [point("u", 1, 10.0, tpot_p50_ms=None)]
    assert choose(unmeasured, Wanted(1, 64, 32, tpot_ms=1e9))[0].point is None


def test_overlapping_or_missing_intervals_leave_the_rank_open() -> None:
    close = [point("a", 1, 100.0), point("b", 1, 101.0), point("c", 1, 50.0)]
    found = {c.engine: (c.rank, c.undecided) for c in choose(close, Wanted(1, 64, 32))}
    assert found == {"a": (1, True), "b": (1, True), "c": (3, False)}
    alone = [point("a", 1, 100.0, low=None, high=None), point("b", 1, 10.0)]
    assert all(c.undecided for c in choose(alone, Wanted(1, 64, 32)))


def test_lengths_are_the_nearest_in_the_logarithm() -> None:
    many = [point("a", 1, 1.0, input_tokens=n) for n in (64, 256, 1024)]
    asked = {n: nearest(many, Wanted(1, n, 32))[0] for n in (1, 100, 128, 129, 500, 513, 9999)}
    assert asked == {1: 64, 100: 64, 128: 64, 129: 256, 500: 256, 513: 1024, 9999: 1024}


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, -1, 1), (1, 1, float("nan")), (1, 1, 1, 0)])
def test_a_question_without_an_answer_is_refused(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="positive"):
        Wanted(*wrong)


def test_only_real_plain_defaults_that_passed_advise(parts: StudyData) -> None:
    found = measured_points(parts)
    assert {p.engine for p in found} == {"llamacpp", "vllm"}
    streams = {e: {p.concurrency for p in found if p.engine == e} for e in ("llamacpp", "vllm")}
    assert streams == {"llamacpp": {1, 2, 8}, "vllm": {1, 2, 8}}  # a gate failed at 4
    rate = parts.points.filter(
        pl.col("engine") == "vllm", pl.col("concurrency") == 8,
        pl.col("metric") == "output_tokens_per_s",
    ).row(0, named=True)  # fmt: skip
    mine = next(p for p in found if (p.engine, p.concurrency) == ("vllm", 8))
    assert (mine.value, mine.low, mine.high) == (rate["value"], rate["low"], rate["high"])
    assert (1, 64, 32) in {(p.concurrency, p.input_tokens, p.output_tokens) for p in found}


def test_an_engine_does_not_lose_by_a_load_that_failed_its_check(parts: StudyData) -> None:
    lost = (pl.col("engine") == "vllm") & (pl.col("concurrency") == 8)
    study = replace(parts, cells=parts.cells.with_columns(gate_ok=pl.col("gate_ok") & ~lost))
    found = measured_points(study)
    assert {p.concurrency for p in found if _at(p)} == {1, 2}
    assert {(p.concurrency, p.open) for p in found if _at(p)} == {(1, False), (2, True)}
    free, tight = (choose(found, Wanted(1, 64, 32, ttft_ms=t)) for t in (None, 1e-9))
    assert {(c.rank, c.undecided) for c in free} == {(1, True)}
    assert {c.rank for c in tight} == {None}
    assert not any(p.open for p in measured_points(parts))


def _at(point: Point) -> bool:
    return (point.input_tokens, point.output_tokens) == (64, 32)


def test_limits_that_bind_below_the_open_load_leave_the_rank() -> None:
    cut = [replace(p, open=True) if p.concurrency == 8 else p for p in POINTS]
    assert all(c.undecided for c in choose(cut, Wanted(1, 64, 32)))
    tight = choose(cut, Wanted(1, 64, 32, tpot_ms=10.0))
    assert [(c.rank, c.undecided) for c in tight] == [(1, False), (2, False)]


def test_a_run_of_before_the_frames_still_advises(data: StudyData) -> None:
    assert data.arms.is_empty()
    assert {p.engine for p in measured_points(data)} == {"llamacpp", "vllm"}


def test_without_points_there_is_a_reason(parts: StudyData, nothing: StudyData) -> None:
    simulated = parts.arms.with_columns(simulated=pl.lit(value=True))
    for study in (
        nothing,
        replace(parts, arms=simulated),
        replace(parts, points=schema.empty("points")),
    ):
        assert isinstance(decision_guide(study), NoData)


def test_what_is_embedded_cannot_break_out(parts: StudyData) -> None:
    evil = '</script><script>alert(1)</script>"><img src=x onerror=alert(1)>\x1b[31m'
    frames = {
        name: getattr(parts, name).with_columns(
            pl.col("engine").replace({"vllm": evil})
            if "engine" in getattr(parts, name).columns
            else []
        )
        for name in ("cells", "points", "arms")
    }
    made = decision_guide(replace(parts, **frames))
    assert isinstance(made, Fragment)
    page = BeautifulSoup(clean_html(made.html), "html.parser")
    assert not page.select("script, img")
    assert len(page.select("input[data-name]")) == 6
    guide = page.select_one(".eb-guide")
    assert guide is not None
    raw = str(guide["data-guide"])
    assert "<" not in raw
    assert ">" not in raw
    names = {p["engine"] for p in json.loads(raw)["points"]}
    assert evil.removesuffix("\x1b[31m") in names


def test_the_json_has_points_and_words() -> None:
    found = json.loads(embedded(POINTS, "zh"))
    assert len(found["points"]) == len(POINTS)
    assert set(found["words"]) == {"lengths", "none", "undecided", "asked", "invalid"}
    assert "任何插值" in found["words"]["asked"]


def test_the_first_answer_stands_in_the_page_without_scripts(parts: StudyData) -> None:
    made = decision_guide(parts)
    assert isinstance(made, Fragment)
    page = BeautifulSoup(made.html, "html.parser")
    assert [r.find_all("td")[0].get_text() for r in page.select("tbody tr")] == ["llamacpp", "vllm"]
    asked = page.select_one(".eb-asked")
    assert asked is not None
    assert asked.has_attr("hidden")
    assert "nothing is interpolated" in made.plain


def verdicts(made: Fragment | NoData) -> list[str]:
    """Return the second column of a table."""
    assert isinstance(made, Fragment)
    rows = BeautifulSoup(made.html, "html.parser").select("tbody tr")
    return [row.find_all("td")[1].get_text() for row in rows]


def levels(parts: StudyData, **rates: float) -> StudyData:
    """Return a study whose engines' rates differ by known factors, at 8 streams only."""
    plain = parts.cells.filter(
        pl.col("engine").is_in(list(rates)), pl.col("concurrency") == 8,
        pl.col("metric").is_in(["output_tokens_per_s", "requests_per_s"]),
    ).with_columns(
        value=pl.col("engine").replace_strict(rates, return_dtype=pl.Float64)
        * (1 + 0.001 * pl.col("block")), gate_ok=pl.lit(value=True),
    )  # fmt: skip
    return replace(parts, cells=plain, comparisons=schema.empty("comparisons"))


def test_the_paired_ranking_keeps_to_the_hosts_noise_floor(parts: StudyData) -> None:
    study = levels(parts, vllm=100.0, llamacpp=110.0)
    made = ranking(study)
    assert verdicts(made) == ["best", "worse"]
    assert "At 64 + 32 tokens without limits, judged by paired blocks" in made.plain
    judged = parts.comparisons.filter(pl.col("metric") == "output_tokens_per_s")
    noisy = replace(study, comparisons=judged.with_columns(margin=pl.lit(0.3)))
    assert verdicts(ranking(noisy)) == ["level", "level"]


def test_a_load_that_failed_is_named_as_the_next_run(parts: StudyData) -> None:
    study = levels(parts, vllm=100.0, llamacpp=110.0)
    lighter = study.cells.with_columns(concurrency=pl.lit(1, pl.Int64))
    lost = study.cells.with_columns(gate_ok=pl.col("engine") != "llamacpp")
    made = ranking(replace(study, cells=pl.concat([lighter, lost])))
    assert made.plain.count("of llamacpp again at 8 streams") == 2
    assert verdicts(made) == ["undecided", "undecided"]


def test_the_tree_says_when_a_mean_alone_is_highest(parts: StudyData) -> None:
    study = levels(parts, vllm=100.0, llamacpp=110.0)
    study = replace(study, cells=study.cells.with_columns(concurrency=pl.lit(64, pl.Int64)))
    first = study.cells.filter(pl.col("block") == pl.col("block").min())
    sure, once = decision_tree(study), decision_tree(replace(study, cells=first))
    assert "Best here" in sure.plain
    assert "not decided" not in sure.plain
    assert "Highest mean here" in once.plain
    assert "not decided, n = 1" in once.plain
