"""The decision guide on studies whose answer is known."""

import math

import polars as pl
import pytest
from claims_runs import CPU_HOST, GPU_HOST, run_cells, study

from enginebook.claims import Workload, decision_rules, effort, guide, load_register, rank, ranking
from enginebook.claims.need import next_run
from enginebook.claims.ranking import margins_of
from enginebook.errors import InputError
from enginebook.stats import judge_pairs

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
    frame = rank(Workload(512, 128, prefix_share=0.5), plain)
    assert set(frame["verdict"]) == {"no data"}
    assert "shared-prefix scenario" in frame["reason"][0]
    frame = rank(Workload(512, 128, json=True), served({"a": 1.0}, scenario="json_schema"))
    assert frame["verdict"].to_list() == ["alone"]
    assert frame["next_run"].to_list() == ["another engine in the same study"]


def test_failed_gates_do_not_count():
    cells = served({"a": 1.0, "b": 1.25})["cells"].with_columns(gate_ok=pl.col("engine") == "a")
    found = by_engine(rank(CHAT, {"cells": cells}))
    # an engine that was not measured is no loser, and its rival no winner
    assert (found["a"]["verdict"], found["b"]["verdict"]) == ("undecided", "no data")
    assert "b was not measured" in found["a"]["reason"]
    assert found["b"]["next_run"].startswith("scenario throughput with input_tokens: [512]")


def test_a_workload_of_nothing_is_refused():
    with pytest.raises(InputError, match="above 0"):
        Workload(0, 128)
    with pytest.raises(InputError, match="fraction"):
        Workload(512, 128, prefix_share=1.0)


def arms(**kinds):
    rows = [{"engine": e, "arm": arm, "simulated": arm == "simulated"} for e, arm in kinds.items()]
    simulated = pl.col("arm") == "simulated"
    return pl.DataFrame(rows).with_columns(
        arm=pl.when(simulated).then(pl.lit("defaults")).otherwise("arm")
    )


def test_simulated_and_equalised_engines_do_not_enter_the_ranking():
    frames = served({"a": 1.0, "b": 1.25, "toy": 90.0, "eq": 80.0})
    frames["arms"] = arms(a="defaults", b="defaults", toy="simulated", eq="equalised")
    assert rank(CHAT, frames)["engine"].to_list() == ["b", "a"]
    only = {"cells": frames["cells"], "arms": arms(a="simulated", toy="simulated")}
    assert rank(CHAT, only)["engine"].to_list() == ["toy", "a"]


def loads(*rows):
    empty = {"family": None, "kind": "closed_loop", "answer_format": "text", "input_tokens": 512,
             "prefix_tokens": 0, "prefix_share": 0.0}  # fmt: skip
    return pl.DataFrame([empty | row for row in rows])


def test_the_nearest_share_of_a_prefix_is_read():
    half, most = (
        served({"a": a, "b": b}, scenario=s)["cells"]
        for s, a, b in [("reuse.half", 1.0, 1.5), ("reuse.most", 1.5, 1.0)]
    )
    known = loads(
        {"scenario": "reuse.half", "prefix_tokens": 256, "prefix_share": 1.0},
        {"scenario": "reuse.most", "prefix_tokens": 480, "prefix_share": 1.0},
    )
    frames = {"cells": pl.concat([half, most]), "loads": known}
    leaders = {
        share: rank(Workload(512, 128, prefix_share=share), frames)["engine"][0]
        for share in (0.4, 0.6, 0.9)
    }
    assert leaders == {0.4: "b", 0.6: "b", 0.9: "a"}
    # the same series are no plain work, whatever their names
    assert set(rank(CHAT, frames)["verdict"]) == {"no data"}


def test_a_saturated_loop_stands_before_a_given_rate():
    online = served({"a": 9.0, "b": 1.0}, scenario="rates")["cells"]
    both = {"cells": pl.concat([served({"a": 1.0, "b": 1.25})["cells"], online])}
    both["loads"] = loads({"scenario": "sweep"}, {"scenario": "rates", "kind": "open_loop"})
    assert rank(CHAT, both)["engine"][0] == "b"
    alone = {"cells": online, "loads": both["loads"]}
    assert rank(CHAT, alone)["engine"][0] == "a"


