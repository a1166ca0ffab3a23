"""Loads in words: what tells each from its neighbours, and never a count of no streams."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from enginebook.report import Fragment, StudyData, charts, schema, tables
from enginebook.report.cellname import load_name, load_place, row_of, series_name, streams
from enginebook.report.outcome import LOAD, Load, sweep

NO_STREAMS = re.compile(r"\b0 (streams|sessions)|c=0|[^.\d]0 路")


def loads(data: StudyData) -> list[Load]:
    return [Load(*row) for row in data.loads.select(LOAD).iter_rows()]


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ("prefix.p128.h0.5", "prefix 128, 50\u202f% of requests, 2 streams"),
        ("chat", "10 turns, 1.5 s of thinking, 2 sessions"),
        ("json.json_schema.flat", "JSON schema flat, 1 stream"),
        ("json.text", "free text, 1 stream"),
        ("online.r2", "2 requests/s"),
        ("online.search", "highest rate within the objective"),
        ("replay", "synthetic-conversation, replayed 1 times as fast"),
    ],
)
def test_a_load_says_what_tells_it_apart(parts: StudyData, series: str, words: str) -> None:
    load = next(load for load in loads(parts) if load.scenario == series)
    family = series.split(".", maxsplit=1)[0]
    assert load_name(parts, load) == f"The <b>{family}</b> load: {words}"


def test_names_differ_within_a_study(parts: StudyData) -> None:
    names = [load_name(parts, load) for load in loads(parts)]
    assert len(set(names)) == len(names)


def test_a_series_has_no_streams(parts: StudyData) -> None:
    assert series_name(parts, "prefix.p128.h0.5").endswith("prefix 128, 50\u202f% of requests")
    assert series_name(parts, "online.r2") == "The <b>online</b> load: 2 requests/s"
    assert series_name(parts, "unknown.r2") == "unknown.r2"


def test_runs_without_the_frame_keep_the_series_name(data: StudyData) -> None:
    assert row_of(data, Load("throughput", 4, 64, 32)) is None
    found = load_name(data, Load("throughput", 4, 64, 32))
    assert found == "throughput: 4 streams, 64 input and 32 output tokens"
    assert load_name(data, Load("s", 0, 64, 32)) == "s: 64 input and 32 output tokens"
    assert load_place(data, Load("s", 0, 1, 2)) == "(s: 1 input and 2 output tokens)"


def test_no_streams_are_never_counted(parts: StudyData) -> None:
    assert (streams(0), streams(1024)) == ("–", "1,024")
    for study in (parts, replace(parts, loads=schema.empty("loads"))):
        for name in tables.__all__:
            if name not in {"Column", "Value", "table"}:
                made = getattr(tables, name)(study)
                text = made.plain if isinstance(made, Fragment) else made.reason
                assert not NO_STREAMS.search(text), (name, text)
        for name in charts.__all__:
            if name != "Drawing":
                made = getattr(charts, name)(study)
                if hasattr(made, "to_dict"):
                    assert not NO_STREAMS.search(made.to_dict()["description"]), name


def test_sweeps_take_plain_loads_before_others(parts: StudyData) -> None:
    for axis in ("concurrency", "input_tokens"):
        found = sweep(parts, "output_tokens_per_s", axis)
        assert {load.scenario for load in found} <= {"throughput", "input_length"}
        assert all(load.concurrency > 0 for load in found)
    assert [load.concurrency for load in sweep(parts, "output_tokens_per_s", "concurrency")] == [
        1, 2, 4, 8,
    ]  # fmt: skip
