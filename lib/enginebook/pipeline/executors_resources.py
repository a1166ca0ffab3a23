"""What a stage asks of the machine it runs on: GPUs, CPUs, memory, time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from enginebook.engines.recipes import Recipe, recipe_for
from enginebook.physics.models import canonical_model, model_table
from enginebook.pipeline.estimate import estimate
from enginebook.pipeline.plan import Plan, Stage
from enginebook.study import EngineSpec, Study

ENGINE_KINDS = frozenset({"install", "launch", "load"})
TIME_FACTOR = 3.0
"""Slack of an estimate: a job beyond its time is killed, one that ends early costs nothing."""
LEAST_MINUTES: Mapping[str, int] = {
    "host": 15,
    "install": 60,
    "launch": 30,
    "load": 30,
    "compare": 15,
    "claims": 15,
    "report": 15,
}
MEMORY_MB: Mapping[str, int] = {"gpu": 64_000, "cpu": 8_000, "none": 4_000}
"""Of the host: weights pass through it once on their way to a GPU."""
CPUS: Mapping[str, int] = {"gpu": 8, "cpu": 4, "none": 2}


@dataclass(frozen=True)
class Resources:
    """What one stage asks for; ``gpus`` on one machine, memory of the host in MB."""

    gpus: int = 0
    cpus: int = 1
    memory_mb: int = 4_000
    minutes: int = 30


def gpus_of(engine: EngineSpec) -> int:
    """Return how many GPUs an engine wants: those that share each layer, times those in a row."""
    recipe = recipe_for(engine)
    if "cuda" not in recipe.labels or is_external(engine):
        return 0
    return _number(recipe, "tensor_parallel") * _number(recipe, "pipeline_parallel")


def _number(recipe: Recipe, option: str) -> int:
    value = recipe.options.get(option)
    return int(value) if isinstance(value, int) and value > 0 else 1


def is_external(engine: EngineSpec) -> bool:
    """Return whether somebody else runs this engine's server; here is its client alone."""
    return recipe_for(engine).environment.kind == "external"


def device_of(engine: EngineSpec) -> str:
    """Return ``gpu``, ``cpu`` or, for simulated engines, ``none``: what is busy on this side."""
    labels = recipe_for(engine).labels
    if "simulated" in labels:
        return "none"
    return "gpu" if "cuda" in labels and not is_external(engine) else "cpu"


def resources_of(study: Study, plan: Plan, outputs: Path) -> dict[str, Resources]:
    """Return what each stage asks for, from how long such stages took here before."""
    seconds = {e.stage: e.seconds for e in estimate(study, plan, outputs)}
    return {s.name: stage_resources(study, s, seconds.get(s.name, 0.0)) for s in plan.stages}


def stage_resources(study: Study, stage: Stage, seconds: float) -> Resources:
    """Return what one stage asks for.

    Parameters
    ----------
    seconds
        How long it is expected to take.
    """
    minutes = max(LEAST_MINUTES[stage.kind], math.ceil(TIME_FACTOR * seconds / 60))
    if stage.kind in ENGINE_KINDS:
        engine = study.engine(str(stage.parameters["engine"]))
        device, gpus = device_of(engine), gpus_of(engine)
        return Resources(gpus, CPUS[device], _memory_mb(study, engine, device), minutes)
    if stage.kind == "host":
        gpus = max(map(gpus_of, study.engines))
        device = max((device_of(e) for e in study.engines), key=lambda d: CPUS[d])
        return Resources(gpus, CPUS[device], MEMORY_MB[device], minutes)
    return Resources(0, CPUS["none"], MEMORY_MB["none"], minutes)


def _memory_mb(study: Study, engine: EngineSpec, device: str) -> int:
    """Return the usual, or more where the model's weights (16 bit) are known to be larger."""
    model = study.model_of(engine)
    shape = model_table().get(canonical_model(model.label))
    weights_mb = int(shape.params * 2 / 1e6) if shape is not None and device != "none" else 0
    return MEMORY_MB[device] + weights_mb
