"""Probes of installed engines, and figures read from a Prometheus page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from enginebook import engines
from enginebook.engines.registry import adapter
from enginebook.pipeline.steps.probes import figures_of
from enginebook.study_file import read_yaml

SCRIPT = Path(engines.__file__).with_name("probe_code.py")
PAGE = """# HELP vllm:num_requests_running Running.
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 4.0
vllm:generation_tokens_total{engine="0"} 120
vllm:time_to_first_token_seconds_bucket{le="0.1"} 7
vllm:time_to_first_token_seconds_count{engine="0"} 9
plain 2.5
broken{ x
"""
KNOWN = {
    "running": "vllm:num_requests_running",
    "generation_tokens_total": "vllm:generation_tokens_total",
    "ttft_seconds": "vllm:time_to_first_token_seconds",
    "kv_usage": "vllm:kv_cache_usage_perc",
    "plain": "plain",
}


def ask(*probes: dict[str, Any], distribution: str = "pydantic") -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT), distribution],
        input=json.dumps(probes), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_values_of_one_name_are_summed_and_histograms_count() -> None:
    assert figures_of(PAGE.splitlines(), KNOWN) == {
        "running": 7.0, "generation_tokens_total": 120.0, "ttft_seconds": 9.0, "plain": 2.5,
    }  # fmt: skip


def test_facts_of_a_package_come_first() -> None:
    facts = ask()[0]["package"]
    assert facts["version"][0].isdigit()
    assert facts["requirements"] >= 1


def test_every_probe_answers_for_itself() -> None:
    found = ask(
        {"probe": "there", "ask": "names", "names": ["pydantic:BaseModel.model_validate"]},
        {"probe": "gone", "ask": "names", "names": ["pydantic:NoSuchThing"]},
        {"probe": "no module", "ask": "names", "names": ["no_such_module:x"]},
        {"probe": "fields", "ask": "fields", "of": "enginebook.cells:Cell", "fields": ["rate"]},
        {"probe": "field", "ask": "fields", "of": "enginebook.cells:Cell", "fields": ["nothing"]},
    )[1:]
    assert [f["ok"] for f in found] == [True, False, False, True, False]
    assert "no nothing" in found[-1]["value"]


def test_modules_beside_the_script_hide_no_engine() -> None:
    (found,) = ask({"probe": "x", "ask": "names", "names": ["vllm:LLM"]})[1:]
    assert "No module named 'vllm'" in found["value"]


def test_every_engine_of_the_table_is_known_and_its_probes_are_whole() -> None:
    for engine, probes in read_yaml(SCRIPT.with_name("probes.yaml")).items():
        assert adapter(engine)
        assert len({p["probe"] for p in probes}) == len(probes)
        assert all(p["ask"] in {"names", "flag", "fields"} for p in probes)
