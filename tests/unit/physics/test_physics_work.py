"""What of a cell's work is known: reuse, open loops, gaps with reasons, precision as served."""

import polars as pl
import pytest

from enginebook.errors import InputError
from enginebook.physics import (
    FP8,
    Hardware,
    Placement,
    audit_cells,
    gguf_precision,
    hardware_named,
    most_tokens_a_step,
    prefill_bound,
    require_possible,
    served_precision,
    served_rate_limit,
    with_work,
)
from enginebook.physics.models import model_named

LLAMA = model_named("llama-3.1-8b")
H200 = hardware_named("H200")
RATE, TTFT, TPOT = "output_tokens_per_s", "ttft_p50_ms", "tpot_p50_ms"


def load(scenario, kind="closed_loop", concurrency=8, **more):
    row = {
        "scenario": scenario, "kind": kind, "concurrency": concurrency, "input_tokens": 4224,
        "output_tokens": 64, "prefix_tokens": 0, "answer_format": "text", "cache": "cold",
        "search": False,
    }  # fmt: skip
    return row | more


def cells(scenario, values, concurrency=8):
    return pl.DataFrame(
        [
            {
                "engine": "vllm", "scenario": scenario, "block": 0, "concurrency": concurrency,
                "input_tokens": 4224, "output_tokens": 64, "metric": m, "value": v,
            }
            for m, v in values.items()
        ],
        schema_overrides={"value": pl.Float64},
    )  # fmt: skip


def usable(frame, *loads, varied=()):
    kept, gaps = with_work(frame, pl.DataFrame(list(loads)), varied)
    known = {
        r["metric"]: (r["batch"], r["cached_tokens"])
        for r in kept.iter_rows(named=True)
        if r["metric"] in {RATE, TTFT, TPOT}
    }
    return known, gaps


def test_a_plain_load_does_all_its_work():
    known, gaps = usable(cells("plain", {RATE: 1.0, TTFT: 1.0}), load("plain"))
    assert known == {RATE: (8, 0), TTFT: (8, 0)}
    assert gaps.is_empty()


def test_reuse_is_taken_off_rates_by_the_measured_share_and_first_tokens_by_the_prefix():
    frame = cells("shared", {RATE: 1.0, TTFT: 1.0, TPOT: 1.0, "cached_share": 0.5})
    known, gaps = usable(frame, load("shared", cache="warm", prefix_tokens=4096))
    assert known == {RATE: (8, 2112), TTFT: (8, 4096), TPOT: (8, 4096)}
    assert gaps.is_empty()


def test_without_a_told_share_the_whole_prefix_may_have_been_reused():
    frame = cells("shared", {RATE: 1.0})
    assert usable(frame, load("shared", cache="warm", prefix_tokens=4096))[0] == {RATE: (8, 4096)}


def test_reuse_that_nothing_bounds_is_a_gap():
    known, gaps = usable(cells("any", {RATE: 1.0, TPOT: 1.0}), load("any", cache="any"))
    assert known == {TPOT: (8, None)}
    assert gaps.row(0)[:2] == ("vllm", "any")
    assert "no common prefix bounds it" in gaps["reason"][0]


def test_an_open_loop_has_the_requests_that_were_seen_in_flight():
    frame = cells("online", {RATE: 1.0, "in_flight_max": 23.0}, concurrency=0)
    where = load("online", "open_loop", 0)
    assert usable(frame, where)[0] == {RATE: (23, 0)}
    known, gaps = usable(frame.filter(metric=RATE), where)
    assert known == {}
    assert "in flight" in gaps["reason"][0]
    assert "differ from request" in usable(frame, where, varied=["online"])[1]["reason"][0]
    assert "search" in usable(frame, where | {"search": True})[1]["reason"][0]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (load("x", "sessions"), "turn to turn"),
        (load("x", "trace", 0), "differ from request"),
        (load("x", answer_format="json_schema"), "grammar"),
    ],
)
def test_loads_whose_lengths_do_not_say_the_work_are_left_out_with_a_reason(where, why):
    known, gaps = usable(cells("x", {RATE: 9e9}, where["concurrency"]), where)
    assert known == {}
    assert gaps.height == 1
    assert why in gaps["reason"][0]


def test_the_audit_uses_what_is_known_of_the_work():
    frame = cells("shared", {RATE: 4000.0, TTFT: 4.0, "cached_share": 0.97})
    loads = pl.DataFrame([load("shared", cache="warm", prefix_tokens=4096)])
    naive = audit_cells(frame, LLAMA, H200)
    assert set(naive["verdict"]) == {"impossible"}
    kept, _ = with_work(frame, loads)
    by = {r["metric"]: r for r in audit_cells(kept, LLAMA, H200).to_dicts()}
    cached = 4098  # 97 % of 4224, rounded up
    limit = served_rate_limit(LLAMA, Placement(H200), 8, 4224 - cached, 64)
    assert by[RATE]["limit"] == pytest.approx(limit)
    first = prefill_bound(LLAMA, Placement(H200), 128, 4096).seconds * 1e3
    assert by[TTFT]["limit"] == pytest.approx(first)
    assert by[TTFT]["verdict"] != "impossible"


