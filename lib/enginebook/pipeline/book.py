"""What a notebook holds in its hand: its study, its stage's folder, and the stages before it.

``book = begin("launch", globals())`` is the set-up cell of every notebook. It reads the study from
the notebook's own variables, so that a notebook behaves the same in JupyterLab, under plain
papermill and in a batch run; all three meet in the same content-addressed folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginebook.engines.recipes import Recipe, recipe_for
from enginebook.errors import EnginebookError, InputError
from enginebook.lifecycle.host import host_facts, host_id
from enginebook.paths import default_outputs_dir
from enginebook.pipeline.manifest import describe
from enginebook.pipeline.plan import Plan, Stage, cell_digest, make_plan
from enginebook.pipeline.state import is_done
from enginebook.store import read_json, write_json
from enginebook.study import Cell, EngineSpec, ModelSpec, Study
from enginebook.study_file import closest, study_from_parameters


@dataclass(frozen=True)
class Book:
    """A notebook's view of its study."""

    study: Study
    plan: Plan
    stage: Stage
    outputs: Path

    @property
    def folder(self) -> Path:
        """Return this stage's own folder."""
        return self.outputs / self.stage.folder

    @property
    def engine(self) -> EngineSpec:
        """Return the engine this notebook works on."""
        return self.study.engine(str(self.stage.parameters["engine"]))

    @property
    def block(self) -> int:
        """Return the block this notebook measures."""
        return int(self.stage.parameters["block"])

    @property
    def model(self) -> ModelSpec:
        """Return the model that this notebook's engine serves."""
        return self.study.model_of(self.engine)

    @property
    def recipe(self) -> Recipe:
        """Return the engine's recipe with the study's changes over it."""
        return recipe_for(self.engine)

    def cells(self) -> list[Cell]:
        """Return the load cells of this notebook's engine and block."""
        return self.study.cells(self.engine.name, self.block)

    def cell_folder(self, cell: Cell, engine: EngineSpec) -> Path:
        """Return the place of one measured cell; equal cells of other studies share it."""
        digest = cell_digest(cell, engine, self.study.model_of(engine), self.plan.host_id)
        return self.outputs / "cells" / digest

    def once(self, name: str, measure: Callable[[], Any], *, again: bool = False) -> Any:
        """Return the stored result ``name``, measuring and storing it when it is not there.

        Parameters
        ----------
        name
            File in this stage's folder.
        measure
            Returns the result as JSON values.
        again
            Measure even if a result is there, and replace it.
        """
        path = self.folder / name
        if again or not path.is_file():
            write_json(path, measure())
        return read_json(path)

    def result(self, stage: Stage, name: str) -> Any | None:
        """Return a JSON result of another stage, or None when it is not there."""
        path = self.outputs / stage.folder / name
        return read_json(path) if path.is_file() else None

    def results(self, kind: str, name: str) -> dict[str, Any]:
        """Return a JSON result of all stages of one kind, by stage name."""
        found = {s.name: self.result(s, name) for s in self.plan.of_kind(kind)}
        return {stage: value for stage, value in found.items() if value is not None}

    def manifest(self) -> dict[str, Any]:
        """Return what the study is made of, as the run's manifest holds it."""
        return describe(self.study, self.plan)

    def stage_failures(self) -> list[dict[str, Any]]:
        """Return why stages of this run failed, in a batch run that goes on without them."""
        run = self.outputs / "runs" / self.plan.run_id
        if not (run / "plan.json").is_file():
            return []
        found = []
        for stage in Plan.read(run / "plan.json").stages:
            failure = self.outputs / stage.folder / "failure.json"
            if failure.is_file() and not is_done(stage, self.outputs):
                found.append({"stage": stage, **read_json(failure)})
        return found

    def missing(self) -> list[str]:
        """Return the stages before this one that have not been run to their end."""
        before = [self.plan.stage(name) for name in self.stage.needs]
        return [s.name for s in before if not is_done(s, self.outputs)]


def begin(kind: str, variables: Mapping[str, Any], *, outputs: Path | None = None) -> Book:
    """Return the book of a notebook.

    Parameters
    ----------
    kind
        ``host``, ``install``, ``launch``, ``load``, ``compare``, ``claims`` or ``report``.
    variables
        The notebook's ``globals()``; its parameters cell names the study's keys, and where they
        apply ``engine`` and ``block``.

    Raises
    ------
    InputError
        When a parameter is wrong; nothing was started.
    """
    parameters = {name: variables[name] for name in Study.model_fields if name in variables}
    study = study_from_parameters(parameters, f"{kind} notebook")
    for engine in study.engines:
        recipe_for(engine)
    plan = _plan_of_batch() or make_plan(study, parameters, host_id(host_facts()))
    stage = _stage_of(kind, plan, study, variables)
    book = Book(study, plan, stage, (outputs or default_outputs_dir()).resolve())
    book.folder.mkdir(parents=True, exist_ok=True)
    _prepare_display()
    return book


def _plan_of_batch() -> Plan | None:
    """Return the plan of the batch run that this notebook belongs to, if it belongs to one.

    The plan is made once a run: a source file that changes meanwhile must not send half of the
    stages to other folders.
    """
    given = os.environ.get("ENGINEBOOK_PLAN")
    return Plan.read(Path(given)) if given else None


def _stage_of(kind: str, plan: Plan, study: Study, variables: Mapping[str, Any]) -> Stage:
    name = kind
    if kind in {"install", "launch", "load"}:
        engine = str(variables.get("engine"))
        names = [e.name for e in study.engines]
        if engine not in names:
            raise InputError(f"{kind} notebook: no engine {engine!r}", closest(engine, names))
        name = f"{kind}-{engine}"
    if kind == "load":
        block = variables.get("block", 0)
        if not isinstance(block, int) or not 0 <= block < study.blocks:
            raise InputError(
                f"load notebook: no block {block!r}", f"blocks: 0 to {study.blocks - 1}"
            )
        name = f"{name}-b{block}"
    try:
        return plan.stage(name)
    except StopIteration:
        raise EnginebookError(f"the plan has no stage {name}") from None


def _prepare_display() -> None:
    """Let charts be drawn offline everywhere, and tables be as wide as they are."""
    from enginebook.report import renderer  # noqa: PLC0415 (notebooks only; batch tools skip it)

    renderer.enable()
