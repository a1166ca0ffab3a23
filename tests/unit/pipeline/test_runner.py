"""A whole run on miniature notebooks: order, resume, failure, Ctrl-C, two runs at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

RUN = [sys.executable, "-m", "enginebook.cli", "run"]
STAGES = 12
LIMIT_S = 180


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}


def run(root: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, str(root / "params" / "mini.yaml"), *words],
        cwd=root, env=environment(**env), capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip


def diary(root: Path) -> list[list[str]]:
    lines = (root / "outputs" / "diary.txt").read_text().splitlines()
    return [line.split() for line in lines]


def started(root: Path) -> list[str]:
    return [name for what, name, _ in diary(root) if what == "start"]


def shrink(root: Path) -> None:
    """Leave one engine and one block: seven stages."""
    change(root, engines=[{"name": "one", "recipe": "fake"}], blocks=1)


def change(root: Path, **changes: Any) -> None:
    file = root / "params" / "mini.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changes))


def outcome(root: Path, *words: str, **env: str) -> dict[str, Any]:
    done = run(root, "--json", str(root / "out.json"), *words, **env)
    assert (root / "out.json").is_file(), done.stderr
    return {**json.loads((root / "out.json").read_text()), "said": done.stdout + done.stderr}


def test_a_study_runs_in_order_is_found_done_and_reruns_only_what_changed(checkout: Path) -> None:
    first = outcome(checkout)
    assert first["exit_status"] == 0, first["said"]
    assert "One." in first["said"]
    assert first["findings"] == ["One.", "Two.", "Three."]
    names = started(checkout)
    assert len(names) == STAGES
    loads = [n for n in names if n.startswith("load")]
    assert loads == ["load-one-b0", "load-two-b0", "load-two-b1", "load-one-b1"]
    assert names[-3:] == ["compare", "claims", "report"]
    assert_measured_alone(checkout)
    assert_run_folder(checkout, first["run"])

    again = outcome(checkout)
    assert again["exit_status"] == 0
    assert len(started(checkout)) == STAGES

    change(checkout, margin=0.1)
    assert outcome(checkout)["exit_status"] == 0
    assert started(checkout)[STAGES:] == ["compare", "claims", "report"]


def assert_measured_alone(root: Path) -> None:
    inside = 0
    for what, name, _ in diary(root):
        if name.split("-")[0] in {"host", "install", "launch", "load"}:
            inside += 1 if what == "start" else -1
            assert inside <= 1, diary(root)


def assert_run_folder(root: Path, run_id: str) -> None:
    folder = root / "outputs" / "runs" / run_id
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["outcome"]["exit_status"] == 0
    assert manifest["study"]["study"] == "mini"
    assert (folder / "load-one-b0" / "notebook.ipynb").is_file()
    assert not Path(manifest["report"]["html"]).is_absolute()


def test_a_dry_run_starts_nothing(checkout: Path) -> None:
    done = run(checkout, "--dry-run")
    assert done.returncode == 0
    assert done.stdout.count("about ") == STAGES + 1  # each stage, and all together
    assert "nothing was started" in done.stdout
    assert not (checkout / "outputs" / "stages").exists()


def test_a_failed_stage_is_told_with_the_engines_words_and_the_rest_is_kept(checkout: Path) -> None:
    shrink(checkout)
    failed = outcome(checkout, FAIL="launch")
    assert failed["exit_status"] == 1
    assert "planted failure" in failed["said"]
    assert "out of memory" in failed["said"]
    assert f"go on with: enginebook run {checkout}/params/mini.yaml" in failed["said"]
    assert {f["stage"] for f in failed["failures"]} == {"launch-one"}
    notebook = json.loads(Path(failed["failures"][0]["notebook"]).read_text())
    assert notebook["metadata"]["papermill"]["exception"] is True

    assert outcome(checkout)["exit_status"] == 0
    assert started(checkout).count("host") == 1


def test_a_notebook_that_leaves_nothing_has_failed(checkout: Path) -> None:
    shrink(checkout)
    failed = outcome(checkout, EMPTY="compare")
    assert failed["exit_status"] == 1
    assert "left no data/cells.parquet" in failed["said"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_no_process_and_says_how_to_go_on(
    checkout: Path, number: signal.Signals
) -> None:
    shrink(checkout)
    process = subprocess.Popen(
        [*RUN, str(checkout / "params" / "mini.yaml")],
        cwd=checkout, env=environment(SLEEP_INSTALL="300"), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    family = wait_for(process, checkout, "install-one")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with: enginebook run" in errors
    assert "1 of 7 stages are done and kept" in errors
    assert_gone(family)
    assert outcome(checkout)["exit_status"] == 0
    assert started(checkout).count("host") == 1


def test_kill_9_of_the_run_ends_everything_below_it(checkout: Path) -> None:
    shrink(checkout)
    process = subprocess.Popen(
        [*RUN, str(checkout / "params" / "mini.yaml")],
        cwd=checkout, env=environment(SLEEP_HOST="300"), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    family = wait_for(process, checkout, "host")
    process.kill()
    process.wait()
    assert_gone(family)


def test_two_runs_at_once_on_one_folder_are_refused(checkout: Path) -> None:
    first = subprocess.Popen(
        [*RUN, str(checkout / "params" / "mini.yaml")],
        cwd=checkout, env=environment(SLEEP_HOST="300"), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(first, checkout, "host")
    second = run(checkout)
    first.send_signal(signal.SIGINT)
    first.wait(timeout=60)
    assert second.returncode == 2
    assert f"another run (process {first.pid})" in second.stderr


def wait_for(process: subprocess.Popen[Any], root: Path, stage: str) -> list[psutil.Process]:
    """Wait until a stage's notebook runs; return the run's whole process tree."""
    diary_file = root / "outputs" / "diary.txt"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if diary_file.is_file() and f"start {stage}" in diary_file.read_text():
            return [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError(f"{stage} did not start")


def assert_gone(family: list[psutil.Process]) -> None:
    assert len(family) > 4  # the run, its guards, Snakemake, the stage, the kernel
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_bad_parameters_exit_2_before_anything_starts(checkout: Path) -> None:
    change(checkout, blocks=-1)
    done = run(checkout)
    assert done.returncode == 2
    assert "mini.yaml: key blocks" in done.stderr
    assert not (checkout / "outputs" / "stages").exists()


def test_one_failed_engine_leaves_a_report_of_the_other(checkout: Path) -> None:
    launch = checkout / "notebooks" / "20_launch.ipynb"
    planted = "== kind:\\n"
    text = launch.read_text()
    assert planted in text
    launch.write_text(text.replace(planted, '== kind and engine == \\"two\\":\\n', 1))
    partial = outcome(checkout, FAIL="launch")
    assert partial["exit_status"] == 1
    assert "report of what is there" in partial["said"]
    assert Path(partial["report"]).is_file()
    done = {s["name"] for s in partial["stages"] if s["state"] == "done"}
    assert {"launch-one", "load-one-b0", "load-one-b1"} <= done
    assert "compare" not in done

    whole = outcome(checkout)
    assert whole["exit_status"] == 0
    assert started(checkout).count("load-one-b0") == 1
    assert started(checkout).count("compare") == 2
