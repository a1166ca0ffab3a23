"""Engines that die, freeze or are killed while a study measures them: a result, and no more."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest
import yaml
from study_support import STUDY, Scene

# Seconds of load in each cell, so that its middle can be hit.
LONG = {**STUDY["scenarios"][0], "output_tokens": 300}
FROZEN_AT_MOST_S = 120  # the time limits of both cells, the engine's end, and the report
pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]


def with_study(scene: Scene, **changes: Any) -> None:
    scene.params.write_text(yaml.safe_dump(STUDY | changes))


def cells(scene: Scene) -> dict[str, dict[str, Any]]:
    """Return the facts of all cells by engine and streams."""
    found = [json.loads(f.read_text()) for f in (scene.outputs / "cells").glob("*/cell.json")]
    return {f"{c['engine']} c={c['cell']['concurrency']}": c for c in found}


def test_an_engine_that_dies_under_load_costs_its_cells_only(scene: Scene) -> None:
    bad = {"name": "bad", "recipe": "simulated", "options": {"fault": "crash", "fault_every": 12}}
    with_study(scene, engines=[{"name": "good", "recipe": "simulated"}, bad])
    status, said = scene.run()
    scene.assert_nothing_lives()
    assert status == 0, said  # a cell that failed is a result
    found = cells(scene)
    assert {k for k, c in found.items() if c["status"] == "ok"} >= {"good c=1", "good c=4"}
    failed = [c for k, c in found.items() if k.startswith("bad") and c["status"] != "ok"]
    assert failed, found
    assert all(c["error"] for c in failed)
    (page,) = (scene.outputs / "reports").glob("broken-*.html")
    assert failed[0]["error"].splitlines()[0][:40] in page.read_text()
    before = {f: f.stat().st_mtime_ns for f in scene.outputs.rglob("requests.parquet")}
    again, said = scene.run()
    assert again == 0, said
    assert {f: f.stat().st_mtime_ns for f in scene.outputs.rglob("requests.parquet")} == before


def test_a_frozen_engine_does_not_hold_the_study(scene: Scene) -> None:
    with_study(scene, scenarios=[{**LONG, "max_seconds": 8}])
    process = scene.start()
    (engine,) = scene.await_load(process)
    engine.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    process.communicate(timeout=150)
    assert time.monotonic() - frozen < FROZEN_AT_MOST_S
    assert [c for c in cells(scene).values() if c["status"] != "ok"], "the load on it failed"
    scene.assert_nothing_lives()
    status, said = scene.run("--retry-failed")
    assert status == 0, said
    assert {c["status"] for c in cells(scene).values()} == {"ok"}
    scene.assert_nothing_lives()


def test_an_engine_killed_for_memory_is_told_and_taken_again(scene: Scene) -> None:
    with_study(scene, scenarios=[LONG])
    process = scene.start()
    (engine,) = scene.await_load(process)
    engine.kill()
    process.communicate(timeout=150)
    scene.assert_nothing_lives()
    broken = [c for c in cells(scene).values() if c["status"] != "ok" or not c["gate_ok"]]
    assert broken
    status, said = scene.run("--retry-failed")
    assert status == 0, said
    scene.assert_whole()