def test_the_leader_of_many_equals_is_rarely_ahead(monkeypatch):
    """The best of six draws is ahead of the worst by chance; all 15 pairs share the error rate."""
    six = {f"e{i}": {16: 10.0} for i in range(6)}
    draws = [
        run_cells(six, metric="requests_per_s", sd=0.03, blocks=5, seed=seed) for seed in range(40)
    ]
    shared = []

    def watched(pairs, margin, p, rivals):
        shared.append(rivals)
        return judge_pairs(pairs, margin, p, rivals)

    def called_worse():
        found = [rank(CHAT, {"cells": c}, margin=0.0)["verdict"].to_list() for c in draws]
        return sum("worse" in words for words in found)

    monkeypatch.setattr(ranking, "judge_pairs", watched)
    by_all = called_worse()
    assert set(shared) == {math.comb(6, 2)}
    with_leader_alone = type("Counted", (), {"comb": lambda n, _: n - 1, "ceil": math.ceil})
    monkeypatch.setattr(ranking, "math", with_leader_alone)
    assert by_all < called_worse()


def without(frames, engine, load, blocks=range(99)):
    """Return a study in which one engine's cells at a load failed their gate."""
    lost = (
        (pl.col("engine") == engine)
        & (pl.col("concurrency") == load)
        & pl.col("block").is_in(list(blocks))
    )
    return frames | {"cells": frames["cells"].with_columns(gate_ok=~lost)}


def test_the_faster_engine_does_not_lose_by_a_load_that_failed_its_check():
    """Its highest rate would then be over fewer loads than its rival's."""
    frames = served({"a": 1.0, "b": 1.2})
    assert rank(CHAT, frames)["verdict"].to_list() == ["best", "worse"]
    for blocks in (range(6), [3]):
        found = by_engine(rank(CHAT, without(frames, "b", 16, blocks)))
        assert {r["verdict"] for r in found.values()} == {"undecided"}
        assert "load c=16 is missing or failed its check for b" in found["a"]["reason"]
        for row in found.values():
            assert (row["next_kind"], row["next_concurrency"], row["next_engines"]) == (
                "load", 16, ["b"],
            )  # fmt: skip
            assert row["next_run"] == "sweep of b again at concurrency: [16]"
    # all of the rates that are held against each other are those of the loads in common
    assert found["b"]["requests_per_s"] / found["a"]["requests_per_s"] == pytest.approx(1.2, 0.02)


def test_a_failed_load_that_could_change_nothing_leaves_the_verdict():
    slow = served({"a": 1.0, "b": 1.25}, latency={"a": 10.0, "b": 60.0})
    strict = Workload(512, 128, ttft_limit_ms=200.0)
    # b misses the limit at 4 streams: what it does at 16 is of no account; what a does, only for a
    assert rank(strict, without(slow, "b", 16))["verdict"].to_list() == ["best", "worse"]
    assert rank(strict, without(slow, "a", 16))["verdict"].to_list() == ["best", "worse"]
    # a load below the heaviest in common is left out of both
    middle = rank(CHAT, without(served({"a": 1.0, "b": 1.2}), "b", 8))
    assert middle["verdict"].to_list() == ["best", "worse"]


def test_engines_without_a_load_in_common_are_not_compared():
    cells = served({"a": 1.0, "b": 1.2})["cells"]
    apart = cells.filter((pl.col("concurrency") > 4) == (pl.col("engine") == "a"))
    frame = rank(CHAT, {"cells": apart})
    assert set(frame["verdict"]) == {"no data"}
    assert set(frame["next_kind"]) == {"load"}


