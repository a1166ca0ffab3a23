"""Run a study: check everything, hand the plan to Snakemake, watch, and tell the end."""

from __future__ import annotations

import contextlib
import errno
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from enginebook.engines.recipes import recipe_for
from enginebook.errors import (
    DONE,
    INTERRUPTED,
    MEASURED_FAILURE,
    EnginebookError,
    EngineError,
    InputError,
)
from enginebook.paths import project_root
from enginebook.pipeline.cells import forget_failed_cells
from enginebook.pipeline.checks import check_before_start
from enginebook.pipeline.damage import forget_damaged
from enginebook.pipeline.executors import Executor, Wishes, executor_of
from enginebook.pipeline.executors_resources import resources_of
from enginebook.pipeline.executors_store import fetch, keep
from enginebook.pipeline.lock import only_run
from enginebook.pipeline.manifest import finish_manifest, start_manifest
from enginebook.pipeline.plan import EXCLUSIVE, Plan, make_plan
from enginebook.pipeline.preview import preview, tell
from enginebook.pipeline.snake import Snake
from enginebook.pipeline.state import (
    forget_broken_markers,
    forget_outdated_markers,
    here,
    is_done,
    states,
)
from enginebook.pipeline.watch import Watch
from enginebook.plain import neutral
from enginebook.report.index import write_index
from enginebook.report.runs import render_run
from enginebook.store import read_json, write_json
from enginebook.study import Study
from enginebook.study_file import load_study

POLL_S = 0.25
STOP_GRACE_S = 45.0
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@dataclass(frozen=True)
class Prepared:
    """A study that passed all checks and can start."""

    params: Path
    study: Study
    plan: Plan
    outputs: Path
    executor: Executor
    host: dict[str, Any]
    wishes: Wishes = field(default_factory=Wishes)

    @property
    def run_folder(self) -> Path:
        """Return the run's folder."""
        return self.outputs / "runs" / self.plan.run_id

    @property
    def report(self) -> Path:
        """Return where the HTML report goes."""
        return self.outputs / "reports" / f"{self.plan.run_id}.html"

    @property
    def resume(self) -> str:
        """Return the command that goes on where this run stops."""
        usual = self.outputs == (project_root() / "outputs").resolve()
        words = ["enginebook", "run", str(self.params)]
        words += self.wishes.words(self.executor.name)
        return shlex.join(words if usual else [*words, "--output", str(self.outputs)])


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    exit_status: int
    run_id: str
    report: Path | None = None
    findings: list[str] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    preview: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {
            "exit_status": self.exit_status,
            "run": self.run_id,
            "report": str(self.report) if self.report else None,
            "findings": self.findings,
            "failures": self.failures,
            "stages": self.stages,
            "seconds": round(self.seconds, 1),
        } | ({"preview": self.preview} if self.preview else {})


def prepare(
    params: Path, outputs: Path, executor: str = "local", wishes: Wishes | None = None
) -> Prepared:
    """Read and check a study; nothing is started.

    Raises
    ------
    InputError
        Naming the file, the key and the remedy.
    """
    study, parameters = load_study(params)
    for engine in study.engines:
        try:
            recipe_for(engine)
        except InputError as error:
            where = f"{params}: key engines, engine {engine.name}: "
            raise InputError(where + error.message, error.remedy) from None
    wishes = wishes or Wishes()
    place = executor_of(executor, wishes, study, outputs)
    check_before_start(study, outputs, params)
    facts, identity = place.machine()
    plan = make_plan(study, parameters, identity)
    return Prepared(params, study, plan, outputs, place, facts, wishes)


def dry_run(prepared: Prepared) -> Outcome:
    """Print what would run, how long it takes and what cannot run here; start nothing."""
    found = preview(prepared.study, prepared.plan, prepared.outputs)
    tell(found, prepared.plan.run_id)
    warnings = prepared.executor.warnings()
    for warning in warnings:
        print(warning)
    told = found.to_json() | {"warnings": warnings}
    return Outcome(DONE, prepared.plan.run_id, stages=found.stages, preview=told)


