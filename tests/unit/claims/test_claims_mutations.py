"""The judge judged: planted mutations of true claims, tables and runs must be found."""

from __future__ import annotations

import math

import polars as pl
import pytest
from claims_runs import GPU_HOST, run_cells, study

from enginebook.claims import judge, load_register, model, read_claims
from enginebook.claims.limits import rule_physics
from enginebook.claims.model import Claim, Physics, Setting

FOUR = Setting(model="llama-3.3-70b", hardware="H100-SXM", devices=4, precision="bf16")
REGISTER = load_register()
TABLES = [c for c in REGISTER.claims if c.id.startswith(("THR-", "TTFT-"))]
LOADS = (1, 8, 64)
MANIFEST = study("vllm", "sglang")
CURVE = {
    "vllm": {c: 100 * c**0.9 for c in LOADS},
    "sglang": {c: 125 * c**0.9 for c in LOADS},
}


def faster(claim: Claim, factor: float) -> Claim:
    """Return the claim with its figure made better: a higher rate, or a shorter time."""
    value = claim.test.value or 0.0
    better = value / factor if (claim.test.metric or "").endswith("_ms") else value * factor
    return claim.model_copy(update={"test": claim.test.model_copy(update={"value": better})})


def place_of(claim: Claim) -> tuple[str, int]:
    """Return the axis of the claim's table, and where on it the claim stands."""
    axis = "input_tokens" if claim.id.startswith("TTFT-") else "concurrency"
    return axis, int(claim.test.at[axis][0] or 0)


def on_four(claim: Claim) -> Claim:
    return claim.model_copy(update={"setting": FOUR, "physics": Physics()})


# -- figures against the roofline ------------------------------------------------------------------
@pytest.mark.parametrize("claim", TABLES, ids=lambda c: c.id)
def test_a_possible_figure_turns_impossible_just_beyond_its_limit(claim: Claim) -> None:
    """On four H100 the figures are possible; each is pushed to both sides of its limit."""
    true = on_four(claim)
    ruling = rule_physics(true)
    assert ruling.verdict in {"possible", "tight"}
    assert ruling.efficiency is not None
    over, under = (rule_physics(faster(true, f / ruling.efficiency)) for f in (1.02, 0.98))
    assert (over.verdict, under.verdict) == ("impossible", "implausible")
    assert over.efficiency == pytest.approx(1.02)
    # and the whole judge follows physics, without a run and with one that says the opposite
    planted = REGISTER.model_copy(update={"claims": (faster(true, 1.02 / ruling.efficiency),)})
    engine, figure = true.test.engines[0], faster(true, 1.02 / ruling.efficiency).test.value
    axis, at = place_of(true)
    agrees = run_cells({engine: {at: figure}}, metric=true.test.metric, axis=axis)
    for cells in (None, agrees):
        row = judge(planted, cells=cells, host=GPU_HOST, manifest=study(engine)).row(0, named=True)
        assert (row["physics_verdict"], row["verdict"]) == ("impossible", "contradicted")


# Limits of four H100 in bfloat16 for Llama 3.3 70B, worked out by hand elsewhere: tokens/s by
# streams without a cache to read, and ms of a prompt.
LIMITS = {
    "concurrency": {1: 96, 4: 386, 8: 771, 16: 1542, 32: 3085, 64: 6170, 128: 12339},
    "input_tokens": {128: 10.4, 512: 17.8, 2048: 72.2, 8192: 305.6},
}


def beyond(claim: Claim, factor: float) -> bool:
    axis, at = place_of(claim)
    limit, value = LIMITS[axis][at], claim.test.value or 0.0
    return value * factor > limit if axis == "concurrency" else value / factor < limit


@pytest.mark.parametrize(("factor", "fallen"), [(1.0, 0), (2.5, 16), (4.0, 26), (100.0, 33)])
def test_a_whole_table_multiplied_falls_figure_by_figure(factor: float, fallen: int) -> None:
    true = [on_four(c) for c in TABLES]
    planted = REGISTER.model_copy(update={"claims": tuple(faster(c, factor) for c in true)})
    found = set(judge(planted).filter(physics_verdict="impossible")["claim_id"])
    assert found == {c.id for c in true if beyond(c, factor)}
    assert len(found) == fallen


def test_a_weaker_card_or_a_wider_format_flips_what_fits() -> None:
    fits = Claim(
        id="x", statement="70B in 4 bit on one card", test=model.Test(rule="PHYS"),
        physics=Physics(check="fits"),
        setting=Setting(model="llama-3.3-70b", hardware="H100-SXM", precision="int4-g128"),
    )  # fmt: skip
    assert rule_physics(fits).verdict == "possible"
    for change in ({"hardware": "RTX 4090"}, {"precision": "bf16"}):
        wrong = fits.setting.model_copy(update=change)  # type: ignore[union-attr]
        assert rule_physics(fits.model_copy(update={"setting": wrong})).verdict == "impossible"
    long = fits.model_copy(update={"physics": Physics(check="fits", context=10**7)})
    assert rule_physics(long).verdict == "impossible"


