"""Evidence beside load cells: series by what they did, probes, memory sums, swaps, simulations."""

import polars as pl
import pytest
from claims_runs import GPU_HOST, run_cells, study

from enginebook.claims import judge, load_register
from enginebook.claims.selection import codes_by_series

REGISTER = load_register()
LOAD = {
    "kind": "closed_loop", "answer_format": "text", "prefix_tokens": 0,
}  # fmt: skip


def verdict(claim_id, *, engines=("vllm", "sglang", "tensorrt_llm"), cells=None, **frames):
    found = judge(
        REGISTER, cells=cells, host=GPU_HOST, manifest=study(*engines), frames=frames
    ).filter(claim_id=claim_id)
    return found.row(0, named=True)


def memory(**by_engine):
    rows = [
        {"engine": e, "component": c, "bytes": int(gb * 1e9), "source": "log", "state": state}
        for e, parts in by_engine.items()
        for c, gb in parts.items()
        for state in ("ready", "drained")
    ]
    return pl.DataFrame(rows)


def test_series_stand_for_what_they_did():
    loads = pl.DataFrame(
        [
            {"scenario": "a", "family": "a", **LOAD},
            {"scenario": "b.p0", "family": "shared_prefix", **LOAD},
            {"scenario": "b.p9", "family": "shared_prefix", **LOAD, "prefix_tokens": 9},
            {"scenario": "c.text", "family": "structured_output", **LOAD},
            {"scenario": "c.flat", "family": "structured_output", **LOAD,
             "answer_format": "json_schema"},
            {"scenario": "d", "family": "mine", **LOAD, "kind": "sessions"},
            {"scenario": "e", "family": "mine", **LOAD, "kind": "open_loop"},
            {"scenario": "f", "family": "quantised", **LOAD},
        ]
    )  # fmt: skip
    assert codes_by_series(loads) == {
        "a": "S01", "b.p0": "", "b.p9": "S04", "c.text": "", "c.flat": "S06", "d": "S05",
        "e": "S15", "f": "S08",
    }  # fmt: skip
    assert codes_by_series(None) == {}


def test_plain_series_are_told_apart_by_their_axes():
    rows = [("sweep", c, 512) for c in (1, 16)] + [("lengths", 1, n) for n in (512, 8192)]
    loads = pl.DataFrame(
        [
            {"scenario": s, "family": s, "concurrency": c, "input_tokens": n, **LOAD,
             "output_tokens": 16 if s == "lengths" else 128}
            for s, c, n in rows
        ]
    )  # fmt: skip
    assert codes_by_series(loads) == {"sweep": "S01", "lengths": "S02"}
    # a series of long answers tells rates, however few its loads
    rates = loads.with_columns(output_tokens=pl.lit(128))
    assert codes_by_series(rates) == {"sweep": "S01", "lengths": "S01"}
    # Answers of sixteen tokens after a long prompt say nothing of a stream's throughput.
    curves = {"vllm": {1: 200.0, 16: 2300.0}}
    short = run_cells({"vllm": {8192: 50.0}}, axis="input_tokens", scenario="lengths")
    cells = pl.concat([run_cells(curves, scenario="sweep"), short])
    row = verdict("THR-vllm-c001", cells=cells, engines=("vllm",), loads=loads)
    assert row["measured"].startswith("20")
    only = verdict("THR-vllm-c001", cells=short, engines=("vllm",), loads=loads)
    assert only["measured"].startswith("50") or only["measured"].startswith("49")


def test_a_series_with_another_name_is_judged_by_its_kind():
    curves = {"vllm": {1: 10.0}, "sglang": {1: 13.0}}
    cells = run_cells(curves, scenario="mine", metric="requests_per_s")
    claim = next(c for c in REGISTER.claims if c.id == "RAT-12")  # ten turns of chat
    assert claim.test.scenario == "S05"
    loads = pl.DataFrame([{"scenario": "mine", "family": "mine", **LOAD, "kind": "sessions"}])
    without = verdict(claim.id, cells=cells, engines=("vllm", "sglang"))
    assert (without["verdict"], without["basis"]) == ("not tested here", "none")
    found = verdict(claim.id, cells=cells, engines=("vllm", "sglang"), loads=loads)
    assert found["basis"] == "load cells"
    assert found["verdict"] != "not tested here"


