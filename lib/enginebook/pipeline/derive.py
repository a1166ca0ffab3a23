"""Comparison, claims and report of results that were measured elsewhere, or only in part.

A run's folder may be copied from a GPU host together with outputs/stages and outputs/cells; the
stages that derive run anywhere. What is not there is left out, and the report says so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from enginebook.errors import EnginebookError, InputError
from enginebook.pipeline.plan import Plan, Stage
from enginebook.pipeline.state import is_done
from enginebook.store import read_json, write_json
from enginebook.study_file import study_from_parameters

DERIVED = ("compare", "claims", "report")


def derive(run_folder: Path) -> Plan:
    """Run the deriving stages of a run over what is there; return the plan of what there is.

    Raises
    ------
    InputError
        When the folder holds no plan, or not one load stage is done.
    EnginebookError
        When a deriving stage fails.
    """
    plan_file = run_folder / "plan.json"
    if not plan_file.is_file():
        raise InputError(f"{run_folder} holds no plan.json", "copy the whole run folder")
    outputs = run_folder.parent.parent
    whole = Plan.read(plan_file)
    lost = {s.name for s in whole.stages if s.exclusive and not is_done(s, outputs)}
    plan = whole.without(lost)
    if not plan.of_kind("load"):
        raise InputError(
            f"no load stage of {run_folder.name} is done in {outputs}",
            "copy outputs/stages and outputs/cells of the host that measured, too",
        )
    part = run_folder / "partial.json"
    write_json(part, plan.to_json())
    _describe(run_folder, plan)
    for name in DERIVED:
        _run(part, outputs, plan.stage(name))
    return plan


def _run(plan_file: Path, outputs: Path, stage: Stage) -> None:
    argv = [sys.executable, "-m", "enginebook.pipeline.stage", str(plan_file), str(outputs)]
    done = subprocess.run([*argv, stage.name], check=False)
    if done.returncode or not is_done(stage, outputs):
        raise EnginebookError(
            f"stage {stage.name} failed", f"look at {outputs / stage.folder / 'notebook.ipynb'}"
        )


def _describe(run_folder: Path, plan: Plan) -> None:
    """Let the manifest name the folders of the plan of what there is."""
    from enginebook.pipeline.manifest import describe  # noqa: PLC0415 - it asks git

    study = study_from_parameters(plan.parameters, str(run_folder))
    path = run_folder / "manifest.json"
    before = read_json(path) if path.is_file() else {}
    places = ("stages", "data", "claims", "host_file", "report")
    now = describe(study, plan)
    kept = {**now, **before} | {name: now[name] for name in places}
    write_json(path, kept | {"derived_with": now["versions"]})
