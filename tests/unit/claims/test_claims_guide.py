"""The decision guide on studies whose answer is known."""

import math

import polars as pl
import pytest
from claims_runs import CPU_HOST, GPU_HOST, run_cells, study

from enginebook.claims import Workload, decision_rules, load_register, rank
from enginebook.errors import InputError

LOADS = (1, 2, 4, 8, 16)
CHAT = Workload(input_tokens=512, output_tokens=128, requests_per_s=100.0)


def served(levels, *, latency=None, sd=0.004, blocks=6, **more):
    """Return cells with request rates and, where given, TTFT p95 growing with the load."""
    rates = {e: {c: v * c**0.8 for c in LOADS} for e, v in levels.items()}
    frames = [run_cells(rates, metric="requests_per_s", sd=sd, blocks=blocks, **more)]
    if latency:
        times = {e: {c: v * c for c in LOADS} for e, v in latency.items()}
        frames.append(run_cells(times, metric="ttft_p95_ms", sd=0.0, blocks=blocks, seed=9, **more))
    return {"cells": pl.concat(frames)}


def by_engine(frame):
    return {r["engine"]: r for r in frame.to_dicts()}


def test_the_better_engine_is_named_with_cost_replicas_and_regret():
    frame = rank(CHAT, served({"a": 1.0, "b": 1.25}), prices=3.6)
    assert frame["engine"].to_list() == ["b", "a"]
    assert frame["verdict"].to_list() == ["best", "worse"]
    best, other = frame.to_dicts()
    capacity = best["requests_per_s"]
    assert capacity == pytest.approx(1.25 * 16**0.8, rel=0.05)
    assert best["low"] < capacity < best["high"]
    assert best["usd_per_million_tokens"] == pytest.approx(3.6 / (capacity * 128 * 3600) * 1e6)
    assert best["usd_low"] < best["usd_per_million_tokens"] < best["usd_high"]
    assert best["replicas"] == math.ceil(100 / capacity)
    assert best["replicas_low"] <= best["replicas"] <= best["replicas_high"]
    assert best["usd_per_hour"] == pytest.approx(3.6 * best["replicas"])
    assert other["regret"] == pytest.approx(0.2, abs=0.02)
    assert other["regret_low"] < 0.2 < other["regret_high"]
    assert best["regret"] == 0


def test_a_limit_on_latency_changes_the_ranking():
    frames = served({"a": 1.0, "b": 1.25}, latency={"a": 10.0, "b": 60.0})
    strict = Workload(512, 128, ttft_limit_ms=200.0)
    frame = rank(strict, frames)
    assert frame["engine"].to_list() == ["a", "b"]
    # b meets 200 ms up to a load of 200 / 60 streams: between the measured 2 and 4
    b = by_engine(frame)["b"]["requests_per_s"]
    assert 1.25 * 2**0.8 < b < 1.25 * 4**0.8
    assert b == pytest.approx(1.25 * (200 / 60) ** 0.8, rel=0.05)


def test_missed_limits_and_unmeasured_limits_are_told_apart():
    tight = Workload(512, 128, ttft_limit_ms=5.0)
    found = by_engine(rank(tight, served({"a": 1.0}, latency={"a": 10.0})))
    assert found["a"]["verdict"] == "misses the limits"
    assert found["a"]["requests_per_s"] is None
    unmeasured = by_engine(rank(tight, served({"a": 1.0})))
    assert unmeasured["a"]["verdict"] == "no data"


def test_equal_engines_tie_and_thin_data_are_undecided():
    tie = rank(CHAT, served({"a": 1.0, "b": 1.001}))
    assert set(tie["verdict"]) == {"tie"}
    thin = rank(CHAT, served({"a": 1.0, "b": 1.03}, sd=0.03, blocks=4))
    assert set(thin["verdict"]) == {"undecided"}
    leader = thin.row(0, named=True)
    assert "may be as good" in leader["reason"]
    assert "blocks would decide" in leader["reason"]
    one = rank(CHAT, served({"a": 1.0, "b": 1.5}, blocks=1))
    assert set(one["verdict"]) == {"undecided"}
    assert one["low"].null_count() == 2


def test_the_budget():
    poor = Workload(512, 128, requests_per_s=100.0, budget_usd_per_hour=10.0)
    found = by_engine(rank(poor, served({"a": 1.0, "b": 1.25}), prices={"a": 0.5, "b": 9.0}))
    assert found["a"]["within_budget"] is True
    assert found["b"]["within_budget"] is False
    free = by_engine(rank(CHAT, served({"a": 1.0})))
    assert free["a"]["usd_per_million_tokens"] is None


def test_other_lengths_are_said_to_be_far():
    frame = rank(Workload(8000, 128), served({"a": 1.0, "b": 1.25}))
    assert "measured at 512 + 128 tokens, far from 8000 + 128" in frame["reason"][0]


def test_shared_prefixes_and_json_need_scenarios_of_their_own():
    plain = served({"a": 1.0, "b": 1.25})
    frame = rank(Workload(512, 128, shared_prefix=True), plain)
    assert set(frame["verdict"]) == {"no data"}
    assert "shared-prefix scenario" in frame["reason"][0]
    frame = rank(Workload(512, 128, json=True), served({"a": 1.0}, scenario="json_schema"))
    assert frame["verdict"].to_list() == ["best"]


def test_failed_gates_do_not_count():
    cells = served({"a": 1.0, "b": 1.25})["cells"].with_columns(gate_ok=pl.col("engine") == "a")
    found = by_engine(rank(CHAT, {"cells": cells}))
    assert (found["a"]["verdict"], found["b"]["verdict"]) == ("best", "no data")


def test_a_workload_of_nothing_is_refused():
    with pytest.raises(InputError, match="above 0"):
        Workload(0, 128)


def test_the_tree_derived_anew():
    curves = {
        e: {c: v * c**0.9 for c in (1, 8, 64, 128)} for e, v in {"vllm": 100, "sglang": 120}.items()
    }
    cells = run_cells(curves)
    manifest = study("vllm", "sglang")
    frame = decision_rules(load_register(), cells, host=GPU_HOST, manifest=manifest)
    rules = {r["claim_id"]: r for r in frame.to_dicts()}
    assert len(rules) == 9
    first = rules["DEC-01"]
    assert (first["advised"], first["best_here"], first["verdict"]) == (
        "vllm", "sglang", "contradicted",
    )  # fmt: skip
    assert first["regret"].startswith("16")
    absent = rules["DEC-03"]
    assert (absent["verdict"], absent["best_here"]) == ("not tested here", None)
    on_cpu = decision_rules(load_register(), cells, host=CPU_HOST, manifest=manifest)
    assert on_cpu.filter(claim_id="DEC-01")["verdict"][0] == "not comparable"
