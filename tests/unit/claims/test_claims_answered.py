"""Every entry of the register is answered: by physics, the record, or a scenario that ships."""

from __future__ import annotations

import fnmatch
from functools import cache
from typing import Any

import polars as pl
import pytest
import yaml
from claims_runs import GPU_HOST, study

from enginebook.claims import judge, load_register
from enginebook.claims.model import Claim
from enginebook.claims.rules import RULES
from enginebook.paths import project_root

REGISTER = load_register()
VERDICTS = {"supported", "contradicted", "outdated", "not tested here"}
ENGINES = {
    "vllm": 1.0, "sglang": 1.1, "tensorrt_llm": 1.2, "lmdeploy": 1.05, "llamacpp": 0.5,
    "ollama": 0.45, "mlx": 0.4,
}  # fmt: skip
NAME_OF = {
    "S01": "sweep", "S02": "sweep", "S03": "sweep", "S04": "shared_prefix", "S05": "ten_turn_chat",
    "S06": "structured", "S07": "moe", "S08": "quantised", "S13": "speculative", "S15": "online",
    "S16": "trace",
}  # fmt: skip
# What a load cell can measure of a claim; the rest is asked of probes, memory, swaps, simulations.
MEASURED = [
    c for c in REGISTER.claims
    if c.test.rule in RULES and c.test.metric and c.test.engines
    and c.test.metric != "memory_bytes" and c.test.scenario in NAME_OF
]  # fmt: skip


def answers() -> dict[str, list[str]]:
    """Return by scenario file the claims that it says to answer."""
    folder = project_root() / "params" / "scenarios"
    files = {p.stem: yaml.safe_load(p.read_text(encoding="utf-8")) for p in folder.glob("*.yaml")}
    return {name: data.get("answers", []) for name, data in files.items()}


@cache
def without_a_run() -> dict[str, dict[str, Any]]:
    return {row["claim_id"]: row for row in judge(REGISTER).to_dicts()}


@pytest.mark.parametrize("claim", REGISTER.claims, ids=lambda c: c.id)
def test_each_entry_has_a_verdict_a_reason_and_says_what_it_rests_on(claim: Claim) -> None:
    row = without_a_run()[claim.id]
    assert row["verdict"] in VERDICTS
    assert len(row["reason"]) > 10
    if row["verdict"] == "not tested here":
        assert row["basis"] == "none"
        assert f"takes {claim.test.scenario}: " in row["reason"]
    else:
        assert row["basis"] in {"physics", "public record"}
        assert row["physics_reason"] or row["sources"]


def test_what_is_open_is_answered_by_a_scenario_that_ships() -> None:
    patterns = [pattern for listed in answers().values() for pattern in listed]
    open_ones = [i for i, row in without_a_run().items() if row["verdict"] == "not tested here"]
    assert [i for i in open_ones if not any(fnmatch.fnmatch(i, p) for p in patterns)] == []


def test_no_scenario_answers_a_claim_that_is_not_there() -> None:
    ids = [claim.id for claim in REGISTER.claims]
    idle = {
        (name, pattern)
        for name, listed in answers().items()
        for pattern in listed
        if not fnmatch.filter(ids, pattern)
    }
    assert idle == set()


def run_for(claim: Claim) -> pl.DataFrame:
    """Return a run that measured just what a claim speaks of, with every engine, six times."""
    metric = claim.test.metric or ""
    median = metric.replace("_p99_", "_p50_").replace("_p95_", "_p50_")
    rows = [
        {
            "engine": engine, "scenario": NAME_OF[claim.test.scenario], "block": block,
            "concurrency": streams, "input_tokens": inputs, "output_tokens": 128, "metric": m,
            "value": level * (1 + 0.001 * block) * (streams**0.8 + 0.01 * inputs), "n": 64,
            "gate_ok": True,
        }
        for engine, level in ENGINES.items() for block in range(6)
        for streams in (1, 4, 8, 16, 32, 64, 128) for inputs in (128, 512, 2048, 8192)
        for m in sorted({metric, median})
    ]  # fmt: skip
    return pl.DataFrame(rows)


@pytest.mark.parametrize("claim", MEASURED, ids=lambda c: c.id)
def test_a_run_that_measured_it_answers_it(claim: Claim) -> None:
    """A claim on a metric or a load that nobody measures would stay open for ever."""
    one = REGISTER.model_copy(update={"claims": (claim,)})
    frame = judge(one, cells=run_for(claim), host=GPU_HOST, manifest=study(*ENGINES))
    row = frame.row(0, named=True)
    assert row["verdict"] != "not tested here", row["reason"]
    assert row["measured"]
    assert "load cells" in row["basis"]
