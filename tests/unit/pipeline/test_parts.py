"""The small parts of the pipeline: lock, markers, progress, the table of stages, the engine."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from rich.console import Console

from enginebook.errors import InputError
from enginebook.pipeline.engine import TruthfulEngine
from enginebook.pipeline.lock import only_run
from enginebook.pipeline.plan import Plan, Stage
from enginebook.pipeline.progress import Progress
from enginebook.pipeline.state import forget_broken_markers, is_done, stage_state, states
from enginebook.pipeline.watch import Watch, clock
from enginebook.store import write_json


def a_plan() -> Plan:
    stages = (
        Stage("host", "host", "aaa"),
        Stage("load-x-b0", "load", "bbb", {"engine": "x", "block": 0}, ("host",), 1),
        Stage("load-y-b0", "load", "ddd", {"engine": "y", "block": 0}, ("host",), 2),
        Stage("compare", "compare", "ccc", {}, ("host", "load-x-b0", "load-y-b0"), 3),
        Stage("report", "report", "eee", {}, ("compare",), 4),
    )
    return Plan("mini-1", {}, {}, "host-a", stages)


def test_the_lock_is_for_one_and_is_dropped_with_its_holder(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from enginebook.pipeline.lock import only_run\n"
        f"with only_run(pathlib.Path({str(tmp_path)!r})):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(InputError, match=f"process {holder.pid}"), only_run(tmp_path):
            pass
        holder.kill()
    with only_run(tmp_path):
        assert (tmp_path / ".run.lock").read_text() == str(os.getpid())


def test_a_half_written_marker_is_not_done_and_is_forgotten(tmp_path: Path) -> None:
    plan = a_plan()
    host, load = plan.stages[0], plan.stages[1]
    write_json(tmp_path / host.marker, {"digest": "aaa", "seconds": 3})
    (tmp_path / load.folder).mkdir(parents=True)
    (tmp_path / load.marker).write_text('{"digest": "bb')
    assert is_done(host, tmp_path)
    assert not is_done(load, tmp_path)
    assert forget_broken_markers(plan, tmp_path) == ["load-x-b0"]
    assert not (tmp_path / load.marker).exists()


def test_states_are_read_from_the_folders(tmp_path: Path) -> None:
    host, load, other, *_ = a_plan().stages
    write_json(tmp_path / host.marker, {"digest": "aaa", "seconds": 3})
    write_json(tmp_path / load.folder / "running.json", {"pid": os.getpid(), "started_unix": 0})
    write_json(tmp_path / load.folder / "progress.json", {"label": "c=4", "done": 1, "total": 7})
    write_json(tmp_path / other.folder / "failure.json", {"error": "x"})
    found = {s.stage.name: s for s in states(a_plan(), tmp_path)}
    assert [found[n].state for n in ("host", "load-x-b0", "load-y-b0", "compare")] == [
        *("done", "running", "failed", "waiting")
    ]
    assert found["load-x-b0"].progress == "c=4 1/7"
    # What a killed machine left behind says "running" of a process that is gone.
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    write_json(tmp_path / load.folder / "running.json", {"pid": gone.pid, "started_unix": 0})
    assert stage_state(load, tmp_path).state == "waiting"


def test_a_plan_without_lost_stages_has_digests_of_its_own() -> None:
    whole = a_plan()
    part = whole.without({"load-y-b0", "compare", "report"})
    assert [s.name for s in part.stages] == ["host", "load-x-b0", "compare", "report"]
    assert part.stage("compare").needs == ("host", "load-x-b0")
    assert part.stage("load-x-b0").digest == "bbb"
    assert part.stage("compare").digest != "ccc"
    assert part.stage("report").digest != "eee"
    other = whole.without({"load-x-b0", "compare", "report"})
    assert other.stage("report").digest != part.stage("report").digest


def test_the_table_shows_states_and_takes_logs_for_text(tmp_path: Path) -> None:
    _, load, *_ = a_plan().stages
    write_json(tmp_path / load.folder / "running.json", {"pid": os.getpid(), "started_unix": 0})
    label = "[red]not markup[/red] [bold"
    write_json(tmp_path / load.folder / "progress.json", {"label": label, "done": 1, "total": 2})
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with Watch(a_plan(), tmp_path, console) as watch:
        watch.update()
        watch.note("stopping [x]")
    assert "[red]not markup[/red]" in out.getvalue()
    assert "0/5 stages" in out.getvalue()
    assert "stopping [x]" in out.getvalue()


def test_without_a_terminal_a_line_is_printed_per_change(tmp_path: Path) -> None:
    host = a_plan().stages[0]
    out = io.StringIO()
    with Watch(a_plan(), tmp_path, Console(file=out, width=120)) as watch:
        watch.update()
        write_json(tmp_path / host.marker, {"digest": "aaa", "seconds": 63})
        watch.update()
        watch.update()
    lines = out.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("host  done  1:03")


def test_clock() -> None:
    assert [clock(s) for s in (None, 0, 59.9, 61, 3600)] == ["", "0:00", "0:59", "1:01", "60:00"]


def test_progress_writes_what_the_batch_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = tmp_path / "progress.json"
    monkeypatch.setenv("ENGINEBOOK_PROGRESS", str(follow))
    progress = Progress("cells", 3)
    progress.update(done=1)
    assert json.loads(follow.read_text()) == {"label": "cells", "done": 1, "total": 3}
    progress.update(done=2)  # within the same second: not worth a message
    assert json.loads(follow.read_text())["done"] == 1
    progress.update(done=3)
    assert json.loads(follow.read_text())["done"] == 3
    bundle = Progress("<b>&", 2)._repr_mimebundle_()
    assert "&lt;b&gt;&amp;" in bundle["text/html"]
    assert 'max="2"' in bundle["text/html"]


@pytest.mark.parametrize(
    ("source", "failure"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "DeadKernelError"),
        ("import time; time.sleep(60)", "CellTimeoutError"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_notebook_never_claims_to_have_completed_when_it_did_not(
    tmp_path: Path, source: str, failure: str
) -> None:
    notebook = new_notebook(cells=[new_code_cell("1"), new_code_cell(source), new_code_cell("2")])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "in.ipynb")
    papermill.engines.papermill_engines.register("enginebook", TruthfulEngine)
    with pytest.raises(Exception, match=r".*"):
        papermill.execute_notebook(
            tmp_path / "in.ipynb", tmp_path / "out.ipynb", engine_name="enginebook",
            kernel_name="python3", language="python", progress_bar=False, execution_timeout=5,
        )  # fmt: skip
    saved: Any = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert saved.metadata.papermill["exception"] is True
    ours = [c for c in saved.cells if c.source in {"1", source, "2"}]
    status = [c.metadata.papermill["status"] for c in ours]
    assert status == ["completed", "failed", "pending"]
    assert failure in json.dumps(saved)
