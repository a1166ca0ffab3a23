"""What a run looks like on disk right now: which stages are done, running, failed or waiting."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from enginebook.pipeline.plan import Plan, Stage
from enginebook.plain import neutral, shortened
from enginebook.store import read_json

MOST_SHOWN = 300  # characters of a stage's own progress
State = Literal["done", "running", "failed", "waiting"]


@dataclass(frozen=True)
class StageState:
    """One stage's state; seconds are its run time so far or in all, progress is free text.

    ``placement`` says on which machine it ran, see `executors_node.placement`.
    """

    stage: Stage
    state: State
    seconds: float | None = None
    progress: str = ""
    placement: dict[str, Any] | None = None


SILENT_S = 90.0
"""A stage on another machine that did not stir for so long is taken to be dead."""


def here() -> str:
    """Return this machine's name, as stages note it."""
    return socket.gethostname()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return None  # not there, or half-written by a machine that lost power
    return value if isinstance(value, dict) else None


def is_done(stage: Stage, outputs: Path) -> bool:
    """Return whether the stage's marker is there and whole."""
    facts = _read(outputs / stage.marker)
    return facts is not None and facts.get("digest") == stage.digest


def stage_state(stage: Stage, outputs: Path) -> StageState:
    """Return a stage's state as its folder tells it."""
    folder = outputs / stage.folder
    facts = _read(outputs / stage.marker)
    if facts is not None:
        return StageState(stage, "done", facts.get("seconds"), placement=facts.get("placement"))
    running = _read(folder / "running.json")
    if running is not None and _alive(running, folder / "running.json"):
        since = max(0.0, time.time() - running["started_unix"])  # of another process: wall clocks
        return StageState(stage, "running", since, _progress(folder))
    if (folder / "failure.json").is_file():
        return StageState(stage, "failed")
    return StageState(stage, "waiting")


def _alive(running: dict[str, Any], file: Path) -> bool:
    if running.get("host", here()) == here():
        return psutil.pid_exists(int(running["pid"]))
    try:
        return time.time() - file.stat().st_mtime < SILENT_S
    except OSError:
        return False


def _progress(folder: Path) -> str:
    told = _read(folder / "progress.json")
    if told is None:
        return ""
    count = f" {told['done']}/{told['total']}" if told.get("total") else ""
    return shortened(neutral(told.get("label", "")).replace("\n", " "), MOST_SHOWN) + count


def states(plan: Plan, outputs: Path) -> list[StageState]:
    """Return the state of every stage, in running order."""
    return [stage_state(stage, outputs) for stage in plan.stages]


def forget_outdated_markers(plan: Plan, outputs: Path) -> None:
    """Remove markers of stages that derive from a stage that is not there any more.

    What it derived from will be measured anew, so it must be derived anew; file times, by which
    Snakemake would see that, carry no meaning here.
    """
    there = {stage.name for stage in plan.stages if is_done(stage, outputs)}
    for stage in plan.stages:  # in running order: what is removed here counts for those after it
        if not stage.exclusive and not there.issuperset(stage.needs):
            there.discard(stage.name)
            (outputs / stage.marker).unlink(missing_ok=True)


def forget_broken_markers(plan: Plan, outputs: Path) -> list[str]:
    """Remove markers that are not whole (a full disk, a power cut); their stages run again."""
    broken = [
        stage
        for stage in plan.stages
        if (outputs / stage.marker).exists() and not is_done(stage, outputs)
    ]
    for stage in broken:
        (outputs / stage.marker).unlink()
    return [stage.name for stage in broken]