def test_simulated_engines_are_known_from_the_arms():
    cells = run_cells({e: {1: v} for e, v in {"vllm": 100, "sglang": 130}.items()})
    arms = pl.DataFrame({"engine": ["vllm", "sglang"], "simulated": [False, True]})
    frame = judge(
        REGISTER,
        cells=cells,
        host=GPU_HOST,
        manifest=study("vllm", "sglang"),
        frames={"arms": arms},
    )
    assert "load cells" not in set(
        frame.filter(pl.col("rule").is_in(["ORDER", "RATIO"]))["basis"].to_list()
    )


LEAN = {"weights": 30.0, "kv_cache": 40.0, "graphs": 1.0, "activations": 0.5, "other": 0.5}


def test_memory_without_the_pool_is_the_sum_of_its_parts():
    held = memory(tensorrt_llm={**LEAN, "kv_cache": 20.0, "other": 4.0}, vllm=LEAN, sglang=LEAN)
    row = verdict("RAT-07", memory=held)
    assert (row["verdict"], row["basis"]) == ("contradicted", "memory")
    assert "tensorrt_llm 35.50 GB (weights + graphs + activations + other)" in row["reason"]
    lean = memory(tensorrt_llm={**LEAN, "weights": 20.0}, vllm=LEAN, sglang=LEAN)
    assert verdict("RAT-07", memory=lean)["verdict"] == "supported"


def test_the_highest_overhead_is_that_of_graphs_activations_and_the_rest():
    held = memory(tensorrt_llm={**LEAN, "other": 4.0}, vllm=LEAN, sglang=LEAN)
    row = verdict("RAT-08", memory=held)
    assert row["verdict"] == "supported"
    assert row["measured"] == "2.75x"
    absent = verdict("RAT-08", memory=memory(vllm=LEAN, sglang=LEAN))
    assert absent["verdict"] == "not tested here"
    assert "no comparable figure of tensorrt_llm" in absent["reason"]


def test_sums_of_other_parts_are_not_compared():
    """One engine logs its graphs only: that its sum is smaller says nothing."""
    only = {"weights": 30.0, "graphs": 1.0}
    held = memory(tensorrt_llm={**LEAN, "other": 4.0}, vllm=LEAN, sglang=only)
    row = verdict("RAT-08", memory=held)
    assert (row["verdict"], row["basis"]) == ("not tested here", "none")
    assert "sglang tells no activations and no other bytes" in row["reason"]
    nothing = memory(tensorrt_llm={**LEAN, "other": 4.0}, vllm=LEAN, sglang={"weights": 30.0})
    row = verdict("RAT-08", memory=nothing)
    assert "sglang tells no graphs and no activations and no other bytes" in row["reason"]
    alike = memory(**{e: only | {"weights": w} for e, w in
                      {"tensorrt_llm": 20.0, "vllm": 30.0, "sglang": 31.0}.items()})  # fmt: skip
    assert verdict("RAT-07", memory=alike)["verdict"] == "supported"


def test_what_found_no_load_cell_rests_on_none():
    """Physics refutes the figure; the run, which did not measure that load, adds nothing to it."""
    cells = run_cells({"vllm": {64: 100.0}})
    row = verdict("THR-vllm-c001", cells=cells, engines=("vllm",))
    assert (row["verdict"], row["basis"]) == ("contradicted", "physics")
    measured = verdict("THR-vllm-c001", cells=run_cells({"vllm": {1: 10.0}}), engines=("vllm",))
    assert measured["basis"] == "physics, load cells"


def test_one_part_is_no_sum():
    held = memory(tensorrt_llm={"weights": 30.0}, vllm={"weights": 40.0})
    assert verdict("RAT-07", memory=held)["verdict"] == "not tested here"


def probes(**answers):
    return pl.DataFrame(
        [
            {"engine": "vllm", "scenario": "f", "topic": topic, "probe": "flag", "claim": claim,
             "ok": ok, "value": "", "source": "asked"}
            for claim, (topic, ok) in answers.items()
        ]
    )  # fmt: skip