def run(prepared: Prepared, *, retry_failed: bool = False) -> Outcome:
    """Run what is not done yet; print progress, then the report's path and the findings.

    A load cell that failed is a result and stays one; ``retry_failed`` takes it again.
    """
    started = time.monotonic()
    prepared.outputs.mkdir(parents=True, exist_ok=True)
    with _full_disks_told(prepared), only_run(prepared.outputs), _stop_on_signals():
        _write_run_folder(prepared)
        _forget_broken(prepared)
        if prepared.wishes.store:  # what is broken here may be whole there, and the other way
            _fetch(prepared)
            _forget_broken(prepared)
        if retry_failed:
            for label in forget_failed_cells(prepared.study, prepared.plan, prepared.outputs):
                print(f"{label}: failed before; it is taken again")
        forget_outdated_markers(prepared.plan, prepared.outputs)
        interrupted = _run_stages(prepared)
        if not interrupted:
            _report(prepared)
        outcome = _outcome(prepared, time.monotonic() - started, interrupted=interrupted)
        if not interrupted:
            outcome = _kept(prepared, outcome)
        finish_manifest(prepared.run_folder, outcome.to_json())
    _tell(prepared, outcome)
    return outcome


def _forget_broken(prepared: Prepared) -> None:
    for damage in forget_damaged(prepared.study, prepared.plan, prepared.outputs):
        print(neutral(damage))
    for name in forget_broken_markers(prepared.plan, prepared.outputs):
        print(f"{name}: its marker was damaged; the stage runs again")


def _fetch(prepared: Prepared) -> None:
    if store := prepared.wishes.store:
        plan_file = prepared.run_folder / "plan.json"
        for name in fetch(prepared.plan, plan_file, prepared.outputs, store):
            print(f"{name}: from {store}")


def _kept(prepared: Prepared, outcome: Outcome) -> Outcome:
    """Send what the store has not yet; the outcome says when that failed."""
    if store := prepared.wishes.store:
        try:
            keep(prepared.plan, prepared.run_folder / "plan.json", prepared.outputs, store)
        except EngineError as error:
            print(f"\n{error}", file=sys.stderr)
            return replace(outcome, exit_status=max(outcome.exit_status, MEASURED_FAILURE))
        except KeyboardInterrupt:
            return replace(outcome, exit_status=INTERRUPTED)
    return outcome


def _write_run_folder(prepared: Prepared) -> None:
    folder = prepared.run_folder
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", prepared.plan.to_json())
    shutil.copyfile(prepared.params, folder / "params.yaml")
    start_manifest(folder, prepared.study, prepared.plan, prepared.host)
    for stage in prepared.plan.stages:
        link = folder / stage.name
        target = Path("../..") / stage.folder
        if link.is_symlink() and link.readlink() != target:
            link.unlink()
        if not link.is_symlink():
            link.symlink_to(target)


def _run_stages(prepared: Prepared, plan_file: str = "plan.json") -> bool:
    """Return whether the run was interrupted."""
    if all(is_done(stage, prepared.outputs) for stage in prepared.plan.stages):
        return False
    watch = Watch(prepared.plan, prepared.outputs)
    for warning in prepared.executor.warnings():
        watch.note(warning)
    snake = Snake(
        plan=prepared.plan,
        plan_file=prepared.run_folder / plan_file,
        outputs=prepared.outputs,
        directory=prepared.run_folder / "snakemake",
        exclusive=exclusive_kinds(prepared.study),
        executor=prepared.executor,
        resources=resources_of(prepared.study, prepared.plan, prepared.outputs),
        store=prepared.wishes.store,
    )
    with watch, snake:
        try:
            while snake.running():
                watch.update()
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            watch.note("stopping: engines and notebooks are being ended ...")
            snake.stop(_running_pids(prepared), STOP_GRACE_S)
            return True
        watch.update()
    return False


def exclusive_kinds(study: Study) -> list[str]:
    """Return the kinds of stages that run alone; simulated engines measure nothing and share."""
    simulated = all("simulated" in recipe_for(e).labels for e in study.engines)
    return [] if simulated else sorted(EXCLUSIVE)


