"""Who is compared with whom, and which comparisons share an error rate."""

import numpy as np
import polars as pl
import pytest

from enginebook.stats import better, comparisons, points
from enginebook.stats.families import family_by_series, family_of

LOAD = {
    "kind": "closed_loop", "answer_format": "text", "prefix_tokens": 0,
}  # fmt: skip
LOADS = pl.DataFrame(
    [
        {"scenario": "plain", **LOAD},
        {"scenario": "shared.p512", **LOAD, "prefix_tokens": 512},
        {"scenario": "json.flat", **LOAD, "answer_format": "json_schema"},
        {"scenario": "chat", **LOAD, "kind": "sessions"},
        {"scenario": "online.r2", **LOAD, "kind": "open_loop"},
    ]
)
ARMS = pl.DataFrame(
    {
        "engine": ["a", "b", "a-eq", "b-eq", "sim"],
        "arm": ["defaults", "defaults", "equalised", "equalised", "defaults"],
        "simulated": [False, False, False, False, True],
    }
)


def cells(engines, metric="output_tokens_per_s", scenario="plain", blocks=5, seed=0):
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        [
            {
                "engine": e, "scenario": scenario, "block": b, "concurrency": 1,
                "input_tokens": 64, "output_tokens": 32, "metric": metric,
                "value": float(level * np.exp(rng.normal(0, 0.004))), "gate_ok": True,
            }
            for e, level in engines.items()
            for b in range(blocks)
        ]
    )  # fmt: skip


def test_only_engines_of_one_arm_meet_and_never_a_simulated_with_a_real_one():
    frame = cells({"a": 100.0, "b": 130.0, "a-eq": 90.0, "b-eq": 95.0, "sim": 500.0})
    found = comparisons(frame, arms=ARMS)
    assert set(found.select("engine_a", "engine_b").rows()) == {("a", "b"), ("a-eq", "b-eq")}
    assert found["verdict"].to_list() == ["slower", "slower"]
    assert len(comparisons(frame)) == 10
    two = pl.concat([ARMS, ARMS.filter(engine="sim").with_columns(engine=pl.lit("sim2"))])
    found = comparisons(cells({"sim": 500.0, "sim2": 400.0, "a": 1.0}), arms=two)
    assert found.select("engine_a", "engine_b").rows() == [("sim", "sim2")]


def test_an_engine_that_the_arms_do_not_name_runs_with_its_defaults():
    found = comparisons(cells({"a": 100.0, "new": 100.0, "b-eq": 100.0}), arms=ARMS)
    assert found.select("engine_a", "engine_b").rows() == [("a", "new")]


def test_dozens_of_other_series_leave_the_headline_alone():
    headline = cells({"a": 100.0, "b": 103.9})
    others = [
        cells({"a": 100.0, "b": 103.9}, scenario=f"shared.p{i}", seed=i) for i in range(1, 60)
    ]
    loads = pl.concat(
        [LOADS, *(LOADS[1].with_columns(scenario=pl.lit(f"shared.p{i}")) for i in range(1, 60))]
    )
    alone = comparisons(headline, loads=loads).row(0, named=True)
    whole = comparisons(pl.concat([headline, *others]), loads=loads)
    row = whole.filter(scenario="plain").row(0, named=True)
    assert row == alone
    assert row["p_holm"] == row["p_value"] < 0.05
    assert (row["error_family"], row["verdict"]) == ("load", "slower")
    pooled = comparisons(pl.concat([headline, *others])).filter(scenario="plain")
    assert pooled["verdict"][0] == "undecided"  # 60 comparisons in one family
    assert pooled["p_holm"][0] > 0.05


def test_families_by_the_kind_of_load_and_by_metric():
    series = family_by_series(LOADS)
    assert series == {
        "plain": "load",
        "shared.p512": "reuse",
        "json.flat": "structured",
        "chat": "sessions",
        "online.r2": "online",
    }
    assert family_of("ttft_p50_ms", "chat", series) == "sessions"
    assert family_of("goodput_per_s.strict", "plain", series) == "online"
    assert family_of("valid_json_share", "json.flat", series) == "structured"
    assert family_of("itl_p99_ms", "plain", series) is None
    assert family_of("ttft_p50_ms", "unknown", series) == "load"


def test_exploratory_metrics_are_uncorrected_and_say_so():
    row = comparisons(cells({"a": 9.0, "b": 10.0}, "itl_p99_ms"), loads=LOADS).row(0, named=True)
    assert (row["verdict"], row["p_holm"], row["error_family"]) == ("faster", None, None)


@pytest.mark.parametrize(
    ("metric", "way"),
    [
        ("goodput_per_s.chat", 1), ("slo_share.chat", 1), ("capacity_per_s.chat", 1),
        ("valid_json_share", 1), ("sessions_per_s", 1), ("cached_share", 0),
        ("time_per_valid_answer_ms", -1), ("ttft_turn_last_p50_ms", -1),
        ("energy_j_per_output_token", -1), ("power_w", 0), ("in_flight_max", 0),
        ("window_share", 0), ("others_cpu_share", 0),
    ],
)  # fmt: skip
def test_which_way_is_better(metric, way):
    assert better(metric) == way


def test_shares_are_averaged_plainly():
    frame = cells({"a": 1.0}, "slo_share.chat", blocks=2).with_columns(
        value=pl.when(pl.col("block") == 0).then(0.4).otherwise(0.8)
    )
    assert points(frame)["value"][0] == pytest.approx(0.6)