def test_the_noise_floor_takes_the_margins_place():
    frames = served({"a": 1.0, "b": 1.06})
    assert rank(CHAT, frames)["verdict"].to_list() == ["best", "worse"]
    floor = {"output_tokens_per_s": 0.12, "ttft_p50_ms": 0.9}
    assert set(rank(CHAT, frames, noise_floor=floor)["verdict"]) == {"tie"}
    assert set(guide(CHAT, frames, noise_floor=floor).ranking["verdict"]) == {"tie"}
    small = {"output_tokens_per_s": 0.001}
    assert rank(CHAT, frames, noise_floor=small)["verdict"].to_list() == ["best", "worse"]
    judged = pl.DataFrame({"metric": [*floor] * 2, "margin": [0.12, 0.9, None, 0.03]})
    assert margins_of(judged) == floor
    assert set(rank(CHAT, frames | {"comparisons": judged})["verdict"]) == {"tie"}


def test_a_curve_measured_once_does_not_stand_before_paired_blocks():
    wide = served({"a": 1.5, "b": 1.0}, scenario="z.curve", blocks=1)["cells"]
    few = served({"a": 1.0, "b": 1.25}, scenario="few")["cells"]
    few = few.filter(pl.col("concurrency").is_in([1, 8]))
    frame = rank(CHAT, {"cells": pl.concat([wide, few])})
    assert frame["scenario"].unique().to_list() == ["few"]
    assert frame["verdict"].to_list() == ["best", "worse"]
    assert frame["n_blocks"].to_list() == [6, 6]
    # a second series of the same blocks adds its loads
    more = served({"a": 1.0, "b": 1.25}, scenario="more")["cells"]
    more = more.filter(pl.col("concurrency") == 16)
    both = rank(CHAT, {"cells": pl.concat([few, more])})
    assert both["requests_per_s"][0] == pytest.approx(1.25 * 16**0.8, rel=0.05)
    assert both["verdict"].to_list() == ["best", "worse"]


def test_blocks_decide_only_the_rivals_that_they_can_decide():
    """One rival lies on the margin: no number of blocks tells on which side."""
    cells = pl.concat([
        served({"a": 1.0}, sd=0.0)["cells"],
        served({"edge": 1 / 1.03, "noisy": 0.9}, sd=0.0, seed=0)["cells"],
    ])  # fmt: skip
    spread = pl.col("value") * (1 + 0.12 * (pl.col("block") % 3 - 1))
    small = pl.col("value") * (1 + 0.002 * (pl.col("block") % 3 - 1))
    cells = cells.with_columns(
        value=pl.when(pl.col("engine") == "noisy").then(spread)
        .when(pl.col("engine") == "edge").then(small).otherwise("value")
    )  # fmt: skip
    found = by_engine(rank(CHAT, {"cells": cells}))
    assert found["edge"]["blocks_needed"] is None
    needed = found["noisy"]["blocks_needed"]
    assert needed
    assert f"about {needed} blocks would decide noisy, not the others" in found["a"]["reason"]
    assert found["a"]["blocks_needed"] is None
    assert (found["a"]["next_kind"], found["edge"]["next_kind"]) == ("blocks", "none")


def test_what_would_settle_an_open_row():
    thin = rank(CHAT, served({"a": 1.0, "b": 1.03}, sd=0.03, blocks=4))
    needed = thin["blocks_needed"].max()
    assert thin["next_run"].to_list() == [f"sweep again with blocks: {needed}"] * 2
    one = rank(CHAT, served({"a": 1.0, "b": 1.5}, blocks=1))
    assert "sweep again with blocks: 5" in one["next_run"].to_list()
    far = rank(Workload(8000, 128), served({"a": 1.0, "b": 1.25}))
    assert far["next_run"][0] == "scenario throughput with input_tokens: [8000], output_tokens: 128"
    tight = rank(Workload(512, 128, ttft_limit_ms=5.0), served({"a": 1.0}, latency={"a": 10.0}))
    assert "lighter load" in tight["next_run"][0]
    settled = rank(CHAT, served({"a": 1.0, "b": 1.25}))
    assert settled["next_run"].null_count() == settled["next_kind"].null_count() == 2
    on_the_margin = {
        "verdict": "undecided", "scenario": "sweep", "blocks_needed": None, "n_blocks": 6,
        "measured_input_tokens": 512, "measured_output_tokens": 128,
    }  # fmt: skip
    found = next_run(on_the_margin, CHAT)
    assert found is not None
    assert found.text.startswith("none: more blocks will hardly tell")


