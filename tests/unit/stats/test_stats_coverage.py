"""The error rates that the statistics promise, by simulation over thousands of studies."""

import math

import numpy as np
import polars as pl
import pytest
from scipy.signal import lfilter
from simulated_studies import PAIR_SD, cells_frame, log_values, run_means

from enginebook.stats import (
    SequentialPlan,
    bca_interval,
    blocks_to_tie,
    blocks_to_win,
    comparisons,
    crossing_of,
    goodput,
    judge_pairs,
    mean_interval,
    noise_floor,
    per_run_interval,
    plan_sequential,
    planning_sd,
    points,
    pooled_interval,
    power_to_win,
    quantile_interval,
    sequential_power,
    within_run_interval,
)
from enginebook.stats.pairs import pairs_of_logs

STUDIES = 2000
PLANTED = 6000  # a share of 90.5 % is read to 0.4 points


def share_covering(intervals, truth):
    return np.mean([i.low <= truth <= i.high for i in intervals])


def share(frame, *verdicts):
    return frame["verdict"].is_in(verdicts).mean()


@pytest.mark.parametrize("blocks", [3, 5, 10])
def test_intervals_of_points_and_ratios_cover_95_percent(blocks):
    a, b = log_values(np.random.default_rng(blocks), STUDIES, blocks, effect=0.05)
    cells = cells_frame({"a": a, "b": b})
    compared = comparisons(cells, primary=())
    found = compared.select((pl.col("low") <= 1.05) & (pl.col("high") >= 1.05))
    assert 0.93 <= found.to_series().mean() <= 0.97
    values = points(cells).filter(pl.col("engine") == "b")
    covered = values.select((pl.col("low") <= 1000.0) & (pl.col("high") >= 1000.0))
    assert 0.93 <= covered.to_series().mean() <= 0.97


@pytest.mark.parametrize("blocks", [2, 3, 5, 8])
def test_an_engine_against_itself_rarely_wins(blocks):
    a, b = log_values(np.random.default_rng(10 + blocks), STUDIES, blocks, effect=0.0)
    cells = cells_frame({"a": a, "a again": b})
    found = comparisons(cells, primary=())
    assert share(found, "faster", "slower") <= 0.02
    # Without any margin: an interval that leaves 1 out is the naming of a winner.
    assert (
        1 - found.select((pl.col("low") <= 1) & (pl.col("high") >= 1)).to_series().mean()
    ) <= 0.06


def test_a_difference_as_large_as_the_margin_wins_in_5_percent_at_most():
    a, b = log_values(np.random.default_rng(20), STUDIES, 5, effect=0.03)
    found = comparisons(cells_frame({"a": a, "b": b}), margin=0.03, primary=())
    assert share(found, "faster", "slower") <= 0.05
    assert share(found, "tie") <= 0.06


