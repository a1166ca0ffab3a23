"""Frame `simulations` of a study: cache policies, and prefill apart from decode."""

import polars as pl
import pytest

from enginebook.pipeline.steps.simulations import SCHEMA, simulate
from enginebook.report import schema
from enginebook.study import Study

LOAD = {
    "name": "sweep", "kind": "closed_loop", "concurrency": [1, 4, 16], "input_tokens": 512,
    "output_tokens": 64,
}  # fmt: skip
CHAT = {"name": "chat", "ttft_ms": 500, "tpot_ms": 60}
APART = {"name": "apart", "kind": "disaggregation", "input_tokens": 1024, "slo": [CHAT]}
CACHE = {
    "name": "cache", "kind": "kv_simulation", "policies": ["prealloc", "paged:16"],
    "max_len": [2048, 8192], "sequences": 200,
}  # fmt: skip
STEP_MS = {1: 20.0, 4: 22.0, 16: 40.0}


def study(*scenarios):
    return Study.model_validate(
        {
            "study": "s", "question": "q?", "model": "m", "scenarios": list(scenarios),
            "engines": [{"name": "a", "recipe": "llamacpp-cpu"},
                        {"name": "b", "recipe": "vllm-cpu"}],
        }
    )  # fmt: skip


def frames(engines=("a", "b"), gate_ok=True):
    rows = [
        {
            "engine": e, "scenario": "sweep", "concurrency": c, "input_tokens": 512,
            "output_tokens": 64, "metric": metric, "value": value,
        }
        for e in engines
        for c, step in STEP_MS.items()
        for metric, value in (("tpot_p50_ms", step), ("ttft_p50_ms", 50.0 * c))
    ]  # fmt: skip
    points = pl.DataFrame(rows)
    return points, points.with_columns(block=0, gate_ok=pl.lit(gate_ok))


def test_the_frame_is_the_one_that_the_report_reads():
    found = simulate(study(LOAD, APART, CACHE), *frames())
    assert schema.conform("simulations", found, "here").columns == list(SCHEMA)
    assert set(found["source"].str.slice(0, 8)) == {"estimate", "simulate"}
    assert found["value"].null_count() == 0


def test_preallocation_wastes_what_the_longest_request_would_need():
    found = simulate(study(LOAD, CACHE), *frames())
    shares = {(r["label"], r["x"]): r["value"] for r in found.to_dicts()}
    assert set(shares) == {(p, x) for p in ("prealloc", "paged:16") for x in (2048, 8192)}
    assert shares[("prealloc", 8192)] < shares[("prealloc", 2048)] / 2
    assert shares[("paged:16", 8192)] == pytest.approx(shares[("paged:16", 2048)], abs=0.02)
    inside = found.select((pl.col("low") <= pl.col("value")) & (pl.col("value") <= pl.col("high")))
    assert inside.to_series().all()


def test_prefill_apart_keeps_tokens_even_and_makes_prompts_wait():
    found = simulate(study(LOAD, APART), *frames()).filter(pl.col("x") == 0.9)
    by = {(r["label"], r["metric"]): r["value"] for r in found.to_dicts()}
    assert by[("a, disaggregated", "tpot_p50_ms")] != by[("a, colocated", "tpot_p50_ms")]
    low = simulate(study(LOAD, APART), *frames()).filter(
        (pl.col("x") == 0.3) & (pl.col("metric") == "ttft_p95_ms")
    )
    ttft = {r["label"]: r["value"] for r in low.to_dicts()}
    assert ttft["a, colocated"] >= 100.0  # 50 ms at 512 tokens are 100 at 1024
    assert ttft["a, disaggregated"] >= 100.0
    assert "prompt scaled from 512 tokens" in low["source"][0]
    shares = simulate(study(LOAD, APART), *frames()).filter(metric="slo_share.chat")
    assert shares["value"].is_between(0, 1).all()
    assert shares["high"].max() <= 1


def test_without_measured_steps_there_is_no_estimate_and_the_reason_is_there():
    found = simulate(study(LOAD, APART), *frames(engines=("a",)))
    row = found.filter(label="b").row(0, named=True)
    assert row["value"] is None
    assert row["source"].startswith("no estimate: the study measured no time to first token")
    failed = simulate(study(LOAD, APART), *frames(gate_ok=False))
    assert failed["value"].null_count() == len(failed) == 2


def test_a_study_that_asks_for_nothing_simulated_gets_an_empty_frame():
    found = simulate(study(LOAD), *frames())
    assert found.is_empty()
    assert found.schema == SCHEMA
