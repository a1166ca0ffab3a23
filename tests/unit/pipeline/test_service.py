"""Starts with cold caches and a swap under load, on the simulated engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enginebook.engines.base import Phase
from enginebook.errors import EngineError
from enginebook.pipeline.book import Book, begin
from enginebook.pipeline.steps import service
from enginebook.scenarios import Starts, Swap

ARMS = ["warm", "cold_page_cache", "cold_compile_cache"]
STUDY = {
    "study": "service",
    "question": "?",
    "model": {"dummy": "tiny-4-layers"},
    "engines": [{"name": "sim", "recipe": "simulated", "options": {"load_seconds": 0.1}}],
    "scenarios": [
        {"name": "starts", "kind": "starts", "repeats": 1, "arms": ARMS},
        {"name": "swap", "kind": "swap", "repeats": 1, "clients": 2},
    ],
    "engine": "sim",
}


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Book:
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    return begin("launch", STUDY, outputs=tmp_path / "outputs")


def test_starts_tell_whole_times_and_parts(book: Book) -> None:
    (scenario,) = book.study.of_kind("starts")
    assert isinstance(scenario, Starts)
    rows = service.measure_starts(book, scenario)
    assert {r["arm"] for r in rows} == set(ARMS)
    for arm in ARMS:
        times = {r["phase"]: r["seconds"] for r in rows if r["arm"] == arm}
        assert times["first_token"] >= times["ready"] >= times["weights"] >= 0.1
        assert times["ready"] == pytest.approx(times["weights"] + times["warm_up"])
    (cold,) = {r["source"] for r in rows if r["arm"] == "cold_page_cache"}
    assert "dropped from the page cache" in cold


def test_cold_compile_cache_is_the_engine_s_alone(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}
    before = dict(os.environ)

    def serve(*_: object, **options: object) -> None:
        seen.update(options)
        seen["ours"] = dict(os.environ)
        raise EngineError("no start\nits log")

    monkeypatch.setattr(service, "serve", serve)
    (row,) = service._start(book, "cold_compile_cache", service.Progress("x"))
    assert row["seconds"] is None
    assert row["source"] == "failed: no start"
    env = seen["env"]
    assert env["VLLM_CACHE_ROOT"] == env["XDG_CACHE_HOME"] == env["TRITON_CACHE_DIR"]
    assert not Path(env["XDG_CACHE_HOME"]).exists()
    assert seen["ours"] == before


def test_hub_models_stay_where_they_are() -> None:
    def hub(inherited: dict[str, str]) -> str:
        return service.cold_variables("/empty", inherited)["HF_HOME"]

    assert hub({"HF_HOME": "/models"}) == "/models"
    assert hub({"XDG_CACHE_HOME": "/big"}) == "/big/huggingface"
    assert hub({}) == str(Path.home() / ".cache" / "huggingface")


def test_steps_of_one_name_add_up() -> None:
    phases = [
        Phase("imports", 0, 2, "log"),
        Phase("compile", 2, 5, "log"),
        Phase("cache", 5, 6, "log"),
        Phase("compile", 6, 7, "log"),
        Phase("ready", 7, 7.5, "readiness"),
        Phase("first_token", 7.5, 8, "request"),
    ]
    times = service.phase_times(phases, 7.5, 8.0)
    assert times == {
        "imports": 2, "compile": 4, "cache": 1, "warm_up": 0.5, "ready": 7.5, "first_token": 8.0,
    }  # fmt: skip


def test_clients_see_the_swap(book: Book) -> None:
    (scenario,) = book.study.of_kind("swap")
    assert isinstance(scenario, Swap)
    (row,) = service.measure_swap(book, scenario)
    # The engine is not there for its whole start; a refused client comes again within 0.1 s.
    assert row["outage_s"] > row["ready_s"] - 0.1
    assert row["outage_s"] < row["stop_s"] + row["first_token_s"] + 30
    assert 0 < row["failed"] < 20 * row["outage_s"] * row["clients"]
    assert row["to_model"] == "tiny-4-layers"


def test_frames_hold_what_the_launch_stages_left(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = {"scenario": "s", "arm": "warm", "repeat": 0, "phase": "ready", "seconds": 1.5}
    swap = {"scenario": "w", "repeat": 0, "to_model": "m", "outage_s": 3.0, "failed": 2}
    found = {"launch-sim": {"engine": "sim", "starts": [start], "swaps": [swap]},
             "launch-old": {"engine": "old"}}  # fmt: skip
    monkeypatch.setattr(Book, "results", lambda *_: found)
    frames = service.service_frames(book)
    assert frames["starts"].to_dicts() == [{"engine": "sim", **start, "source": None}]
    assert frames["swaps"]["outage_s"].to_list() == [3.0]


def test_a_foreign_server_is_neither_started_nor_stopped(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = book.recipe.environment.model_copy(update={"kind": "external"})
    foreign = book.recipe.model_copy(update={"environment": kind})
    monkeypatch.setattr(Book, "recipe", foreign)
    assert service.measure_service(book) == {"starts": [], "swaps": []}