def test_an_open_loop_is_audited_at_its_own_batch():
    frame = cells("online", {RATE: 1000.0, "in_flight_max": 4.0}, concurrency=0)
    kept, _ = with_work(frame, pl.DataFrame([load("online", "open_loop", 0)]))
    row = audit_cells(kept, LLAMA, H200).row(0, named=True)
    limit = served_rate_limit(LLAMA, Placement(H200), 4, 4224, 64)
    assert (row["concurrency"], row["limit"]) == (0, pytest.approx(limit))


HOST = {
    "gpus": [{"name": "NVIDIA H200", "memory_bytes": 150e9}],
    "ceilings": {
        "gpus": [
            {
                "index": 0,
                "name": "NVIDIA H200",
                "memory_copy": {"bytes_per_s": 4.0e12},
                "matmul_bfloat16": {"flops_per_s": 7.0e14},
                "matmul_float16": {"flops_per_s": 6.5e14},
            }
        ]
    },
}


def test_a_gpu_is_limited_by_its_datasheet_and_shown_beside_what_was_measured():
    device = Hardware.from_host(HOST)
    assert (device.bandwidth, device.measured) == (4.8e12, False)
    assert (device.here.bandwidth, device.here.rates) == (4.0e12, {"bf16": 7.0e14})
    limit = served_rate_limit(LLAMA, Placement(device), 8, 4224, 64)
    # between what a copy reaches and what the datasheet says: no reason to stop a study
    frame = cells("plain", {RATE: limit * 0.95})
    row = audit_cells(frame, LLAMA, device).row(0, named=True)
    assert row["efficiency"] == pytest.approx(0.95)
    assert row["efficiency_here"] > 1
    assert row["verdict"] == "implausible"
    require_possible(audit_cells(frame, LLAMA, device))
    bare = Hardware.from_host({**HOST, "ceilings": {}})
    assert bare.here is None
    assert audit_cells(frame, LLAMA, bare)["efficiency_here"][0] is None


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("q4_1", 5.0), ("SmolLM2-135M-Instruct.Q4_1.gguf", 5.0), ("m/x-Q8_0.gguf", 8.5),
        ("llama-3-8b-instruct-q4_k_m-00001-of-00002.gguf", 4.5), ("x.Q5_K_S.gguf", 5.5),
        ("x-IQ4_XS.gguf", 4.25), ("f32", 32.0), ("model-fp16.gguf", 16.0), ("x.Q6_K.gguf", 6.5625),
        ("x.Q3_K_L.gguf", 3.4375), ("gpt-oss-20b-mxfp4.gguf", 4.25),
    ],
)  # fmt: skip
def test_gguf_bits_by_name(name, bits):
    found = gguf_precision(name)
    assert (found.weight_bits, found.kv_bits) == (bits, 16)


@pytest.mark.parametrize("name", ["model.gguf", "x-UD-Q4_K_XL.gguf", "q4.gguf", "x-IQ3_XXS.gguf"])
def test_names_that_tell_no_type_state_no_limit(name):
    with pytest.raises(InputError, match="not known") as caught:
        gguf_precision(name)
    assert "the others are audited" in caught.value.remedy


def test_the_cache_of_an_engine_counts_in_its_own_bits():
    assert gguf_precision("q4_0", {"kv_cache_dtype": "f32"}).kv_bits == 32
    assert served_precision({}, {"kv_cache_dtype": "fp8_e5m2"}).kv_bits == 8
    with pytest.raises(InputError, match="turbo"):
        served_precision({}, {"kv_cache_dtype": "turbo"})


@pytest.mark.parametrize(
    ("config", "options", "name", "bits"),
    [
        ({"torch_dtype": "bfloat16"}, {}, "bf16", 16),
        # engines that are told nothing serve float32 checkpoints in 16 bits
        ({"torch_dtype": "float32"}, {"dtype": "auto"}, "bf16", 16),
        ({"torch_dtype": "bfloat16"}, {"dtype": "float32"}, "fp32", 32),
        ({}, {"quantization": "fp8"}, "fp8", 8),
        ({}, {"quantization": "awq_marlin"}, "int4-g128", 4.15625),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}},
            {"quantization": "awq"},
            "int4-g64",
            4.3125,
        ),
        ({"quantization_config": {"quant_method": "fp8"}}, {"dtype": "bfloat16"}, "fp8", 8),
    ],
)
def test_precision_as_served(config, options, name, bits):
    found = served_precision(config, options)
    assert (found.name, found.weight_bits) == (name, bits)


def test_unknown_formats_state_no_limit():
    with pytest.raises(InputError, match="'exotic' are not known"):
        served_precision({}, {"quantization": "exotic"})
    assert served_precision({}, {"quantization": "fp8"}) == FP8


def test_speculation_yields_at_most_the_proposed_tokens_and_one():
    assert most_tokens_a_step({}) == 1
    assert most_tokens_a_step({"speculative": {"method": "ngram", "tokens": 5}}) == 6
    assert most_tokens_a_step({"speculative": {"method": "ngram"}}) == 5
