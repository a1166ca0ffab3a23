"""Points and comparisons: shapes, refusals, symmetries; and the small functions under them."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from enginebook.errors import InputError
from enginebook.stats import (
    Pairs,
    SequentialPlan,
    better,
    blocks_to_tie,
    blocks_to_win,
    comparisons,
    crossing_of,
    crossovers,
    geometric_interval,
    holm,
    judge_pairs,
    mean_interval,
    minimum_detectable_effect,
    noise_floor,
    paired_ratio,
    pairs_of,
    plan_sequential,
    planning_sd,
    points,
    pooled_interval,
    power_to_tie,
    power_to_win,
    proportion_interval,
    quantile_floor,
    quantile_interval,
    requests_for_mean,
    within_run_interval,
)
from enginebook.stats.resampling import block_length

RATE, TTFT = "output_tokens_per_s", "ttft_p50_ms"


def cells(values, metric=RATE, **more):
    """Return cells from {engine: [value by block]}."""
    return pl.DataFrame(
        [
            {
                "engine": engine, "scenario": "s", "block": block, "concurrency": 1,
                "input_tokens": 64, "output_tokens": 32, "metric": metric, "value": value,
                "n": 10, "gate_ok": True, "flags": [], "cell": "c",
            }
            | more
            for engine, column in values.items()
            for block, value in enumerate(column)
        ],
        schema_overrides={"value": pl.Float64, "flags": pl.List(pl.String)},
    )  # fmt: skip


FAST, SLOW = [120.0, 121, 119, 120, 122], [100.0, 101, 99, 101, 100]


def only(frame):
    assert len(frame) == 1
    return frame.row(0, named=True)


def test_the_columns_are_those_that_reports_read():
    frame = comparisons(cells({"a": FAST, "b": SLOW}))
    contract = [
        "scenario", "concurrency", "input_tokens", "output_tokens", "metric", "engine_a",
        "engine_b", "n_pairs", "ratio", "low", "high", "verdict", "reason", "blocks_needed",
    ]  # fmt: skip
    assert frame.columns[: len(contract)] == contract
    expected = [
        "engine", "scenario", "concurrency", "input_tokens", "output_tokens", "metric",
        "n_blocks", "value", "low", "high",
    ]  # fmt: skip
    assert points(cells({"a": FAST})).columns == expected


def test_a_winner_by_rate_and_by_time():
    row = only(comparisons(cells({"a": FAST, "b": SLOW})))
    assert (row["verdict"], row["n_pairs"]) == ("faster", 5)
    assert row["low"] < row["ratio"] < row["high"]
    row = only(comparisons(cells({"a": FAST, "b": SLOW}, metric=TTFT)))
    assert row["verdict"] == "slower"
    assert row["ratio"] > 1
    assert "worse" in row["reason"]


def test_one_block_has_no_interval_and_no_winner():
    row = only(comparisons(cells({"a": [120.0], "b": [100.0]})))
    assert (row["verdict"], row["low"], row["high"], row["n_pairs"]) == ("undecided", None, None, 1)
    assert row["ratio"] == pytest.approx(1.2)
    assert "one block" in row["reason"]
    point = points(cells({"a": [120.0]})).row(0, named=True)
    assert (point["value"], point["low"], point["n_blocks"]) == (pytest.approx(120.0), None, 1)


def test_a_failed_gate_gives_no_verdict_but_keeps_the_figures():
    frame = cells({"a": FAST, "b": SLOW}).with_columns(
        gate_ok=~((pl.col("engine") == "b") & (pl.col("block") == 3))
    )
    row = only(comparisons(frame))
    assert row["verdict"] == "no verdict"
    assert row["reason"] == "the equal-work gate failed for b in block 3"
    assert row["ratio"] == pytest.approx(1.2, abs=0.01)
    assert row["p_value"] is None


def test_a_gate_that_is_null_has_not_passed():
    frame = cells({"a": FAST, "b": SLOW}).with_columns(gate_ok=pl.lit(None, pl.Boolean))
    assert only(comparisons(frame))["verdict"] == "no verdict"


def test_simulated_engines_are_never_ranked_against_real_ones():
    frame = cells({"real": FAST, "sim": SLOW, "sim2": SLOW})
    found = comparisons(frame, simulated_engines=["sim", "sim2"])
    words = {(r["engine_a"], r["engine_b"]): r["verdict"] for r in found.to_dicts()}
    assert words[("real", "sim")] == words[("real", "sim2")] == "no verdict"
    assert words[("sim", "sim2")] == "tie"


def test_blocks_without_both_values_are_left_out():
    frame = cells({"a": [120.0, None, 119, 121], "b": [100.0, 101, None, math.nan]})
    row = only(comparisons(frame))
    assert (row["n_pairs"], row["verdict"]) == (1, "undecided")
    assert points(frame).filter(engine="b")["n_blocks"][0] == 2
    none = cells({"a": [None, 1.0], "b": [1.0, None]})
    assert only(comparisons(none))["reason"] == "no block holds a value for both engines"


def test_zeros_have_no_ratio():
    row = only(comparisons(cells({"a": [0.0, 1.0, 1.0], "b": [1.0, 1.0, 1.0]})))
    assert (row["verdict"], row["reason"]) == ("no verdict", "a value of 0 has no ratio")


def test_metrics_without_a_direction_are_not_compared_but_have_points():
    frame = cells({"a": [0.1, 0.2], "b": [0.1, 0.3]}, metric="others_cpu_share")
    assert comparisons(frame).is_empty()
    assert points(frame)["value"].to_list() == pytest.approx([0.15, 0.2])
    directions = {RATE: 1, TTFT: -1, "others_cpu_share": 0, "tokens_per_joule": 1}
    assert {m: better(m) for m in directions} == directions


def test_the_metrics_asked_for():
    both = pl.concat([cells({"a": FAST, "b": SLOW}), cells({"a": FAST, "b": SLOW}, metric=TTFT)])
    assert set(comparisons(both)["metric"]) == {RATE, TTFT}
    assert set(comparisons(both, metrics=[TTFT])["metric"]) == {TTFT}


def test_the_noise_floor_takes_the_place_of_a_smaller_margin():
    frame = cells({"a": FAST, "b": SLOW})
    assert only(comparisons(frame, noise_floor=0.3))["verdict"] == "tie"
    assert only(comparisons(frame, noise_floor={RATE: 0.3}))["margin"] == 0.3
    assert only(comparisons(frame, noise_floor={TTFT: 0.3}))["verdict"] == "faster"
    assert only(comparisons(frame, margin=0.05, noise_floor=0.01))["margin"] == 0.05


def test_undecided_says_how_many_blocks_would_decide():
    row = only(comparisons(cells({"a": [100.0, 112, 101, 109], "b": [100.0] * 4})))
    assert row["verdict"] == "undecided"
    assert row["blocks_needed"] > 4
    assert f"about {row['blocks_needed']} blocks would decide" in row["reason"]


def test_primary_metrics_share_an_error_rate_others_do_not():
    rng = np.random.default_rng(3)
    frames = [
        cells({"a": 100 * np.exp(rng.normal(0.05, 0.012, 5)), "b": [100.0] * 5}, concurrency=c)
        for c in range(1, 30)
    ]
    table = pl.concat(frames)
    corrected, free = comparisons(table), comparisons(table, primary=())
    assert corrected["p_holm"].null_count() == 0
    assert free["p_holm"].null_count() == len(free)
    assert (corrected["verdict"] == "faster").sum() < (free["verdict"] == "faster").sum()
    lost = corrected.filter((pl.col("verdict") == "undecided") & (pl.col("p_value") <= 0.05))
    assert lost["reason"].str.contains("not as one of 29 comparisons").all()


def test_wrong_frames_are_refused():
    with pytest.raises(InputError, match="no column gate_ok"):
        points(cells({"a": FAST}).drop("gate_ok"))
    twice = pl.concat([cells({"a": FAST}), cells({"a": SLOW})])
    with pytest.raises(InputError, match=r"a, block 0, s at concurrency 1 has 2 values"):
        comparisons(twice)


def test_an_empty_frame_gives_empty_frames():
    empty = cells({"a": FAST}).clear()
    assert points(empty).is_empty()
    assert comparisons(empty).is_empty()


positive = some.floats(0.1, 1e4)


@given(some.lists(some.tuples(positive, positive), min_size=2, max_size=12))
def test_turning_the_pair_round_turns_the_verdict_round(pairs):
    a, b = (list(column) for column in zip(*pairs, strict=True))
    one = only(comparisons(cells({"x": a, "y": b})))
    other = only(comparisons(cells({"y": b, "x": a})))
    opposite = {"faster": "slower", "slower": "faster"}
    assert other["verdict"] == opposite.get(one["verdict"], one["verdict"])
    assert other["ratio"] == pytest.approx(1 / one["ratio"], rel=1e-9)
    assert other["low"] == pytest.approx(1 / one["high"], rel=1e-6)


@given(some.lists(some.tuples(positive, positive), min_size=2, max_size=8), some.floats(0.01, 100))
def test_units_do_not_matter(pairs, factor):
    a, b = (list(column) for column in zip(*pairs, strict=True))
    one = only(comparisons(cells({"x": a, "y": b})))
    scaled = only(comparisons(cells({"x": [v * factor for v in a], "y": [v * factor for v in b]})))
    assert scaled["ratio"] == pytest.approx(one["ratio"], rel=1e-9)
    near = any(abs((one[k] or 0) - edge) < 1e-6 for k in ("p_value",) for edge in (0.05,))
    assume(not near)
    assert scaled["verdict"] in {one["verdict"], "tie", "undecided"}


@given(some.lists(positive, min_size=2, max_size=10))
def test_the_ratio_is_that_of_the_points(values):
    a, b = values, values[::-1]
    found = {p["engine"]: p["value"] for p in points(cells({"a": a, "b": b})).to_dicts()}
    assert paired_ratio(a, b).value == pytest.approx(found["a"] / found["b"], rel=1e-9)


@given(some.lists(some.floats(0, 1), min_size=1, max_size=30))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p):
    adjusted = holm(p)
    assert all(a >= v for a, v in zip(adjusted, p, strict=True))
    assert all(a <= min(1, v * len(p)) + 1e-12 for a, v in zip(adjusted, p, strict=True))
    order = np.argsort(p, kind="stable")
    assert all(np.diff(np.asarray(adjusted)[order]) >= -1e-12)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_intervals_by_hand():
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.low, found.high) == (
        pytest.approx(-0.4841, abs=1e-4),
        pytest.approx(4.4841, abs=1e-4),
    )
    assert mean_interval([]).value is None
    assert geometric_interval([1.0, 100.0]).value == pytest.approx(10)
    share = proportion_interval(0, 20)
    assert (share.low, share.high) == (pytest.approx(0, abs=1e-12), pytest.approx(0.1611, abs=1e-4))
    assert proportion_interval(0, 0).value is None


def test_percentile_floors():
    assert [quantile_floor(q) for q in (0.9, 0.95, 0.99, 0.999)] == [29, 59, 299, 2995]
    short = quantile_interval(np.arange(58.0), 0.95)
    assert short.high is None
    assert short.low is not None
    assert quantile_interval([], 0.5).value is None
    assert quantile_interval(np.arange(5.0), 0.5).low is None


@given(some.lists(some.floats(-1e3, 1e3), min_size=8, max_size=60), some.floats(0.2, 0.8))
def test_rank_limits_enclose_their_quantile_and_mirror(values, quantile):
    found = quantile_interval(values, quantile)
    mirrored = quantile_interval([-v for v in values], 1 - quantile)
    assert found.low is None or found.low <= found.value + 1e-9
    assert found.high is None or found.high >= found.value - 1e-9
    assert (found.low is None) == (mirrored.high is None)
    if found.low is not None:
        assert mirrored.high == pytest.approx(-found.low, abs=1e-6)


def test_a_spread_of_zero_decides_at_once():
    assert judge_pairs(pairs_of([1.1] * 3, [1.0] * 3), 0.03).word == "faster"
    assert judge_pairs(pairs_of([1.0] * 3, [1.0] * 3), 0.03).word == "tie"
    at_margin = judge_pairs(Pairs(3, math.log(1.03), 0.01), 0.03)
    assert at_margin.word == "undecided"
    assert at_margin.blocks_needed is None
    assert "too close to the margin" in at_margin.reason


# -- planning ------------------------------------------------------------------------------------
def test_known_half_widths():
    """95 % half-widths at a spread of 1.4 %: 3.5, 1.7, 1.2, 1.0 % for 3, 5, 8, 10 blocks."""
    for blocks, half in ((3, 0.035), (5, 0.017), (8, 0.012), (10, 0.010)):
        d = np.resize([1.0, -1.0], blocks)
        d = 0.014 * (d - d.mean()) / d.std(ddof=1)
        assert mean_interval(d).high == pytest.approx(half, abs=6e-4)


def test_plans_grow_with_noise_and_shrink_with_effect():
    assert blocks_to_win(0.014, 0.05, 0.03) == 8
    assert blocks_to_win(0.028, 0.05, 0.03) > 2 * 8
    assert blocks_to_win(0.014, 0.10, 0.03) < 8
    assert blocks_to_win(0.014, 0.03, 0.03) is None
    assert blocks_to_win(0.5, 0.031, 0.03) is None
    assert blocks_to_tie(0.014, 0.03) == 5
    assert blocks_to_tie(0.014, 0.03, effect=0.04) is None
    assert blocks_to_win(0.0, 0.05, 0.03) == 2
    assert power_to_tie(5, 0.0, 0.03) == 1.0


@given(some.integers(2, 60), some.floats(0.003, 0.1), some.floats(0.0, 0.1))
def test_the_minimum_effect_is_what_the_plan_finds(blocks, sd, margin):
    effect = minimum_detectable_effect(blocks, sd, margin)
    assert power_to_win(blocks, sd, effect, margin) == pytest.approx(0.9, abs=1e-3)
    assert effect > margin
    assert minimum_detectable_effect(1, sd, margin) is None


def test_power_of_two_one_sided_tests_by_simulation():
    rng = np.random.default_rng(1)
    d = 0.014 * rng.standard_normal((20000, 6)) + math.log(1.01)
    error = d.std(axis=1, ddof=1) / math.sqrt(6)
    tie = np.abs(d.mean(axis=1)) + 2.015 * error <= math.log(1.03)
    assert power_to_tie(6, 0.014, 0.03, effect=0.01) == pytest.approx(tie.mean(), abs=0.012)


def test_the_planning_spread_is_an_upper_limit():
    rng = np.random.default_rng(2)
    limits = [planning_sd(row) for row in rng.standard_normal((2000, 5))]
    assert np.mean(np.asarray(limits) >= 1) == pytest.approx(0.8, abs=0.03)


def test_requests_for_a_mean():
    wanted = {(0.1, 0.05): 16, (0.1, 0.02): 97, (0.5, 0.05): 385, (0.5, 0.02): 2401}
    assert {k: requests_for_mean(*k) for k in wanted} == wanted


# -- sequential, crossovers, noise, resampling ---------------------------------------------------
def test_sequential_plans_are_kept_to():
    plan = SequentialPlan((3, 5))
    assert plan.judge([0.2, 0.2001]) is None  # no look planned there
    assert plan.judge([0.2, 0.2001, 0.1999]).word == "faster"
    assert plan.judge([-0.2, -0.2001, -0.1999]).word == "slower"
    assert plan.judge([0.0001, 0.0, -0.0001]).word == "tie"
    assert plan.judge([0.0, 0.3, -0.3]) is None
    assert plan.judge([0.0, 0.3, -0.3, 0.1, -0.1]).word == "undecided"
    with pytest.raises(InputError, match="the plan ends at 5"):
        plan.judge([0.0] * 6)
    with pytest.raises(InputError, match="not increasing"):
        SequentialPlan((5, 3))
    assert plan_sequential(0.014, effect=0.02, margin=0.03) is None
    levels = plan.levels()
    assert levels[0][0] < levels[1][0] < 0.025
    assert levels[1][1] < 0.05


def test_a_crossing_is_interpolated_in_logarithms():
    loads = np.asarray([1.0, 4.0, 16.0, 64.0])
    gains = np.tile([-0.2, -0.1, 0.1, 0.2], (3, 1))
    found = crossing_of(loads, gains)
    assert (found.at, found.low, found.high) == (
        pytest.approx(8),
        pytest.approx(8),
        pytest.approx(8),
    )
    assert crossing_of(loads, -gains).at is None
    assert crossing_of(loads, gains[:1]).low is None


def test_crossovers_of_a_study():
    frames = []
    for c in (1, 4, 16, 64):
        a = [100.0 * c**0.9 * (1 + e) for e in (0.001, -0.001, 0.0, 0.002, -0.002)]
        b = [100.0 * 8**0.1 * c**0.8 * (1 + e) for e in (0.002, 0.001, 0.0, -0.001, -0.002)]
        frames.append(cells({"a": a, "b": b}, concurrency=c))
    row = only(crossovers(pl.concat(frames)))
    assert (row["engine_a"], row["engine_b"]) == ("a", "b")
    assert row["concurrency"] == pytest.approx(8, rel=0.05)
    assert row["low"] < 8 < row["high"]
    assert crossovers(frames[0]).is_empty()


def test_noise_floors():
    same = cells({"a": [100.0, 101, 99, 100], "a again": [101.0, 100, 100, 99]})
    floor = noise_floor(same, "a", "a again")
    assert set(floor) == {RATE}
    assert 0.003 < floor[RATE] < 0.03
    shifted = cells({"a": [100.0, 101, 99, 100], "a again": [110.0, 111, 109, 110]})
    assert noise_floor(shifted, "a", "a again")[RATE] > 0.1
    with pytest.raises(InputError, match="no block holds both"):
        noise_floor(same, "a", "b")


def test_resampling_small_cases():
    one = pooled_interval([np.arange(5.0)], lambda x: float(x.mean()))
    assert (one.value, one.low, one.n) == (2.0, None, 1)
    short = within_run_interval(np.arange(3.0), lambda x: float(x.mean()))
    assert short.low is None
    rng = np.random.default_rng(4)
    white = rng.standard_normal(1000)
    assert block_length(white) == 10
    assert block_length(np.repeat(white[:50], 20)) > 20
    assert block_length(np.ones(1000)) == 10
