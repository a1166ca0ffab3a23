"""How long a study will take on this host, before it starts: from what was measured here before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from enginebook.cells import Cell
from enginebook.engines.recipes import recipe_for
from enginebook.pipeline.plan import Plan, Stage, cell_digest
from enginebook.pipeline.state import stage_state
from enginebook.store import read_json
from enginebook.study import EngineSpec, Study

USUAL_S: Mapping[str, float] = {
    "host": 25.0,
    "install": 5.0,
    "launch": 60.0,
    "compare": 20.0,
    "claims": 10.0,
    "report": 30.0,
}
"""Where nothing was measured here yet."""
USUAL_START_S = 60.0
USUAL_TOKEN_S: Mapping[str, float] = {"gpu": 0.006, "cpu": 0.03}
"""A token of one stream alone: an 8B model on a large GPU, a 135M model on two CPU cores."""
GAIN_OF_STREAMS: Mapping[str, float] = {"gpu": 0.85, "cpu": 0.5}
"""N streams do N to this power as much as one; 1 would mean that a stream costs nothing."""
OVERHEAD_S = 2.0
"""Prompts made, processes started, records written."""
PROMPT_TOKEN_COST = 1 / 8
"""Work of a prompt token in units of an answer token: prefill runs many at once."""


@dataclass(frozen=True)
class Estimate:
    """Seconds a stage will take; ``basis`` says how well that is known.

    ``measured``: this stage or these cells ran here; ``scaled``: from other cells of this engine;
    ``usual``: from nothing better than what is usual.
    """

    stage: str
    seconds: float
    basis: str


def estimate(study: Study, plan: Plan, outputs: Path) -> list[Estimate]:
    """Return an estimate for each stage that would run; stages that are done take no time."""
    memory = _Memory(study, plan, outputs)
    return [memory.stage(s) for s in plan.stages if stage_state(s, outputs).state != "done"]


class _Memory:
    """What this host's outputs folder remembers of earlier runs."""

    def __init__(self, study: Study, plan: Plan, outputs: Path) -> None:
        self.study, self.plan, self.outputs = study, plan, outputs
        self._scales: dict[str, float | None] = {}
        self._facts = [f for f in _cell_facts(outputs) if f.get("host_id") == plan.host_id]

    def stage(self, stage: Stage) -> Estimate:
        if stage.kind == "load":
            return self._load(stage)
        seconds = [f["seconds"] for f in self._earlier(stage)]
        if seconds:
            return Estimate(stage.name, median(seconds), "scaled")
        return Estimate(stage.name, USUAL_S[stage.kind], "usual")

    def _earlier(self, stage: Stage) -> Iterable[dict[str, Any]]:
        stem = stage.name if stage.kind in {"install", "launch"} else stage.kind
        for marker in self.outputs.glob(f"stages/{stem}-*/stage.json"):
            facts = _read(marker)
            if facts.get("seconds"):
                yield facts

    def _load(self, stage: Stage) -> Estimate:
        engine = self.study.engine(str(stage.parameters["engine"]))
        cells = self.study.cells(engine.name, int(stage.parameters["block"]))
        left = [c for c in cells if not (self._folder(c, engine) / "cell.json").is_file()]
        if not left:
            return Estimate(stage.name, 2.0, "measured")
        scale = self._scale(engine)
        start = self._start_s(engine)
        if scale is None:
            usual = USUAL_TOKEN_S[_device(engine)]
            return Estimate(stage.name, start + self._sum(left, usual, engine), "usual")
        return Estimate(stage.name, start + self._sum(left, scale, engine), "scaled")

    def _sum(self, cells: list[Cell], scale: float, engine: EngineSpec) -> float:
        return sum(expected_s(c, scale * work_of(c, _device(engine))) for c in cells)

    def _folder(self, cell: Cell, engine: EngineSpec) -> Path:
        model = self.study.model_of(engine)
        return self.outputs / "cells" / cell_digest(cell, engine, model, self.plan.host_id)

    def _start_s(self, engine: EngineSpec) -> float:
        found = [
            _read(p).get("server") or {}
            for p in self.outputs.glob(f"stages/launch-{engine.name}-*/launch.json")
        ]
        ready = [s["ready_s"] for s in found if s.get("ready_s")]
        return median(ready) if ready else USUAL_START_S

    def _scale(self, engine: EngineSpec) -> float | None:
        """Return seconds for a unit of work, by the cells of this engine's recipe."""
        if engine.recipe not in self._scales:
            ratios = []
            for facts in self._facts:
                if facts["recipe"] == engine.recipe and facts["status"] == "ok":
                    cell = Cell.model_validate(facts["cell"])
                    if not cell.rate and not cell.trace:
                        ratios.append(facts["seconds"] / work_of(cell, _device(engine)))
            self._scales[engine.recipe] = median(ratios) if ratios else None
        return self._scales[engine.recipe]


def _device(engine: EngineSpec) -> str:
    return "gpu" if "cuda" in recipe_for(engine).labels else "cpu"


def work_of(cell: Cell, device: str) -> float:
    """Return a cell's work in units of one answer token of a stream alone."""
    requests = cell.requests + cell.warmup_requests
    tokens = cell.input_tokens * PROMPT_TOKEN_COST + cell.output_tokens
    gain: float = max(1, cell.concurrency) ** GAIN_OF_STREAMS[device]
    return requests * tokens / gain


def expected_s(cell: Cell, closed_loop_s: float) -> float:
    """Return how long a cell will take; arrivals take as long as they are spread over."""
    if cell.search:
        return cell.max_seconds
    if cell.rate:
        return min(cell.max_seconds, cell.requests / cell.rate + OVERHEAD_S)
    return min(cell.max_seconds, closed_loop_s + OVERHEAD_S)


def _cell_facts(outputs: Path) -> list[dict[str, Any]]:
    found = [_read(p) for p in outputs.glob("cells/*/cell.json")]
    return [f for f in found if isinstance(f.get("cell"), dict) and f.get("status")]


def _read(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