def test_the_whole_guide_in_one_call():
    frames = served({"vllm": 1.0, "sglang": 1.25})
    frames["installs"] = pl.DataFrame(
        {"engine": ["vllm"], "version": ["1"], "seconds": [60.0], "bytes": [9_000_000_000],
         "packages": [150], "torch": [None], "kind": ["venv"], "reused": [False]}
    )  # fmt: skip
    frames["launches"] = pl.DataFrame(
        {"engine": ["vllm"] * 4 + ["sglang"], "block": [0, 0, 1, 1, 0], "start_s": [0.0] * 5,
         "phase": ["imports", "ready"] * 2 + ["ready"], "end_s": [3.0, 10.0, 3.0, 12.0, 20.0],
         "source": ["log"] * 5}
    )  # fmt: skip
    found = guide(CHAT, frames, 3.6, host=GPU_HOST, manifest=study("vllm", "sglang"))
    assert found.best == "sglang"
    assert found.summary.startswith("sglang: one replica carries 11.5 requests/s (")
    assert found.open_runs == []
    assert len(found.rules) == 9
    assert found.ranking.equals(rank(CHAT, frames, 3.6))
    by = {r["engine"]: r for r in found.effort.to_dicts()}
    assert (by["vllm"]["start_s"], by["vllm"]["starts"]) == (11.0, 2)
    assert (by["sglang"]["install_s"], by["sglang"]["start_s"]) == (None, 20.0)
    assert {"licence", "quantisation", "apple_silicon"} <= set(found.features["feature"])


def test_an_open_guide_says_so_and_what_to_run():
    found = guide(CHAT, served({"a": 1.0, "b": 1.03}, sd=0.03, blocks=4))
    assert found.best is None
    assert found.summary.startswith("undecided: ")
    assert len(found.open_runs) == 1
    nothing = guide(Workload(512, 128, json=True), served({"a": 1.0}))
    assert nothing.summary.startswith("no engine is ranked: no valid cell")
    assert effort({}).is_empty()


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
    assert (first["best_decided"], first["best_n"]) == (True, 6)
    assert (first["advised"], first["best_here"], first["verdict"]) == (
        "vllm", "sglang", "contradicted",
    )  # fmt: skip
    assert first["regret"].startswith("16")
    absent = rules["DEC-03"]
    assert (absent["verdict"], absent["best_here"]) == ("not tested here", None)
    on_cpu = decision_rules(load_register(), cells, host=CPU_HOST, manifest=manifest)
    assert on_cpu.filter(claim_id="DEC-01")["verdict"][0] == "not comparable"


def test_a_mean_above_the_others_is_not_called_best():
    curves = {e: {c: v * c**0.9 for c in (1, 8, 64)} for e, v in [("vllm", 100), ("sglang", 104)]}
    for cells, n in ((run_cells(curves, blocks=1), 1), (run_cells(curves, sd=0.1), 6)):
        frame = decision_rules(
            load_register(), cells, host=GPU_HOST, manifest=study("vllm", "sglang")
        )
        row = frame.filter(claim_id="DEC-01").row(0, named=True)
        assert row["best_here"] is not None
        assert (row["best_decided"], row["best_n"]) == (False, n)
    close = run_cells({"vllm": {64: 100.0}, "sglang": {64: 102.0}}, sd=0.0005)
    judged = {
        m: decision_rules(
            load_register(), close, host=GPU_HOST, manifest=study("vllm", "sglang"), margin=m
        ).filter(claim_id="DEC-01")["best_decided"][0]
        for m in (0.005, 0.05)
    }
    assert judged == {0.005: True, 0.05: False}
