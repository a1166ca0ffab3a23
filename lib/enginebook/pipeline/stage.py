"""Run one stage: its notebook through papermill, in a process of its own.

``python -m enginebook.pipeline.stage PLAN OUTPUTS NAME`` is what Snakemake calls. The marker
stage.json is written last, atomically, and only when the notebook ran to its end and left the
files that its kind promises; so a stage is either done or not.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import papermill as pm
from traitlets.config import Config

from enginebook.errors import EnginebookError
from enginebook.lifecycle.logpump import tail
from enginebook.masking import environment_mask
from enginebook.paths import notebooks_dir
from enginebook.pipeline.executors_node import placement
from enginebook.pipeline.executors_stage import own_machine, refuse_known_failure, signs_of_life
from enginebook.pipeline.moment import Moment
from enginebook.pipeline.parameters import check_parameters
from enginebook.pipeline.plan import NOTEBOOK_OF, PROMISED, Plan, Stage
from enginebook.pipeline.state import here
from enginebook.plain import neutral
from enginebook.store import write_json


def main(argv: list[str] | None = None) -> int:
    """Run the stage named on the command line; return its exit status."""
    plan_file, outputs, name, *attempt = argv if argv is not None else sys.argv[1:]
    os.environ["ENGINEBOOK_PLAN"] = str(Path(plan_file).resolve())
    plan = Plan.read(Path(plan_file))
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGINT, _exit_on_signal)
    try:
        stage, folder = plan.stage(name), Path(outputs).resolve()
        if attempt not in ([], ["1"]):
            refuse_known_failure(stage, folder)
        with own_machine(plan, stage, folder):
            run_stage(plan, stage, folder)
    except EnginebookError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    # An exception, not an end: papermill must shut its kernel down and save the notebook.
    sys.exit(128 + number)


def run_stage(plan: Plan, stage: Stage, outputs: Path) -> None:
    """Execute a stage's notebook into its folder and write the marker.

    Raises
    ------
    EnginebookError
        When a cell failed or a promised file is missing; failure.json then holds the cell, the
        error and the engine's last log lines.
    """
    folder = outputs / stage.folder
    folder.mkdir(parents=True, exist_ok=True)
    for old in ("failure.json", "progress.json"):
        (folder / old).unlink(missing_ok=True)
    started = Moment()
    where = {"host": here(), "place": placement()}
    running = {"pid": os.getpid(), "started_unix": started.unix_s} | where
    write_json(folder / "running.json", running)
    try:
        with signs_of_life(folder / "running.json"):
            _execute(plan, stage, outputs, folder)
        _check_promises(stage, folder)
    except Exception as error:  # a stop (SystemExit) is no failure of the stage
        write_json(folder / "failure.json", _failure(folder, error))
        raise
    finally:
        (folder / "running.json").unlink(missing_ok=True)
    seconds = round(started.seconds(), 2)
    facts = {"started_unix": started.unix_s, "seconds": seconds, "digest": stage.digest}
    facts |= {"placement": placement()}
    write_json(folder / "stage.json", facts | {"name": stage.name, "kind": stage.kind})


def _execute(plan: Plan, stage: Stage, outputs: Path, folder: Path) -> None:
    source = notebooks_dir() / NOTEBOOK_OF[stage.kind]
    parameters = {**plan.parameters, **stage.parameters}
    check_parameters(source, parameters)
    log = _MaskedLog(folder / "notebook.log")
    with log, _kernel_environment(outputs, folder) as runtime:
        pm.execute_notebook(
            _literal(source),
            _literal(folder / "notebook.ipynb"),
            parameters=parameters,
            kernel_name="python3",
            language="python",
            engine_name="enginebook",
            cwd=notebooks_dir(),
            progress_bar=False,
            stdout_file=log,
            stderr_file=log,
            request_save_on_cell_execute=True,
            # IPC: no port that another kernel could take, and no warning about plain TCP. The
            # sockets' path must be given: by default they lie in the working folder.
            config=Config({"KernelManager": {"transport": "ipc", "ip": str(runtime / "k")}}),
        )


def _literal(path: Path) -> str:
    """Return a path as papermill takes it: braces in it would be filled with parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


class _MaskedLog(io.TextIOWrapper):
    """A log of what cells print, without the secrets of the environment."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.open("ab"), encoding="utf-8", errors="replace")
        self._mask = environment_mask()

    def write(self, text: str) -> int:
        return super().write(self._mask.text(text))


@contextlib.contextmanager
def _kernel_environment(outputs: Path, folder: Path) -> Iterator[Path]:
    """Give the kernel its outputs folder, a progress file, and a runtime folder, which is yielded.

    The runtime folder's path is short: Unix sockets allow about 100 characters, which a deep home
    folder would exceed.
    """
    runtime = tempfile.mkdtemp(prefix="eb-")
    added = {
        "ENGINEBOOK_OUTPUTS": str(outputs),
        "ENGINEBOOK_PROGRESS": str(folder / "progress.json"),
        "ENGINEBOOK_STAGE_FOLDER": str(folder),
        "JUPYTER_RUNTIME_DIR": runtime,
        "IPYTHONDIR": str(Path(runtime) / "ipython"),
        "PYTHONHASHSEED": "0",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield Path(runtime)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(runtime, ignore_errors=True)


def _check_promises(stage: Stage, folder: Path) -> None:
    missing = [name for name in PROMISED[stage.kind] if not (folder / name).is_file()]
    if missing:
        raise EnginebookError(
            f"{stage.name}: the notebook ran to its end but left no {', '.join(missing)}",
            f"open {folder / 'notebook.ipynb'} and run its cells in order",
        )


def _failure(folder: Path, error: BaseException) -> dict[str, Any]:
    cell = getattr(error, "exec_count", None)
    name, value = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", error)
    text = neutral(f"{name}: {value}")
    return {
        "cell": cell,
        "source": neutral(getattr(error, "source", ""))[:2000],
        "error": text[:4000],
        "engine_log": _last_engine_lines(folder),
        "notebook": str(folder / "notebook.ipynb"),
    }


def _last_engine_lines(folder: Path, count: int = 20) -> list[str]:
    logs = sorted(folder.rglob("*engine*.log"), key=lambda p: p.stat().st_mtime)
    if not logs:
        return []
    return tail(logs[-1], count)


if __name__ == "__main__":
    sys.exit(main())
