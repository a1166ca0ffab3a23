"""The register that comes with the package, and users' own files."""

import collections
import re
from importlib.resources import files

import pytest

from enginebook.claims import (
    explain_register,
    feature_table,
    judge,
    load_register,
    quoted_figures,
    read_claims,
)
from enginebook.claims.tables import figures_under_hypotheses, stated_weights_gb
from enginebook.engines.registry import ALL
from enginebook.errors import InputError

REGISTER = load_register()


def expected_ids():
    engines = ("vllm", "sglang", "tensorrt_llm")
    ids = {f"THR-{e}-c{c:03d}" for e in engines for c in (1, 4, 8, 16, 32, 64, 128)}
    ids |= {f"TTFT-{e}-{n:04d}" for e in engines for n in (128, 512, 2048, 8192)}
    ids |= {f"MEM-{e}-{p}" for e in engines for p in ("weights", "kv", "runtime", "total")}
    last = {"RAT": 28, "ARC": 12, "DEP": 14, "CMP": 10, "META": 10, "TRD": 7, "DEC": 9}
    return ids | {f"{k}-{i:02d}" for k, n in last.items() for i in range(1, n + 1)}


def test_all_135_claims_are_there_once():
    assert len(REGISTER.claims) == 135
    assert {c.id for c in REGISTER.claims} == expected_ids()


def test_every_claim_says_how_it_is_tested_and_what_is_known():
    for claim in REGISTER.claims:
        assert claim.statement
        assert re.fullmatch(r"S\d\d", claim.test.scenario)
        assert claim.test.measure
        assert claim.evidence is not None
        assert set(claim.evidence.sources) <= set(REGISTER.sources)
        if claim.evidence.status in {"supported", "contradicted"}:
            assert claim.evidence.sources, claim.id


def test_public_evidence_by_status():
    counts = collections.Counter(c.evidence.status for c in REGISTER.claims)
    assert counts == {"contradicted": 49, "unverifiable": 36, "supported": 28, "outdated": 22}


def test_rules_that_compare_name_what_they_compare():
    for claim in REGISTER.claims:
        test = claim.test
        if test.metric and test.rule in {"RATIO", "CROSS"}:
            assert len(test.engines) == 2
        if test.rule == "RATIO" and test.metric:
            assert test.value
        if test.rule == "RANGE" and test.metric:
            assert test.low is not None
        if test.rule == "REGRET":
            assert len(test.engines) == 1


def test_the_printed_terms_are_kept():
    assert REGISTER.claim("RAT-12").zh == "10 轮对话场景下，SGLang 比 vLLM 快 2.1 倍"
    assert REGISTER.title.startswith("LLM 推理引擎横评 2026")


def test_the_data_hold_no_paths_of_a_machine():
    folder = files("enginebook.claims").joinpath("data")
    for entry in folder.iterdir():
        text = entry.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.])/(home|root|tmp|opt|Users)/|\.\./|\\\\", text), entry


def test_physics_alone_without_any_run():
    frame = judge(REGISTER)
    assert len(frame) == 135
    counts = dict(frame.group_by("physics_verdict").len().iter_rows())
    assert counts == {"impossible": 31, "implausible": 4, "possible": 22, "n/a": 78}
    assert set(frame["verdict"]) == {"supported", "contradicted", "outdated", "not tested here"}
    assert frame["measured"].null_count() == 135
    by_id = {r["claim_id"]: r for r in frame.to_dicts()}
    assert by_id["THR-vllm-c001"]["efficiency"] == pytest.approx(1.742, abs=1e-3)
    assert by_id["TTFT-tensorrt_llm-8192"]["efficiency"] == pytest.approx(2.91, abs=5e-3)
    assert by_id["MEM-vllm-weights"]["reason"].startswith("physics: the weights are 141.11 GB")
    assert "117,493 tokens" in by_id["MEM-vllm-kv"]["physics_reason"]
    # within its time limit, and still refuted: the stated card cannot hold the model
    assert by_id["TTFT-vllm-0128"]["physics_verdict"] == "possible"
    assert "cannot be loaded" in by_id["TTFT-vllm-0128"]["reason"]
    assert by_id["DEP-12"]["verdict"] == "contradicted"
    assert by_id["CMP-07"]["reason"].endswith("[E02]")
    assert "takes S05" in by_id["RAT-12"]["reason"]