def test_weights_smaller_than_they_can_be_are_found() -> None:
    weights = REGISTER.claim("MEM-vllm-weights")
    exact = 141.11e9
    setting = FOUR.model_copy(update={"devices": 1})
    for share, verdict in ((1.0, "possible"), (0.97, "possible"), (0.9, "impossible")):
        test = weights.test.model_copy(update={"value": exact * share})
        claim = weights.model_copy(update={"test": test, "setting": setting})
        assert rule_physics(claim).verdict == verdict


# -- claims against a run --------------------------------------------------------------------------
def judged(text: str, cells: pl.DataFrame) -> dict[str, object]:
    frame = judge(read_claims(text, "planted"), cells=cells, host=GPU_HOST, manifest=MANIFEST)
    return frame.row(0, named=True)


TRUE_AND_PLANTED = {
    "RATIO": ("rule: RATIO, engines: [sglang, vllm], value: 1.25", [
        "rule: RATIO, engines: [sglang, vllm], value: 1.6",
        "rule: RATIO, engines: [vllm, sglang], value: 1.25",
        "rule: RATIO, engines: [sglang, vllm], value: 1.0",
    ]),
    "ORDER": ("rule: ORDER, engines: [sglang, vllm]", [
        "rule: ORDER, engines: [vllm, sglang]",
        "rule: ORDER, engines: [sglang, vllm], least: 0.5",
    ]),
    "RANGE": ("rule: RANGE, engines: [vllm, sglang], derive: reduction, low: 0.15, high: 0.25", [
        "rule: RANGE, engines: [vllm, sglang], derive: reduction, low: 0.3, high: 0.5",
        "rule: RANGE, engines: [sglang, vllm], derive: reduction, low: 0.15, high: 0.25",
    ]),
    "REGRET": ("rule: REGRET, engines: [sglang], tolerance: 0.05", [
        "rule: REGRET, engines: [vllm], tolerance: 0.05",
    ]),
}  # fmt: skip


@pytest.mark.parametrize("rule", TRUE_AND_PLANTED)
def test_a_true_claim_stands_and_each_mutation_of_it_falls(rule: str) -> None:
    true, planted = TRUE_AND_PLANTED[rule]
    form = "claims: [{{id: x, statement: s, test: {{metric: output_tokens_per_s, {}}}}}]"
    cells = run_cells(CURVE)
    assert judged(form.format(true), cells)["verdict"] == "supported"
    for wrong in planted:
        assert judged(form.format(wrong), cells)["verdict"] == "contradicted", wrong


def test_a_mutated_run_turns_the_verdict_too() -> None:
    """Labels swapped, one engine slowed, a gate failed, a figure lost: each must show."""
    text = "claims: [{id: x, statement: s, test: {metric: output_tokens_per_s, rule: ORDER, engines: [sglang, vllm]}}]"  # noqa: E501
    cells = run_cells(CURVE)
    swap = pl.col("engine").replace({"vllm": "sglang", "sglang": "vllm"})
    is_sglang = pl.col("engine") == "sglang"
    slowed = pl.when(is_sglang).then(pl.col("value") / 1.5).otherwise("value")
    lost = pl.when(is_sglang).then(math.nan).otherwise("value")
    mutations = {
        "contradicted": [cells.with_columns(swap), cells.with_columns(value=slowed)],
        "not tested here": [
            cells.with_columns(gate_ok=~is_sglang),
            cells.with_columns(value=lost),
            cells.filter(~is_sglang),
            cells.with_columns(metric=pl.lit("input_tokens_per_s")),
        ],
        "inconclusive": [cells.filter(pl.col("block") == 0)],
    }
    assert judged(text, cells)["verdict"] == "supported"
    for word, runs in mutations.items():
        assert [judged(text, run)["verdict"] for run in runs] == [word] * len(runs)


def test_a_crossing_moved_out_of_its_range_is_found() -> None:
    def crossing(at: float) -> pl.DataFrame:
        loads = (1, 4, 16, 64, 256)
        return run_cells({
            "vllm": {c: 100 * c**0.9 for c in loads},
            "sglang": {c: 100 * at**0.1 * c**0.8 for c in loads},
        })  # fmt: skip

    text = "claims: [{id: x, statement: s, test: {metric: output_tokens_per_s, rule: CROSS, engines: [vllm, sglang], low: 16, high: 64}}]"  # noqa: E501
    found = {at: judged(text, crossing(at))["verdict"] for at in (32, 4, 200)}
    assert found == {32: "supported", 4: "contradicted", 200: "contradicted"}
