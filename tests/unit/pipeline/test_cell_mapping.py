"""A cell of each kind becomes the load generator's workload, and nothing of it is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginebook.cells import Cell
from enginebook.pipeline.steps.cell import slos_of, workload_of
from enginebook.study_file import study_from_parameters


def cell(**scenario: Any) -> Cell:
    study = study_from_parameters(
        {
            "study": "try",
            "question": "?",
            "model": "m",
            "engines": ["a"],
            "scenarios": [{"name": "s", **scenario}],
        }
    )
    return study.cells("a", 0)[-1]


def test_a_closed_loop() -> None:
    load = workload_of(cell(concurrency=4, input_tokens=32, output_tokens=8, requests_per_stream=3))
    assert (load.kind, load.concurrency, load.requests, load.warmup_requests) == (
        "closed_loop", 4, 12, 4,
    )  # fmt: skip
    assert (load.inputs.fixed, load.outputs.fixed) == (32, 8)
    assert load.expected_cache == "cold"


def test_an_open_loop_with_lengths_that_vary() -> None:
    made = cell(
        kind="open_loop",
        rate=2.5,
        arrival="gamma:2",
        seconds=20,
        input_lengths="lognormal:100:0.5",
        output_lengths="uniform:4:9",
        slo=[{"name": "x", "ttft_ms": 300, "share": 0.9}],
    )
    load = workload_of(made)
    assert (load.kind, load.rate, load.concurrency, load.requests) == ("open_loop", 2.5, None, 50)
    assert load.arrival == "gamma:2"
    assert load.inputs.fixed is None
    assert load.outputs.text.startswith("uniform:4:9")
    (slo,) = slos_of(made)
    assert (slo.ttft_ms, slo.tpot_ms, slo.share) == (300, None, 0.9)


def test_shared_prefixes_are_part_of_the_prompt() -> None:
    load = workload_of(cell(input_tokens=10, prefix_tokens=90, prefix_share=0.5, cache="warm"))
    assert load.inputs.fixed == 100
    assert (load.shared_prefix_tokens, load.shared_prefix_share) == (90, 0.5)
    assert load.expected_cache == "warm"


def test_sessions_keep_turns_and_thinking() -> None:
    load = workload_of(cell(kind="sessions", turns=4, think_time_s=1.5, concurrency=2))
    assert (load.turns, load.think_time_s, load.requests % 4) == (4, 1.5, 0)


def test_constrained_answers_end_by_themselves() -> None:
    load = workload_of(cell(answer_format="json_schema", schema_name="flat", prompts="json"))
    assert load.free_length
    assert load.schema_name == "flat"


def test_a_trace_by_name_and_by_file(tmp_path: Path) -> None:
    load = workload_of(cell(kind="trace", trace="builtin:synthetic-conversation", speed=2,
                            length_divisor=16, max_input_tokens=64))  # fmt: skip
    assert load.kind == "trace"
    assert (load.trace_speed, load.length_divisor, load.max_input_tokens) == (2, 16, 64)
    file = tmp_path / "trace.jsonl"
    file.write_text('{"timestamp": 0, "input_length": 4, "output_length": 2}\n')
    assert workload_of(cell(kind="trace", trace=str(file))).trace == file


def test_precision_ends_a_cell_early() -> None:
    load = workload_of(cell(precision={"half_width": 0.05, "min_requests": 9}))
    assert load.to_dict()["precision"]["half_width"] == pytest.approx(0.05)