def _report(prepared: Prepared) -> None:
    """Render the report; of a study that failed in part, the report of what is left."""
    lost = {s.stage.name for s in states(prepared.plan, prepared.outputs) if s.state != "done"}
    if not lost:
        _render(prepared)
        return
    left = replace(prepared, plan=prepared.plan.without(lost))
    # figures of a host that was not examined are nobody's: no report without that stage
    if not left.plan.of_kind("load") or not left.plan.of_kind("host"):
        return
    write_json(prepared.run_folder / "partial.json", left.plan.to_json())
    start_manifest(prepared.run_folder, prepared.study, left.plan, prepared.host)
    if not _run_stages(left, "partial.json"):
        _render(left)


def _render(prepared: Prepared) -> None:
    """Render the report stage's notebook when it is done and newer than the HTML file."""
    stage, html = prepared.plan.stage("report"), prepared.report
    if not is_done(stage, prepared.outputs):
        return
    marker = prepared.outputs / stage.marker
    if html.is_file() and html.stat().st_mtime >= marker.stat().st_mtime:
        return
    render_run(prepared.run_folder)
    write_index(prepared.outputs, prepared.study.language)


def _running_pids(prepared: Prepared) -> list[int]:
    """Return the stages' processes on this machine; a pid of another means nothing here."""
    found = []
    for stage in prepared.plan.stages:
        with contextlib.suppress(OSError, ValueError, KeyError):
            running = read_json(prepared.outputs / stage.folder / "running.json")
            if running.get("host", here()) == here() and prepared.executor.name == "local":
                found.append(int(running["pid"]))
    return found


@contextlib.contextmanager
def _full_disks_told(prepared: Prepared) -> Iterator[None]:
    """Say what to do when the run's own records find no room; what was measured before stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise EnginebookError(
            f"{prepared.outputs} takes no more data: {error.strerror}",
            f"make room, then go on with: {prepared.resume}",
        ) from error


@contextlib.contextmanager
def _stop_on_signals() -> Any:
    """Treat SIGTERM like Ctrl-C, and accept Ctrl-C even when started with `&`."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _outcome(prepared: Prepared, seconds: float, *, interrupted: bool) -> Outcome:
    plan, outputs = prepared.plan, prepared.outputs
    found = states(plan, outputs)
    stages = [
        {"name": s.stage.name, "state": s.state, "seconds": s.seconds, "placement": s.placement}
        for s in found
    ]
    failures = [
        {"stage": s.stage.name, **read_json(outputs / s.stage.folder / "failure.json")}
        for s in found
        if s.state == "failed"
    ]
    complete = all(s.state == "done" for s in found)
    status = DONE if complete else INTERRUPTED if interrupted else MEASURED_FAILURE
    findings: list[str] = []
    report = plan.stage("report")
    if is_done(report, outputs):
        findings = list(read_json(outputs / report.folder / "findings.json")["findings"])
    return Outcome(
        exit_status=status,
        run_id=plan.run_id,
        report=prepared.report if not interrupted and prepared.report.is_file() else None,
        findings=findings,
        failures=failures,
        stages=stages,
        seconds=seconds,
    )


def _tell(prepared: Prepared, outcome: Outcome) -> None:
    if outcome.exit_status == DONE:
        print(f"\nreport: {outcome.report}")
        for sentence in outcome.findings:
            print(neutral(sentence))
        return
    for failure in outcome.failures:
        _tell_failure(failure)
    done = sum(s["state"] == "done" for s in outcome.stages)
    if outcome.report:
        print(f"\nreport of what is there: {outcome.report}")
    what = "stopped" if outcome.exit_status == INTERRUPTED else "failed"
    print(f"\n{what}: {done} of {len(outcome.stages)} stages are done and kept", file=sys.stderr)
    print(f"log: {prepared.run_folder / 'snakemake' / 'engine.log'}", file=sys.stderr)
    print(f"go on with: {prepared.resume}", file=sys.stderr)


def _tell_failure(failure: dict[str, Any]) -> None:
    cell = f" in cell {failure['cell']}" if failure.get("cell") else ""
    print(neutral(f"\n{failure['stage']} failed{cell}: {failure['error']}"), file=sys.stderr)
    if failure["engine_log"]:
        print("  the engine's last lines:", file=sys.stderr)
        for line in failure["engine_log"]:
            print(neutral(f"  | {line}"), file=sys.stderr)
    print(f"  notebook: {failure['notebook']}", file=sys.stderr)
