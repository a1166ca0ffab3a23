"""The run's manifest: all that another machine needs to take the study again, and what came out."""

from __future__ import annotations

import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from enginebook.engines.recipes import recipe_for
from enginebook.paths import params_dir, project_root
from enginebook.pipeline.plan import INSTRUMENT_VERSION, Plan, source_digest
from enginebook.store import read_json, sha256_of_file, write_json
from enginebook.study import EngineSpec, ModelSpec, Study
from enginebook.study_file import read_yaml

PACKAGES = ("enginebook", "papermill", "nbclient", "polars", "altair", "snakemake", "scipy")


def start_manifest(folder: Path, study: Study, plan: Plan, host: dict[str, Any]) -> None:
    """Write manifest.json as known at the start; times of earlier starts are kept."""
    path = folder / "manifest.json"
    before = _before(path)
    write_json(
        path,
        describe(study, plan)
        | {
            "params_sha256": sha256_of_file(folder / "params.yaml"),
            "host": host,
            "starts_unix": [*before.get("starts_unix", []), time.time()],
            "outcome": before.get("outcome"),
        },
    )


def _before(path: Path) -> dict[str, Any]:
    """Return the manifest of earlier starts; one that was cut off tells nothing any more."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def describe(study: Study, plan: Plan) -> dict[str, Any]:
    """Return what a study is made of: recipes and locks, model, versions, places of results."""
    return {
        "schema": 1,
        "run": plan.run_id,
        "study": study.model_dump(),
        "host_id": plan.host_id,
        "engines": {e.name: _engine(e, study) for e in study.engines},
        "model": _model(study.model),
        "instrument_version": INSTRUMENT_VERSION,
        "source_digest": source_digest(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        "git": git_state(),
        "stages": {s.name: s.folder for s in plan.stages},
        "data": f"../../{plan.stage('compare').folder}/data",
        "claims": f"../../{plan.stage('claims').folder}/data",
        "host_file": f"../../{plan.stage('host').folder}/host.json",
        "report": {
            "notebook": f"../../{plan.stage('report').folder}/notebook.ipynb",
            "html": f"../../reports/{plan.run_id}.html",
        },
    }


def finish_manifest(folder: Path, outcome: dict[str, Any]) -> None:
    """Add how the run ended."""
    path = folder / "manifest.json"
    write_json(path, read_json(path) | {"outcome": outcome, "ended_unix": time.time()})


def _engine(engine: EngineSpec, study: Study) -> dict[str, Any]:
    recipe = recipe_for(engine)
    locks = [p for p in (recipe.lock_path, recipe.torch_lock_path) if p is not None]
    return {
        "title": recipe.title,
        "version": recipe.version,
        "arm": engine.arm or recipe.arm,
        "model": _model(study.model_of(engine)),
        "recipe": recipe.model_dump(mode="json", exclude={"directory"}),
        "locks_sha256": {p.name: sha256_of_file(p) for p in locks},
    }


def _model(model: ModelSpec) -> dict[str, Any]:
    spec = model.model_dump(exclude_none=True)
    if model.name is None:
        return spec
    known = read_yaml(params_dir() / "models.yaml")
    return spec | dict(known.get("models", known)[model.name])


def git_state() -> dict[str, Any]:
    """Return the checkout's commit and whether it has changes; nulls outside a git checkout."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain")
    return {"commit": commit, "changed": None if changes is None else bool(changes)}


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=project_root(),
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
