"""How long a study will take: from what was measured here, else from what is usual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginebook.cells import Cell
from enginebook.pipeline.estimate import OVERHEAD_S, estimate, expected_s, work_of
from enginebook.pipeline.plan import cell_digest, make_plan
from enginebook.pipeline.preview import outlook
from enginebook.pipeline.watch import clock
from enginebook.store import write_json
from enginebook.study import Study
from enginebook.study_file import study_from_parameters

HOST = "0123456789ab"
PARAMETERS: dict[str, Any] = {
    "study": "try",
    "question": "?",
    "model": "smollm2-135m-instruct",
    "engines": [{"name": "sim", "recipe": "simulated"}],
    "scenarios": [{"name": "s", "concurrency": [1, 4], "input_tokens": 8, "output_tokens": 8}],
    "blocks": 1,
}


def study() -> Study:
    return study_from_parameters(PARAMETERS)


def cell(**fields: Any) -> Cell:
    base = {
        "scenario": "s", "kind": "closed_loop", "block": 0, "seed": 1, "concurrency": 1,
        "input_tokens": 80, "output_tokens": 10, "requests": 5, "warmup_requests": 0,
        "max_seconds": 100,
    }  # fmt: skip
    return Cell(**{**base, **fields})


def test_work_grows_with_tokens_and_less_than_streams() -> None:
    assert work_of(cell(), "cpu") == pytest.approx(5 * (80 / 8 + 10))
    assert work_of(cell(concurrency=4, requests=20), "cpu") < 4 * work_of(cell(), "cpu")


def test_arrivals_take_as_long_as_they_are_spread_and_a_limit_is_a_limit() -> None:
    assert expected_s(cell(kind="open_loop", rate=0.5), 999) == pytest.approx(10 + OVERHEAD_S)
    assert expected_s(cell(), 1e6) == 100
    assert expected_s(cell(search=True), 1) == 100


def test_without_anything_measured_the_estimate_says_so(tmp_path: Path) -> None:
    plan = make_plan(study(), PARAMETERS, HOST)
    found = {e.stage: e for e in estimate(study(), plan, tmp_path)}
    assert set(found) == {s.name for s in plan.stages}
    assert {e.basis for e in found.values()} == {"usual"}


def test_measured_cells_of_the_engine_scale_the_rest(tmp_path: Path) -> None:
    asked, plan = study(), make_plan(study(), PARAMETERS, HOST)
    engine = asked.engines[0]
    first, second = asked.cells("sim", 0)
    folder = tmp_path / "cells" / cell_digest(first, engine, asked.model, HOST)
    facts = {"status": "ok", "seconds": 30.0, "recipe": "simulated", "host_id": HOST}
    write_json(folder / "cell.json", facts | {"cell": first.model_dump()})
    (load,) = [e for e in estimate(asked, plan, tmp_path) if e.stage == "load-sim-b0"]
    assert load.basis == "scaled"
    scale = 30.0 / work_of(first, "cpu")
    wanted = expected_s(second, scale * work_of(second, "cpu"))
    assert load.seconds == pytest.approx(60.0 + wanted)


def test_the_outlook_before_a_run_tells_time_gpu_time_and_cost(tmp_path: Path) -> None:
    on_cards = {
        **PARAMETERS,
        "model": {"dummy": "llama-3.1-8b"},
        "engines": [{"name": "v", "recipe": "vllm-cuda", "options": {"tensor_parallel": 4}}],
        "hourly_price": 12,
    }
    asked = study_from_parameters(on_cards)
    plan = make_plan(asked, on_cards, HOST)
    seconds = {e.stage: e.seconds for e in estimate(asked, plan, tmp_path)}
    on_gpu = 4 * (seconds["launch-v"] + seconds["load-v-b0"])
    said = outlook(asked, plan, tmp_path)
    assert said is not None
    total = sum(seconds.values())
    assert f"about {clock(total)} in all, {clock(on_gpu)} of GPU time" in said
    assert f"{total / 3600 * 12:.2f} at 12 an hour" in said
    assert "GPU" not in str(outlook(study(), make_plan(study(), PARAMETERS, HOST), tmp_path))
    for stage in plan.stages:
        write_json(tmp_path / stage.marker, {"digest": stage.digest, "seconds": 1.0})
    assert outlook(asked, plan, tmp_path) is None
