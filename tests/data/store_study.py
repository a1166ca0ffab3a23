"""Store a finished run as the study that the golden notebooks read: store_study.py RUN_FOLDER."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from enginebook.paths import params_dir
from enginebook.pipeline.plan import Plan
from enginebook.study_file import read_yaml

TARGET = Path(__file__).parent / "study"
RESULTS = {
    "host": "host.json",
    "install": "install.json",
    "launch": "launch.json",
    "load": "load.json",
}
FOLDERS = re.compile(r'"/[^"]*/(engines|models|launchers|stages|logs)/([^"]*)"')


def main() -> None:
    """Copy results and raw records, and replace the machine's own folders."""
    run = Path(sys.argv[1]).resolve()
    outputs = run.parent.parent
    plan = Plan.read(run / "plan.json")
    shutil.rmtree(TARGET, ignore_errors=True)
    for stage in plan.stages:
        if stage.kind in RESULTS:
            for name in (RESULTS[stage.kind], "stage.json"):
                copy(outputs / stage.folder / name, TARGET / "outputs" / stage.folder / name)
        elif stage.kind in {"compare", "claims"}:
            for file in (outputs / stage.folder / "data").iterdir():
                copy(file, TARGET / "outputs" / stage.folder / "data" / file.name)
    used = [
        json.loads((outputs / s.folder / "load.json").read_text()) for s in plan.of_kind("load")
    ]
    for cell in (c for load in used for c in load["cells"]):
        for file in (outputs / "cells" / cell).iterdir():
            copy(file, TARGET / "outputs" / "cells" / cell / file.name)
    store_model(outputs, plan)
    store_params(run, plan)
    copy(run / "plan.json", TARGET / "plan.json")


def copy(source: Path, target: Path) -> None:
    """Copy a file; in JSON, replace absolute folders of this machine."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".json":
        target.write_text(FOLDERS.sub(r'"/somewhere/\1/\2"', source.read_text()))
    else:
        shutil.copyfile(source, target)


def store_model(outputs: Path, plan: Plan) -> None:
    """Keep the model's config.json, from which physics takes the shape."""
    for stage in plan.of_kind("install"):
        facts = json.loads((outputs / stage.folder / "install.json").read_text())
        copy(
            Path(facts["model"]["tokenizer_dir"]) / "config.json",
            TARGET / "outputs/model/config.json",
        )
        stored = TARGET / "outputs" / stage.folder / "install.json"
        value = json.loads(stored.read_text())
        value["model"]["tokenizer_dir"] = "model"
        stored.write_text(json.dumps(value, indent=1))


def store_params(run: Path, plan: Plan) -> None:
    """Keep the study file and the recipes it names, so that later recipes leave digests alone."""
    (TARGET / "notebooks").mkdir(parents=True)
    (TARGET / "notebooks" / "README.md").write_text("The notebooks are the checkout's own.\n")
    (TARGET / "pyproject.toml").write_text("# marks this folder as a checkout\n")
    copy(run / "params.yaml", TARGET / "params" / "golden.yaml")
    copy(params_dir() / "models.yaml", TARGET / "params" / "models.yaml")
    for scenario in read_yaml(run / "params.yaml")["scenarios"]:
        name = f"{scenario}.yaml"
        copy(params_dir() / "scenarios" / name, TARGET / "params" / "scenarios" / name)
    for engine in plan.study["engines"]:
        recipe = f"{engine['recipe']}.yaml"
        copy(params_dir() / "engines" / recipe, TARGET / "params" / "engines" / recipe)
        environment = read_yaml(params_dir() / "engines" / recipe)["environment"]
        locks = [environment["lock"], (environment.get("torch") or {}).get("fallback_lock")]
        for lock in filter(None, locks):
            copy(params_dir() / "engines" / lock, TARGET / "params" / "engines" / lock)


if __name__ == "__main__":
    main()
