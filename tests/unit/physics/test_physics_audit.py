"""The audit of measured cells, and the hypotheses on published tables."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as some

from enginebook.errors import EnginebookError
from enginebook.physics import (
    BF16,
    FP8,
    Hardware,
    Placement,
    WorkDone,
    audit_cells,
    decode_bound,
    hardware_named,
    possibility,
    precision_named,
    prefill_bound,
    require_possible,
)
from enginebook.physics.hypotheses import Hypothesis, fit_hypotheses, usual_hypotheses
from enginebook.physics.little import littles_law
from enginebook.physics.models import model_named

LLAMA = model_named("llama-3.1-8b")
SMALL = model_named("smollm2-135m")
H200 = hardware_named("H200")
HOST = Hardware("host", 20e9, {"fp32": 2e11}, cache_bytes=32 << 20, slack=0.15, measured=True)


def cells(metric, value, concurrency=8, inputs=512, outputs=128, **more):
    row = {
        "engine": "vllm", "scenario": "sweep", "block": 0, "concurrency": concurrency,
        "input_tokens": inputs, "output_tokens": outputs, "metric": metric, "value": value,
    }  # fmt: skip
    return pl.DataFrame([row | more])


def test_a_rate_beyond_the_limit_is_impossible_and_stops_the_study():
    audit = audit_cells(cells("output_tokens_per_s", 4000.0), LLAMA, H200)
    row = audit.row(0, named=True)
    assert row["verdict"] == "impossible"
    assert row["limit"] == pytest.approx(4000.0 / row["efficiency"])
    with pytest.raises(EnginebookError, match=r"vllm, sweep at concurrency 8, block 0") as caught:
        require_possible(audit)
    assert caught.value.exit_status == 1
    assert "equal-work gate" in caught.value.remedy


def test_an_honest_cell_passes_with_its_efficiency():
    audit = audit_cells(cells("output_tokens_per_s", 1500.0), LLAMA, H200)
    row = audit.row(0, named=True)
    require_possible(audit)
    step = decode_bound(LLAMA, Placement(H200), 8, 576 * 127 / 128)
    assert row["mbu"] == pytest.approx(step.read_bytes / 8 / 4.8e12 * 1500)
    flops = step.flops / 8 * 127 / 128 + LLAMA.prefill_flops(512) / 128
    assert row["mfu"] == pytest.approx(flops / 989.4e12 * 1500)
    assert row["verdict"] == "possible"
    assert 0.5 < row["efficiency"] < 0.7


def test_first_tokens_and_steps():
    limit = prefill_bound(LLAMA, Placement(H200), 512).seconds * 1e3
    fast = audit_cells(cells("ttft_p50_ms", limit * 0.99), LLAMA, H200).row(0, named=True)
    assert fast["verdict"] == "impossible"
    assert fast["limit"] == pytest.approx(limit)
    slow = audit_cells(cells("ttft_p50_ms", limit * 4), LLAMA, H200).row(0, named=True)
    assert (slow["verdict"], slow["efficiency"]) == ("possible", pytest.approx(0.25))
    step = decode_bound(LLAMA, Placement(H200), 1, 576).seconds * 1e3
    found = audit_cells(cells("tpot_p50_ms", step * 0.9), LLAMA, H200).row(0, named=True)
    assert found["verdict"] == "impossible"


def test_other_metrics_missing_values_and_zeros_are_left_out():
    frame = pl.concat(
        [
            cells("requests_per_s", 5.0),
            cells("ttft_p50_ms", None).cast({"value": pl.Float64}),
            cells("tpot_p50_ms", 0.0),
        ]
    )
    assert audit_cells(frame, LLAMA, H200).is_empty()


def test_what_engines_left_out_is_allowed_for():
    quick = cells("ttft_p50_ms", 4.0, inputs=4096, scenario="shared")
    assert audit_cells(quick, LLAMA, H200)["verdict"][0] == "impossible"
    work = WorkDone(cached_tokens={"shared": 3968})
    assert audit_cells(quick, LLAMA, H200, work=work)["verdict"][0] != "impossible"
    fast = cells("output_tokens_per_s", 500.0, concurrency=1, outputs=512)
    assert audit_cells(fast, LLAMA, H200)["verdict"][0] == "impossible"
    work = WorkDone(tokens_per_step={"vllm": 3.0})
    assert audit_cells(fast, LLAMA, H200, work=work)["verdict"][0] == "possible"


def test_a_small_model_may_sit_in_the_cache_of_the_host():
    weights = 2 * SMALL.params
    rate = 20e9 / weights * 1.3  # well above what memory alone would allow
    audit = audit_cells(cells("output_tokens_per_s", rate, concurrency=1, inputs=8), SMALL, HOST)
    assert audit["verdict"][0] == "implausible"
    assert "was the host busy then" in audit["reason"][0]
    broken = cells("output_tokens_per_s", 3 * rate, concurrency=1, inputs=8)
    with pytest.raises(EnginebookError, match="beyond the physical limit"):
        require_possible(audit_cells(broken, SMALL, HOST))
    assert audit["mfu"][0] is None  # bf16 was not measured on this host: no rate, no verdict on it
    big_cache = Hardware("host", 20e9, {}, cache_bytes=512 << 20, slack=0.15, measured=True)
    audit = audit_cells(cells("output_tokens_per_s", rate, concurrency=1), SMALL, big_cache)
    assert audit["efficiency"][0] < 0.1


def test_precisions_by_engine():
    two = pl.concat([cells("output_tokens_per_s", 80.0, 1, engine=e) for e in ("vllm", "llamacpp")])
    found = audit_cells(two, SMALL, HOST, {"llamacpp": precision_named("gguf-q8_0")})
    by = {r["engine"]: r for r in found.to_dicts()}
    assert by["vllm"]["efficiency"] > by["llamacpp"]["efficiency"]


def test_an_uncertain_ceiling_may_be_exceeded_a_datasheets_may_not():
    assert possibility(1.1) == "impossible"
    assert possibility(1.1, excess=0.15) == "implausible"
    assert possibility(1.16, excess=0.15) == "impossible"
    assert [possibility(v) for v in (1.0, 0.86, 0.8, 0.7, 0.1)] == [
        "implausible", "implausible", "tight", "possible", "possible",
    ]  # fmt: skip


@given(
    batch=some.integers(1, 512),
    inputs=some.integers(1, 16384),
    outputs=some.integers(1, 4096),
    share=some.floats(0.01, 0.99),
)
def test_what_an_ideal_machine_could_do_is_never_impossible(batch, inputs, outputs, share):
    """Serial prompts and full steps at a share of the ceilings: a machine that could exist."""
    place = Placement(H200, FP8)
    prompt = prefill_bound(LLAMA, place, inputs).seconds
    steps = (outputs - 1) * decode_bound(LLAMA, place, batch, inputs + outputs / 2).seconds
    rate = batch * outputs / ((batch * prompt + steps) / share)
    frame = cells("output_tokens_per_s", rate, batch, inputs, outputs)
    row = audit_cells(frame, LLAMA, H200, FP8).row(0, named=True)
    assert row["efficiency"] <= share * (1 + 1e-9)
    assert row["mbu"] <= 1
    assert row["mfu"] <= 1


@given(
    batch=some.integers(1, 256),
    context=some.integers(0, 32768),
    devices=some.sampled_from([1, 2, 4, 8]),
)
def test_more_work_is_never_faster_and_more_devices_never_slower(batch, context, devices):
    one = decode_bound(LLAMA, Placement(H200, BF16, devices), batch, context).seconds
    assert decode_bound(LLAMA, Placement(H200, BF16, devices), batch + 1, context).seconds >= one
    assert decode_bound(LLAMA, Placement(H200, BF16, devices), batch, context + 1).seconds >= one
    assert decode_bound(LLAMA, Placement(H200, BF16, 2 * devices), batch, context).seconds <= one
    assert decode_bound(LLAMA, Placement(H200, FP8, devices), batch, context).seconds <= one


def table():
    rows = [("output_tokens_per_s", 1, None, 20.0), ("ttft_p50_ms", None, 512, 100.0)]
    names = ("metric", "concurrency", "input_tokens", "value")
    return pl.DataFrame(
        [dict(zip(names, r, strict=True)) | {"engine": "x"} for r in rows], infer_schema_length=None
    )


def test_hypotheses_are_ranked_by_fit_and_then_by_the_stated_weights():
    llama = model_named("llama-3.3-70b")
    found = fit_hypotheses(table(), llama, weights_gb=36.0)
    assert found["hypothesis"][0] == "2 x H100-SXM fp8"
    assert found["hypothesis"][-1] == "1 x H100-SXM bf16"
    assert found["verdict"][-1].startswith("cannot be loaded")
    assert len(found) == len(usual_hypotheses()) == 10
    assert set(found["rate_figures"]) == set(found["ttft_figures"]) == {1}


def test_a_table_without_first_tokens_is_fitted_by_its_rates():
    llama = model_named("llama-3.3-70b")
    rates = table().filter(pl.col("metric") == "output_tokens_per_s")
    place = Placement(hardware_named("H200"), FP8)
    found = fit_hypotheses(rates, llama, [Hypothesis("mine", place)]).row(0, named=True)
    assert (found["verdict"], found["ttft_efficiency_high"], found["weights_error"]) == (
        "fits", None, None,
    )  # fmt: skip


def test_vendor_figures_reach_what_served_engines_reach():
    """NIM 1.8.0, Llama-3.3-70B FP8 on two H100 at concurrency 1: 58 % MBU, 45 % MFU."""
    llama, place = model_named("llama-3.3-70b"), Placement(hardware_named("H100-SXM"), FP8, 2)
    step = decode_bound(llama, place, 1, 5000 + 250)
    assert step.seconds / 18.58e-3 == pytest.approx(0.581, abs=5e-3)
    assert prefill_bound(llama, place, 5000).seconds / 406.77e-3 == pytest.approx(0.446, abs=3e-3)


MEASURED_ON_ONE_H200 = [  # vLLM 0.26.0, Llama-3.3-70B FP8, random weights, 512 + 128 tokens
    ("output_tokens_per_s", 1, 512, 47.7),
    ("output_tokens_per_s", 16, 512, 534.0),
    ("output_tokens_per_s", 128, 512, 1340.0),
    ("tpot_p50_ms", 1, 512, 20.56),
    ("tpot_p50_ms", 128, 512, 63.93),
    ("ttft_p50_ms", 1, 128, 32.2),
    ("ttft_p50_ms", 1, 2048, 254.0),
    ("ttft_p50_ms", 1, 8192, 1136.0),
]


def test_what_a_real_engine_did_is_possible():
    llama = model_named("llama-3.3-70b")
    frame = pl.concat([cells(m, v, c, i) for m, c, i, v in MEASURED_ON_ONE_H200])
    audit = audit_cells(frame, llama, H200, FP8)
    assert set(audit["verdict"]) <= {"possible", "tight"}
    assert audit["efficiency"].min() > 0.2
    shares = audit.filter(metric="tpot_p50_ms", concurrency=1)
    assert shares["mbu"][0] == pytest.approx(0.72, abs=0.01)


def closed_loop(requests_per_s, ttft_ms, tpot_ms):
    means = {"requests_per_s": requests_per_s, "ttft_mean_ms": ttft_ms, "tpot_mean_ms": tpot_ms}
    return pl.concat([cells(m, v) for m, v in means.items()])


def test_littles_law_holds_for_a_closed_loop_and_flags_what_breaks_it():
    residence_s = 0.1 + 127 * 0.02
    good = littles_law(closed_loop(8 / residence_s, 100.0, 20.0)).row(0, named=True)
    assert good["implied"] == pytest.approx(8)
    assert good["consistent"] is True
    # token times that miss part of the answer leave streams unaccounted for
    bad = littles_law(closed_loop(8 / residence_s, 100.0, 15.0)).row(0, named=True)
    assert bad["gap"] < -0.2
    assert bad["consistent"] is False
    assert littles_law(cells("requests_per_s", 5.0)).is_empty()
    assert littles_law(closed_loop(1.0, 100.0, 20.0).filter(pl.col("value") != 20)).is_empty()