def test_the_articles_tables_are_those_of_four_h100():
    found = explain_register(REGISTER)
    best = found.row(0, named=True)
    assert (best["hypothesis"], best["verdict"]) == ("4 x H100-SXM bf16", "fits")
    assert best["weights_error"] == pytest.approx(0.0022, abs=1e-4)
    singles = {
        r["hypothesis"]: r for r in found.to_dicts() if r["hypothesis"].startswith("1 x H100")
    }
    assert len(singles) == 3
    assert all(r["verdict"] != "fits" for r in singles.values())
    one = singles["1 x H100-SXM bf16"]
    assert (one["rate_impossible"], one["ttft_impossible"], one["ttft_implausible"]) == (19, 7, 1)
    fp8 = singles["1 x H100-SXM fp8"]
    assert (fp8["rate_impossible"], fp8["ttft_impossible"]) == (6, 1)
    assert singles["1 x H100-SXM int4-g128"]["ttft_impossible"] == 7
    # with 512 tokens of live context even one more figure breaks
    longer = {r["hypothesis"]: r for r in explain_register(REGISTER, context=512).to_dicts()}
    assert longer["1 x H100-SXM bf16"]["rate_impossible"] == 20
    assert longer["4 x H100-SXM bf16"]["verdict"] == "fits"


def test_figures_for_the_chart():
    assert len(quoted_figures(REGISTER)) == 33
    assert stated_weights_gb(REGISTER) == pytest.approx(35.2)
    frame = figures_under_hypotheses(REGISTER)
    assert len(frame) == 330
    on_one = frame.filter(hypothesis="1 x H100-SXM bf16")["efficiency"]
    assert (on_one > 1).sum() == 26


def test_features_have_public_sources_and_a_date():
    frame = feature_table()
    assert all(len(s) and all(u.startswith("https://") for u in s) for s in frame["sources"])
    assert set(frame["as_of"]) == {"2026-11"}
    assert frame.select("engine", "feature").is_unique().all()


def test_what_every_engine_is_told_of():
    """Models, quantisation, Apple silicon, licence and hardware of every engine with a recipe."""
    frame = feature_table()
    for feature in ("install", "start", "licence", "hardware", "apple_silicon", "quantisation"):
        known = set(frame.filter(feature=feature)["engine"])
        assert known == {a.id.replace("-", "_") for a in ALL if a.id != "simulated"}, feature


MINE = """
source: {title: A blog, date: 2026-10}
setting: {model: meta-llama/Llama-3.1-8B-Instruct, hardware: NVIDIA H200, precision: bf16}
tables:
  - test: {metric: output_tokens_per_s}
    by: concurrency
    engines: [vllm, sglang]
    rows:
      1: [250, 400]
      64: [9000, null]
claims:
  - id: faster
    statement: SGLang is 1.5 times as fast
    test: {rule: RATIO, metric: output_tokens_per_s, engines: [sglang, vllm], value: 1.5}
"""


def test_a_blogs_table_in_verdicts_out():
    frame = judge(read_claims(MINE, "mine"))
    by_id = {r["claim_id"]: r for r in frame.to_dicts()}
    assert set(by_id) == {"vllm-1", "vllm-64", "sglang-1", "faster"}
    assert by_id["sglang-1"]["verdict"] == "contradicted"
    assert by_id["sglang-1"]["physics_verdict"] == "impossible"
    assert by_id["vllm-1"]["verdict"] == "not tested here"
    assert by_id["vllm-1"]["physics_verdict"] == "implausible" or by_id["vllm-1"]["efficiency"] < 1
    assert by_id["faster"]["evidence"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("claims: [{id: a}]", "statement"),
        ("claims: [{id: a, statement: b, test: {rule: MAGIC}}]", "rule"),
        ("claims: 3", "claims"),
        ("{", "not YAML"),
        ("surprise: 1", "surprise"),
        (
            "claims: [{id: a, statement: b, test: {}}, {id: a, statement: c, test: {}}]",
            "given twice: a",
        ),
        (
            "tables: [{test: {}, by: concurrency, engines: [a, b], rows: {1: [2]}}]",
            "row 1 of table .* has 1 figures",
        ),
        (
            "tables: [{id: '{engine}', test: {}, by: concurrency, engines: [a], rows: {1: [2], 2: [3]}}]",  # noqa: E501
            "given twice: a",
        ),
        ("tables: [{id: '{x}', test: {}, by: concurrency, engines: [a], rows: {1: [2]}}]", "x"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_claims(text, "mine.yaml")
    assert caught.value.exit_status == 2


def test_a_setting_with_unknown_hardware_is_an_input_error():
    text = MINE.replace("NVIDIA H200", "Banana Pi")
    with pytest.raises(InputError, match="unknown hardware 'Banana Pi'"):
        judge(read_claims(text, "mine"))