def test_published_code_is_judged_by_what_is_installed():
    recorded = verdict("CMP-01")
    assert recorded["basis"] == "public record"
    works = verdict("CMP-01", probes=probes(**{"CMP-01": ("snippet", True)}))
    assert (works["verdict"], works["basis"], works["n"]) == ("supported", "probes", 1)
    broken = verdict("CMP-01", probes=probes(**{"CMP-01": ("snippet", False)}))
    assert broken["verdict"] in {"contradicted", "outdated"}
    unknown = verdict("CMP-01", probes=probes(**{"CMP-01": ("snippet", None)}))
    assert unknown["basis"] == "public record"


def test_feature_probes_are_shown_and_decide_nothing():
    row = verdict("TRD-03", probes=probes(**{"TRD-03": ("feature", True)}))
    plain = verdict("TRD-03")
    assert row["verdict"] == plain["verdict"]
    assert row["reason"].endswith("seen here: vllm: flag: yes")
    assert row["basis"].endswith("probes")


@pytest.mark.parametrize(
    "value",
    [
        "ModuleNotFoundError: No module named 'enginebook'",
        "ImportError: no argument parser of vLLM was found where its versions have it",
    ],
)
def test_stored_answers_of_a_broken_instrument_are_not_shown(value):
    failed = {c: pl.lit(v) for c, v in [("value", value), ("ok", False)]}
    feature = probes(**{"TRD-03": ("feature", False)}).with_columns(**failed)
    assert verdict("TRD-03", probes=feature)["reason"] == verdict("TRD-03")["reason"]
    snippet = probes(**{"CMP-01": ("snippet", False)}).with_columns(**failed)
    assert verdict("CMP-01", probes=snippet)["basis"] == "public record"
    other = feature.with_columns(value=pl.lit("no --speculative-config"))
    assert "no --speculative-config" in verdict("TRD-03", probes=other)["reason"]


def swaps(engine, *minutes):
    return pl.DataFrame([{"engine": engine, "outage_s": m * 60.0} for m in minutes])


def test_swaps_are_held_against_the_claimed_minutes():
    row = verdict("DEP-08", swaps=swaps("tensorrt_llm", 2.0, 2.1, 1.9))
    assert (row["verdict"], row["basis"]) == ("contradicted", "swaps")
    assert row["measured"] == "2 min"
    other = verdict("DEP-08", swaps=swaps("vllm", 0.5, 0.6))
    assert other["verdict"] == "not tested here"
    assert "outage of a model swap: vllm 33 s (n = 2)" in other["reason"]


def simulated(**values):
    rows = [
        {"label": label, "x": x, "x_name": "max_len", "metric": "kv_utilisation_share", "value": v}
        for label, by_x in values.items()
        for x, v in by_x.items()
    ]
    return pl.DataFrame(rows)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({2048.0: 0.3, 4096.0: 0.25}, "supported"),
        ({2048.0: 0.58, 8192.0: 0.25}, "inconclusive"),
        ({2048.0: 0.6, 4096.0: 0.5}, "contradicted"),
    ],
)
def test_simulated_claims_are_judged_by_every_assumption(values, word):
    paged = {"paged:16": dict.fromkeys(values, 0.96)}
    row = verdict("RAT-09", simulations=simulated(prealloc=values, **paged))
    assert (row["verdict"], row["basis"]) == (word, "simulated")
    assert "simulated, prealloc by max len" in row["reason"]


def test_both_halves_of_a_claim_are_judged():
    """From 30 % to 95 %: the 30 % alone is half of it."""
    before = {2048.0: 0.3, 4096.0: 0.25}
    for after, word in [(0.6, "contradicted"), (0.96, "supported")]:
        both = simulated(prealloc=before, **{"paged:16": dict.fromkeys(before, after)})
        row = verdict("RAT-09", simulations=both)
        assert row["verdict"] == word
        assert "simulated, prealloc by max len" in row["reason"]
        assert f"simulated, paged:16 by max len: {after:.2f} at 2048" in row["reason"]
    half = verdict("RAT-09", simulations=simulated(prealloc=before))
    assert half["verdict"] == "not tested here"
    assert "this run simulated no paged:16" in half["reason"]


def test_a_gain_is_one_policy_over_another():
    both = simulated(
        **{"prealloc": {2048.0: 0.5, 8192.0: 0.2}, "paged:16": {2048.0: 0.9, 8192.0: 0.9}}
    )
    row = verdict("RAT-28", simulations=both)
    assert row["verdict"] == "supported"
    assert (row["low"], row["high"]) == (pytest.approx(1.8), pytest.approx(4.5))
