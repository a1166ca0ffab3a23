from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from enginebook.metrics.distribution import FLOORS, distribution, order_interval


def test_floors_are_the_least_n_that_bound_a_percentile():
    for name, level in (("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        n = FLOORS[name]
        assert 1 - level**n >= 0.95 > 1 - level ** (n - 1)


@pytest.mark.parametrize(
    ("n", "shown"), [(28, []), (29, ["p90"]), (59, ["p90", "p95"]), (299, ["p90", "p95", "p99"])]
)
def test_percentiles_appear_at_their_floor(n, shown):
    d = distribution(np.arange(n, dtype=float))
    assert [p for p in ("p90", "p95", "p99") if d[p] is not None] == shown
    assert d["p50"] is not None
    assert d["n"] == n


finite = st.floats(-1e9, 1e9)


@given(arrays(np.float64, st.integers(1, 400), elements=finite))
def test_percentiles_agree_with_numpy(values):
    d = distribution(values)
    for name, level in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99)):
        if d[name] is not None:
            assert d[name] == pytest.approx(np.percentile(values, level), rel=1e-12, abs=1e-9)
    assert d["max"] == values.max()


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 5)), min_size=1, max_size=200))
def test_weights_are_repetitions(pairs):
    values = np.array([v for v, _ in pairs])
    weights = np.array([w for _, w in pairs], dtype=float)
    repeated = np.repeat(values, weights.astype(int))
    d = distribution(values, weights)
    assert d["n"] == len(repeated)
    assert d["mean"] == pytest.approx(repeated.mean())
    assert repeated.min() <= d["p50"] <= repeated.max()
    below = np.mean(repeated < d["p50"])
    upto = np.mean(repeated <= d["p50"])
    assert below <= 0.5 + 1e-9
    assert upto >= 0.5 - 1e-9


def test_undefined_values_are_left_out_and_none_is_left_gives_null():
    assert distribution(np.array([np.nan, 3.0]))["n"] == 1
    empty = distribution(np.array([np.nan]))
    assert empty["n"] == 0
    assert all(empty[k] is None for k in ("mean", "p50", "p90", "p95", "p99", "max"))


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(600):
        low, high = order_interval(np.sort(rng.exponential(size=101)), 0.5)
        hits += low <= np.log(2) <= high
    assert 0.93 <= hits / 600 <= 0.985


def test_the_interval_is_null_when_order_statistics_do_not_reach():
    assert order_interval(np.arange(20.0), 0.99) is None
