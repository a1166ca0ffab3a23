"""Scenarios as data: axes, series, counts, and what identifies a measured cell."""

from __future__ import annotations

from typing import Any

import pytest

from enginebook.cells import Cell
from enginebook.errors import InputError
from enginebook.study import Study
from enginebook.study_file import study_from_parameters

BASE = {
    "study": "try",
    "question": "Which?",
    "model": "m",
    "engines": [{"name": "a", "recipe": "x"}, {"name": "b", "recipe": "x"}],
    "blocks": 2,
}


def study(*scenarios: dict[str, Any], **changes: Any) -> Study:
    return study_from_parameters({**BASE, "scenarios": list(scenarios), **changes})


def cells(*scenarios: dict[str, Any], engine: str = "a", block: int = 0) -> list[Cell]:
    return study(*scenarios).cells(engine, block)


def problem(*scenarios: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        study(*scenarios)
    return caught.value.message


PREFIX = {
    "name": "shared",
    "kind": "closed_loop",
    "input_tokens": 32,
    "prefix_tokens": [0, 256],
    "prefix_share": [0.5, 0.9],
    "cache": "warm",
}


def test_an_axis_with_several_values_names_the_series() -> None:
    found = {c.scenario: c for c in cells(PREFIX)}
    assert list(found) == ["shared.p0", "shared.p256.h0.5", "shared.p256.h0.9"]
    assert {c.of_family for c in found.values()} == {"shared"}
    assert [c.input_tokens for c in found.values()] == [32, 288, 288]
    assert found["shared.p256.h0.9"].prefix_share == 0.9


def test_a_series_without_further_axes_has_the_scenarios_name() -> None:
    (cell,) = cells({"name": "plain", "prefix_tokens": 64})
    assert cell.scenario == cell.of_family == "plain"
    assert cell.family is None


def test_series_have_prompts_of_their_own() -> None:
    seeds = [c.seed for c in cells(PREFIX)]
    assert len(set(seeds)) == len(seeds)


def test_an_open_loop_counts_requests_by_its_traffic() -> None:
    found = cells(
        {
            "name": "online",
            "kind": "open_loop",
            "rate": [0.5, 4],
            "seconds": 30,
            "min_requests": 20,
            "max_requests": 100,
            "slo": [{"name": "chat", "ttft_ms": 500}],
            "search": True,
        }
    )
    assert [(c.scenario, c.rate, c.requests, c.search) for c in found] == [
        ("online.r0.5", 0.5, 20, False),
        ("online.r4", 4.0, 100, False),
        ("online.search", 0.5, 20, True),
    ]
    assert {c.concurrency for c in found} == {0}


def test_a_search_needs_an_objective() -> None:
    assert "search needs an SLO" in problem(
        {"name": "o", "kind": "open_loop", "rate": 1, "search": True}
    )
    assert "an SLO needs" in problem(
        {"name": "o", "kind": "open_loop", "rate": 1, "slo": [{"name": "x"}]}
    )


def test_sessions_are_whole_conversations() -> None:
    found = cells(
        {
            "name": "chat",
            "kind": "sessions",
            "turns": 3,
            "concurrency": [1, 2],
            "sessions_per_stream": 2,
            "think_time_s": [0, 1.5],
        }
    )
    assert [c.scenario for c in found] == ["chat.w0", "chat.w0", "chat.w1.5", "chat.w1.5"]
    assert all(c.requests % 3 == 0 for c in found)
    assert [c.requests for c in found][:2] == [9, 12]


def test_a_replay_is_named_by_its_trace_and_speed() -> None:
    found = cells(
        {
            "name": "replay",
            "kind": "trace",
            "trace": ["builtin:synthetic-conversation", "/some/Where/Azure Conv.csv"],
            "speed": [0.5, 1],
            "requests": 20,
        }
    )
    assert [c.scenario for c in found] == [
        "replay.synthetic-conversation.x0.5",
        "replay.synthetic-conversation.x1",
        "replay.azure-conv.csv.x0.5",
        "replay.azure-conv.csv.x1",
    ]


def test_json_schemas_are_an_axis_of_constrained_answers_alone() -> None:
    found = cells(
        {
            "name": "json",
            "answer_format": ["text", "json_schema"],
            "schema_name": ["flat", "nested"],
        }
    )
    assert [c.scenario for c in found] == [
        "json.text",
        "json.json_schema.flat",
        "json.json_schema.nested",
    ]


def test_a_scenario_may_be_for_some_engines_and_blocks() -> None:
    only = {"name": "costly", "only": ["b"], "blocks": 1}
    assert cells(only, engine="a") == []
    assert len(cells(only, engine="b")) == 1
    assert cells(only, engine="b", block=1) == []
    assert "unknown: c" in problem({"name": "costly", "only": ["c"]})


def test_an_engine_without_work_in_a_block_is_not_started() -> None:
    plan = study({"name": "costly", "only": ["b"], "blocks": 1}).block_order()
    assert plan == [(0, "b")]
    watched = study({"name": "m", "kind": "monitoring"}).block_order()
    assert watched == [(0, "a"), (0, "b")]


def test_new_fields_do_not_disown_what_was_measured() -> None:
    (cell,) = cells({"name": "plain"})
    assert set(cell.identity()) == {
        "scenario", "kind", "block", "seed", "concurrency", "input_tokens", "output_tokens",
        "requests", "warmup_requests", "max_seconds",
    }  # fmt: skip


def test_problems_name_the_key_and_not_the_kind() -> None:
    said = problem({"name": "s", "kind": "sessions", "turnz": 3})
    assert "scenarios.0.turnz: unknown; did you mean 'turns'" in said
    assert "scenarios.0.rate: is missing" in problem({"name": "s", "kind": "open_loop"})
    assert "closed_loop" in problem({"name": "s", "kind": "closed_lop"})
