"""Results that meet in an object store, through Snakemake's storage plugins.

A stage's folder is named by all that its result depends on, so a store is one more place where
"it is there" means "it is done". A run with a store first fetches what the store has of its plan,
and keeps each stage there as soon as it is done: one archive a stage, with the load cells that the
stage measured. Any machine that plans the same study for the same class of node goes on from there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from enginebook.errors import EngineError, InputError
from enginebook.pipeline.plan import Plan, Stage
from enginebook.plain import neutral
from enginebook.store import read_json

FETCH = Path(__file__).with_name("Snakefile.fetch")
PLUGIN_OF = {"gs": "gcs", "az": "azure"}
"""Storage plugins whose name is not the scheme of their addresses."""
TIMEOUT_S = 4 * 3600.0
"""For all archives of a study together; a store that hangs must not hold the outputs for ever."""
LEFT_OUT = frozenset({"running.json", ".snakemake_timestamp"})


def check_store(url: str) -> str:
    """Return the address of a store without a slash at its end.

    Raises
    ------
    InputError
        When it is no address, or Snakemake's plugin for it is not installed.
    """
    parts = urlsplit(url)
    if not parts.scheme or not parts.netloc:
        raise InputError(
            f"--store {url}: not the address of an object store",
            "give one such as s3://bucket/prefix; for a folder use --output",
        )
    if parts.username or parts.password or parts.query:
        raise InputError(
            "--store: an address with a password or a query would stand in logs",
            "give keys by the plugin's variables, such as SNAKEMAKE_STORAGE_S3_SECRET_KEY",
        )
    plugin = PLUGIN_OF.get(parts.scheme, parts.scheme)
    if find_spec(f"snakemake_storage_plugin_{plugin}") is None:
        raise InputError(
            f"--store {url} needs Snakemake's storage plugin {plugin}, which is not installed",
            f"pip install snakemake-storage-plugin-{plugin} into this environment",
        )
    return url.rstrip("/")


def keepers(plan: Plan) -> list[str]:
    """Return the rules that keep a plan's stages in the store."""
    return [f"keep_{s.name.replace('-', '_').replace('.', '_')}" for s in plan.stages]


def fetch(plan: Plan, plan_file: Path, outputs: Path, store: str) -> list[str]:
    """Bring stages back that the store has and the outputs folder has not; return their names.

    Raises
    ------
    EngineError
        When the store cannot be reached or an archive is damaged.
    """
    before = {s.name for s in plan.stages if (outputs / s.marker).is_file()}
    words = ["--snakefile", str(FETCH), "--config", f"plan={plan_file}", f"store={store}"]
    _snakemake(words, outputs, store)
    return [s.name for s in plan.stages if s.name not in before and (outputs / s.marker).is_file()]


def keep(plan: Plan, plan_file: Path, outputs: Path, store: str) -> None:
    """Send the stages that are done and that the store has not, or has older.

    Raises
    ------
    EngineError
        When the store cannot be reached.
    """
    from enginebook.pipeline.snake import SNAKEFILE  # noqa: PLC0415 - it imports this module

    done = [
        rule
        for rule, s in zip(keepers(plan), plan.stages, strict=True)
        if (outputs / s.marker).is_file()
    ]
    if done:
        words = [*done, "--snakefile", str(SNAKEFILE), "--rerun-triggers", "mtime"]
        words += ["--config", f"plan={plan_file}", "exclusive=", f"store={store}"]
        _snakemake(words, outputs, store)


def _snakemake(words: Sequence[str], outputs: Path, store: str) -> None:
    base = [sys.executable, "-m", "snakemake", "--directory", str(outputs), "--cores", "1"]
    base += ["--nolock", "--nocolor", "--quiet", "host", "--rerun-incomplete"]
    try:
        done = subprocess.run(
            [*base, *words], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"the store {store} has not taken or given all within {TIMEOUT_S / 60:.0f} minutes",
            "look at the store, then start the run again: what is done here stays done",
        ) from error
    if done.returncode:
        raise EngineError(
            f"the store {store} cannot be used: {_reason(neutral(done.stderr))}",
            "check the address and the keys in the environment, then start the run again: what is "
            "done here stays done",
        )


def _reason(text: str) -> str:
    """Return what Snakemake gives as its first error, or its last words."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    at = next((n for n, line in enumerate(lines) if line.startswith("WorkflowError")), None)
    found = lines[-3:] if at is None else lines[at + 1 : at + 4]
    return " ".join(found)[:500]


def pack(plan: Plan, stage: Stage, outputs: Path, target: Path) -> None:
    """Write a stage's folder, and the load cells that it measured, into one archive."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w") as archive:
        for folder in (outputs / stage.folder, *_cells(plan, stage, outputs)):
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                if path.name not in LEFT_OUT:
                    archive.add(path, str(path.relative_to(outputs)), recursive=False)


def _cells(plan: Plan, stage: Stage, outputs: Path) -> Iterator[Path]:
    if stage.kind != "load":
        return
    from enginebook.pipeline.cells import all_cells, cell_folder  # noqa: PLC0415 - takes a second
    from enginebook.study import Study  # noqa: PLC0415

    study = Study.model_validate(plan.study)
    for engine, cell in all_cells(study):
        mine = (engine.name, cell.block) == (stage.parameters["engine"], stage.parameters["block"])
        folder = cell_folder(study, plan, outputs, cell=cell, engine=engine)
        if mine and folder.is_dir():
            yield folder


def unpack(file: Path, outputs: Path) -> None:
    """Put an archive's stage and load cells into their places, each as a whole.

    Raises
    ------
    InputError
        When the archive holds anything else, or no stage that is done.
    """
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=outputs) as scratch:
        with tarfile.open(file) as archive:
            archive.extractall(scratch, filter="data")
        found = [p.relative_to(scratch) for p in Path(scratch).glob("*/*")]
        stages = [p for p in found if p.parts[0] == "stages"]
        cells = [p for p in found if p.parts[0] == "cells"]
        if len(stages) != 1 or len(found) != 1 + len(cells) or not _whole(Path(scratch, stages[0])):
            raise InputError(f"{file.name} is no archive of one stage that is done", "remove it")
        for place in (*cells, *stages):  # the marker last
            _move(Path(scratch, place), outputs / place, again=place in stages)


def _whole(folder: Path) -> bool:
    marker = folder / "stage.json"
    return marker.is_file() and folder.name.endswith(str(read_json(marker).get("digest")))


def _move(source: Path, target: Path, *, again: bool) -> None:
    if target.exists():
        if not again:  # a cell that was measured here stays
            return
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


def main(argv: Sequence[str] | None = None) -> int:
    """Pack or unpack, as Snakemake's rules ask."""
    order, *words = argv if argv is not None else sys.argv[1:]
    if order == "unpack":
        unpack(Path(words[0]), Path(words[1]).resolve())
        return 0
    plan_file, outputs, name, target = words
    os.environ["ENGINEBOOK_PLAN"] = str(Path(plan_file).resolve())
    plan = Plan.read(Path(plan_file))
    pack(plan, plan.stage(name), Path(outputs).resolve(), Path(target).resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
