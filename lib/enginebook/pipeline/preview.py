"""What a study would do, before it starts: stages, time, cost, memory, and what cannot run here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginebook.engines.recipes import Recipe, recipe_for
from enginebook.engines.registry import adapter
from enginebook.errors import EnginebookError
from enginebook.lifecycle import fit, requirements
from enginebook.lifecycle.models import prepare_model
from enginebook.pipeline.estimate import Estimate, estimate
from enginebook.pipeline.plan import Plan
from enginebook.pipeline.state import states
from enginebook.pipeline.watch import clock
from enginebook.study import EngineSpec, ModelSpec, Study

S_PER_HOUR = 3600.0
BASIS = {
    "measured": "everything in it was measured here before",
    "scaled": "from what was measured here before",
    "usual": "a rough guess: nothing like it was measured here yet",
}


@dataclass(frozen=True)
class Preview:
    """What would happen.

    Attributes
    ----------
    estimates
        By stage; stages that are done have none.
    memory
        A sentence an engine: what it needs and what there is.
    obstacles
        By engine: why it cannot run here. Its stages would fail, and the others go on.
    gpu_seconds
        Seconds of stages with an engine on GPUs, times the GPUs that it takes.
    """

    stages: list[dict[str, Any]]
    estimates: Mapping[str, Estimate]
    memory: Mapping[str, str]
    obstacles: Mapping[str, str]
    hourly_price: float | None
    gpu_seconds: float

    @property
    def seconds(self) -> float:
        """Return the time in all."""
        return sum(e.seconds for e in self.estimates.values())

    @property
    def cost(self) -> float | None:
        """Return what the host costs meanwhile, in the currency of ``hourly_price``."""
        price = self.hourly_price
        return None if price is None else self.seconds / S_PER_HOUR * price

    def to_json(self) -> dict[str, Any]:
        """Return the preview as JSON values."""
        return {
            "stages": self.stages,
            "seconds": round(self.seconds, 1),
            "gpu_seconds": round(self.gpu_seconds, 1),
            "cost": self.cost,
            "memory": dict(self.memory),
            "cannot_run_here": dict(self.obstacles),
        }


def preview(study: Study, plan: Plan, outputs: Path) -> Preview:
    """Return what a run of this study would do; nothing is started or installed."""
    estimates = {e.stage: e for e in estimate(study, plan, outputs)}
    rows = []
    for state in states(plan, outputs):
        known = estimates.get(state.stage.name)
        rows.append(
            {
                "name": state.stage.name,
                "done": state.state == "done",
                "folder": state.stage.folder,
                "seconds": round(known.seconds, 1) if known else 0.0,
                "basis": known.basis if known else None,
            }
        )
    recipes = {e.name: recipe_for(e) for e in study.engines}
    return Preview(
        stages=rows,
        estimates=estimates,
        memory={e.name: _memory(e, recipes[e.name], study.model_of(e)) for e in study.engines},
        obstacles={n: why for n, r in recipes.items() if (why := _obstacle(r))},
        hourly_price=study.hourly_price,
        gpu_seconds=_gpu_seconds(plan, estimates, recipes),
    )


def _gpu_seconds(
    plan: Plan, estimates: Mapping[str, Estimate], recipes: Mapping[str, Recipe]
) -> float:
    total = 0.0
    for stage in plan.stages:
        recipe = recipes.get(str(stage.parameters.get("engine")))
        if stage.kind in {"launch", "load"} and recipe is not None and "cuda" in recipe.labels:
            devices = int(recipe.options.get("tensor_parallel") or 1)  # type: ignore[arg-type]
            total += devices * estimates[stage.name].seconds if stage.name in estimates else 0.0
    return total


def outlook(study: Study, plan: Plan, outputs: Path) -> str | None:
    """Return in one line how long a run will take and what it costs; None when all is done."""
    estimates = {e.stage: e for e in estimate(study, plan, outputs)}
    if not estimates:
        return None
    gpu = _gpu_seconds(plan, estimates, {e.name: recipe_for(e) for e in study.engines})
    return _in_all(sum(e.seconds for e in estimates.values()), gpu, study.hourly_price)


def _in_all(seconds: float, gpu_seconds: float, price: float | None) -> str:
    parts = [f"about {clock(seconds)} in all"]
    parts += [f"{clock(gpu_seconds)} of GPU time"] if gpu_seconds else []
    parts += [f"{seconds / S_PER_HOUR * price:.2f} at {price:g} an hour"] if price else []
    return ", ".join(parts)


def _obstacle(recipe: Recipe) -> str:
    found = requirements.obstacles(recipe.environment.requires)
    return "; ".join(f"{o.what} ({o.remedy})" for o in found)


def _memory(engine: EngineSpec, recipe: Recipe, model: ModelSpec) -> str:
    if model.name is not None or model.hub is not None:
        return "checked when the model is there"
    if recipe.environment.kind == "external":
        return "not ours to check: somebody else runs this server"
    on_gpu, share = "cuda" in recipe.labels, adapter(recipe.engine).memory_share
    try:
        files = prepare_model(model, recipe.model_format)
        fit.require_fit(files, recipe.options, on_gpu=on_gpu, who=engine.name, share=share)
        needed = fit.need(files, recipe.options, on_gpu=on_gpu)
        offered = fit.room(recipe.options, on_gpu=on_gpu, share=share)
    except EnginebookError as error:
        return f"DOES NOT FIT: {error.message}"
    if needed is None or offered is None:
        return "not known: no shape of the model, or no device to ask"
    return f"needs {needed}; there are {offered.bytes / fit.GIB:.1f} GiB {offered.what}"


def tell(found: Preview, run_id: str) -> None:
    """Print a preview for a person."""
    for row in found.stages:
        time = "done" if row["done"] else f"about {clock(row['seconds'])}"
        print(f"{row['name']:<28} {time}")
    for engine, sentence in found.memory.items():
        print(f"memory, {engine}: {sentence}")
    for engine, why in found.obstacles.items():
        print(f"{engine} cannot run here and would be left out: {why}")
    bases = sorted({e.basis for e in found.estimates.values()})
    print(f"run {run_id}: {_in_all(found.seconds, found.gpu_seconds, found.hourly_price)}")
    for basis in bases:
        names = [n for n, e in found.estimates.items() if e.basis == basis]
        print(f"  {len(names)} stages {BASIS[basis]}")
    print("nothing was started")