def found_words(rng, blocks, effect, margin):
    """Return the verdicts on PLANTED studies with a planted effect, in parts that fit in memory."""
    words = []
    for _ in range(PLANTED // 500):
        a, b = log_values(rng, 500, blocks, effect)
        words += [judge_pairs(pairs_of_logs(d), margin).word for d in a - b]
    return words


# The planner is exact for normal log ratios and gives at least 90 %; heavy-tailed starts (t with 4
# degrees of freedom) find slightly more, as most studies are quieter than their spread says.
def test_a_planted_difference_is_found_with_the_planned_blocks():
    blocks = blocks_to_win(PAIR_SD, effect=0.05, margin=0.03)
    words = found_words(np.random.default_rng(30), blocks, effect=0.05, margin=0.03)
    assert words.count("faster") >= 0.9 * PLANTED
    assert words.count("slower") == 0


def test_without_a_margin_the_plan_for_5_percent_is_exact():
    blocks = blocks_to_win(PAIR_SD, effect=0.05)
    words = found_words(np.random.default_rng(31), blocks, effect=0.05, margin=1e-9)
    assert words.count("faster") >= 0.9 * PLANTED


def test_one_block_fewer_than_planned_would_not_do():
    for effect, margin in ((0.05, 0.0), (0.05, 0.03), (0.10, 0.03)):
        blocks = blocks_to_win(PAIR_SD, effect, margin)
        assert power_to_win(blocks - 1, PAIR_SD, effect, margin) < 0.9
        assert 0.9 <= power_to_win(blocks, PAIR_SD, effect, margin) < 0.95


def test_a_plan_from_a_pilot_keeps_its_power():
    rng = np.random.default_rng(32)
    pilots = PAIR_SD * rng.standard_normal((400, 5))
    wins = []
    for pilot in pilots:
        blocks = blocks_to_win(planning_sd(pilot), effect=0.08, margin=0.03)
        d = PAIR_SD * rng.standard_normal((20, blocks)) + math.log1p(0.08)
        low = [mean_interval(row).low for row in d]
        wins.append(np.mean(np.asarray(low) > math.log1p(0.03)))
    assert np.mean(wins) >= 0.9


def test_equal_engines_tie_with_the_planned_blocks():
    blocks = blocks_to_tie(PAIR_SD, margin=0.05)
    words = found_words(np.random.default_rng(33), blocks, effect=0.0, margin=0.05)
    assert words.count("tie") >= 0.9 * PLANTED


def test_holm_keeps_a_whole_table_below_5_percent():
    rng = np.random.default_rng(40)
    false = 0
    for _ in range(150):  # tables of 20 cells whose truth is the margin itself
        a, b = log_values(rng, 20, 5, effect=0.03)
        found = comparisons(cells_frame({"a": a, "b": b}), margin=0.03)
        false += share(found, "faster", "slower") > 0
    assert false / 150 <= 0.08
    uncorrected = comparisons(cells_frame({"a": a, "b": b}), margin=0.03, primary=())
    assert uncorrected["p_holm"].null_count() == 20


def test_the_noise_floor_bounds_the_next_a_a_study():
    rng = np.random.default_rng(50)
    inside = []
    for _ in range(60):
        a, b = log_values(rng, 12, 5, effect=0.0)
        floor = noise_floor(cells_frame({"x": a, "y": b}), "x", "y")["output_tokens_per_s"]
        c, d = log_values(rng, 20, 5, effect=0.0)
        inside += list(np.abs((c - d).mean(axis=1)) <= math.log1p(floor))
    assert 0.93 <= np.mean(inside) <= 0.99


@pytest.mark.parametrize("effect", [0.0, 0.03])
def test_sequential_stopping_keeps_the_error_rate(effect):
    plan = SequentialPlan((3, 4, 5, 6, 8, 10), margin=0.03)
    rng = np.random.default_rng(60)
    d = PAIR_SD * rng.standard_normal((STUDIES, 10)) + math.log1p(effect)
    words = [stopped(plan, row) for row in d]
    false = np.mean([w in {"faster", "slower"} for w in words])
    assert false <= (0.005 if effect == 0 else 0.035)  # one side of the margin: 2.5 %
    if effect == 0.03:
        assert np.mean([w == "tie" for w in words]) <= 0.065


def test_looking_after_every_block_without_a_plan_would_not():
    rng = np.random.default_rng(61)
    d = PAIR_SD * rng.standard_normal((STUDIES, 10)) + math.log1p(0.03)
    looks = [[mean_interval(row[:n]).low for n in (3, 4, 5, 6, 8, 10)] for row in d]
    assert np.mean(np.asarray(looks).max(axis=1) > math.log1p(0.03)) > 0.05


@pytest.mark.parametrize(("effect", "margin"), [(0.10, 0.03), (0.05, 0.0)])
def test_sequential_plans_find_a_planted_difference_and_stop_early(effect, margin):
    plan = plan_sequential(PAIR_SD, effect=effect, margin=margin)
    rng = np.random.default_rng(62)
    d = PAIR_SD * rng.standard_normal((PLANTED, plan.looks[-1])) + math.log1p(effect)
    assert np.mean([stopped(plan, row) == "faster" for row in d]) >= 0.9
    power, length = sequential_power(plan, PAIR_SD, effect)
    assert power >= 0.9
    assert length < plan.looks[-1]


def stopped(plan, row):
    for n in plan.looks:
        verdict = plan.judge(row[:n])
        if verdict is not None:
            return verdict.word
    raise AssertionError("a plan ends with a verdict")


def runs(rng, count, requests, phi=0.5):
    noise = rng.standard_normal((count, requests + 50)) * math.sqrt(1 - phi**2)
    inside = lfilter([1], [1, -phi], noise, axis=1)[:, 50:]
    return list(0.02 * rng.standard_normal((count, 1)) + 0.1 * inside)


@pytest.mark.parametrize("count", [3, 5, 24])
def test_pooled_rates_cover_95_percent(count):
    rng = np.random.default_rng(70 + count)
    studies = STUDIES if count < 20 else 200
    found = []
    for _ in range(studies):
        shared = rng.beta(90, 10, count)  # the share of good requests differs between runs
        seconds = rng.uniform(0.9, 1.1, count)
        data = [
            np.column_stack([rng.random(80) < p, np.full(80, s)])
            for p, s in zip(shared, seconds, strict=True)
        ]
        found.append(pooled_interval(data, goodput))
    assert 0.92 <= share_covering(found, 0.9) <= 0.98


def test_quantiles_over_runs_cover_95_percent():
    rng = np.random.default_rng(80)
    found = [
        per_run_interval(runs(rng, 5, 400), lambda x: float(np.quantile(x, 0.95)))
        for _ in range(STUDIES)
    ]
    truth = np.mean([i.value for i in found])
    assert 0.93 <= share_covering(found, truth) <= 0.97


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_one_run_is_read_as_well_as_it_says(phi):
    rng = np.random.default_rng(90)
    found = [
        within_run_interval(0.1 * autocorrelated(rng, 800, phi), lambda x: float(x.mean()))
        for _ in range(250)
    ]
    assert 0.90 <= share_covering(found, 0.0) <= 0.98


def autocorrelated(rng, requests, phi):
    noise = rng.standard_normal(requests + 50) * math.sqrt(1 - phi**2)
    return lfilter([1], [1, -phi], noise)[50:]


@pytest.mark.parametrize(("quantile", "n"), [(0.5, 15), (0.5, 100), (0.9, 100), (0.95, 200)])
def test_rank_intervals_cover_95_percent_whatever_the_law(quantile, n):
    rng = np.random.default_rng(100 + n)
    x = rng.lognormal(0, 1.5, (STUDIES, n))
    truth = np.quantile(rng.lognormal(0, 1.5, 4_000_000), quantile)
    assert 0.93 <= share_covering([quantile_interval(v, quantile) for v in x], truth) <= 0.97


def test_bca_covers_skewed_means_with_many_blocks():
    rng = np.random.default_rng(110)
    found = [bca_interval(rng.gamma(2, 1, 40), np.mean, draws=999) for _ in range(400)]
    assert 0.92 <= share_covering(found, 2.0) <= 0.97


@pytest.mark.parametrize("blocks", [5, 10])
def test_crossovers_cover_95_percent(blocks):
    loads = np.asarray([1.0, 2, 4, 8, 16, 32])
    true = np.log(loads / 6.0) * 0.1  # a overtakes b at 6
    rng = np.random.default_rng(120 + blocks)
    shape = (blocks, loads.size)
    covered = 0
    for i in range(500):
        noise = run_means(rng, shape) - run_means(rng, shape)
        found = crossing_of(loads, true + noise, seed=i)
        covered += (found.low or 0.0) <= 6.0 <= (found.high or math.inf)
    assert 0.92 <= covered / 500 <= 0.99
