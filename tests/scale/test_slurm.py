"""A study through a real Slurm: end to end, with a job that is killed and one node that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import slurm_support
import yaml
from slurm_support import Cluster, wait_until

from enginebook.pipeline.executors_slurm import prefix_of

LIMIT_S = 900
RUN = [sys.executable, "-m", "enginebook.cli", "run"]
SLURM = ["--executor", "slurm", "--cluster", "poll_s=2", "--cluster", "memory_mb=500",
         "--cluster", "cpus=1"]  # fmt: skip
RUNS: list[subprocess.Popen[str]] = []

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(slurm_support.reason_against()), reason=slurm_support.reason_against()),
]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_support.slurm(tmp_path_factory.mktemp("slurm"), dead_after_s=10) as running:
        yield running


@pytest.fixture(autouse=True)
def started_runs() -> Iterator[list[subprocess.Popen[str]]]:
    yield RUNS
    for process in RUNS:
        if process.poll() is None:
            process.kill()  # its guard ends what it started
            process.communicate()
    RUNS.clear()


def start(root: Path, cluster: Cluster, *words: str, **env: str) -> subprocess.Popen[str]:
    argv = [*RUN, str(root / "params" / "mini.yaml"), *SLURM, "--json", str(root / "out.json")]
    process = subprocess.Popen(
        [*argv, *words],
        cwd=root, env={**os.environ, **cluster.env, **env}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    RUNS.append(process)
    return process


def finish(process: subprocess.Popen[str], root: Path) -> dict[str, Any]:
    out, err = process.communicate(timeout=LIMIT_S)
    assert (root / "out.json").is_file(), out + err
    log = "\n".join(p.read_text() for p in root.glob("outputs/runs/*/snakemake/engine.log"))
    return {**json.loads((root / "out.json").read_text()), "said": out + err + log}


def shrink(root: Path, **changes: Any) -> None:
    file = root / "params" / "mini.yaml"
    study = yaml.safe_load(file.read_text()) | changes
    file.write_text(yaml.safe_dump(study))


def started(root: Path) -> list[str]:
    diary = root / "outputs" / "diary.txt"
    lines = diary.read_text().splitlines() if diary.is_file() else []
    return [line.split()[1] for line in lines if line.startswith("start ")]


def job_of(cluster: Cluster, rule: str) -> str:
    """Return the id of a stage's job."""
    (number,) = (n for n, r in cluster.jobs().items() if r == f"rule_{rule}")
    return number


def begun(root: Path, stage: str, times: int = 1) -> bool:
    diary = root / "outputs" / "diary.txt"
    return diary.is_file() and started(root).count(stage) == times


def test_a_cancelled_job_and_a_dead_node_cost_their_stages_only(
    checkout: Path, cluster: Cluster
) -> None:
    process = start(checkout, cluster, SLEEP_LOAD="15")
    # Block 0 is measured on the first node, block 1 on the second.
    wait_until(lambda: begun(checkout, "load-two-b0"), "block 0 did not begin", LIMIT_S)
    cluster.ask("scancel", job_of(cluster, "load_two_b0"))
    wait_until(lambda: begun(checkout, "load-one-b1"), "block 1 did not begin", LIMIT_S)
    where = ["squeue", "--noheader", "--format=%N", "-j", job_of(cluster, "load_one_b1")]
    assert cluster.ask(*where).strip() == "n2"
    lost = {f"load-{e}-b1" for e in ("one", "two")} & set(started(checkout))
    cluster.kill_node("n2")
    outcome = finish(process, checkout)
    assert outcome["exit_status"] == 0, outcome["said"]
    again = {n for n, times in Counter(started(checkout)).items() if times > 1}
    assert "load-two-b0" in again
    assert "load-one-b1" in again
    assert again <= {"load-two-b0", *lost}
    places = {s["name"]: s["placement"] for s in outcome["stages"]}
    assert places["load-one-b1"]["node"] == "n1"
    assert len({p["job"] for p in places.values()}) == len(places)
    assert len({p["class"] for p in places.values()}) == 1
    manifest = json.loads(
        (checkout / "outputs" / "runs" / outcome["run"] / "manifest.json").read_text()
    )
    assert {s["name"]: s["placement"] for s in manifest["outcome"]["stages"]} == places
    assert manifest["host_id"] == places["host"]["class"]
    assert not cluster.jobs()


def test_a_stage_that_fails_by_itself_is_not_taken_again(checkout: Path, cluster: Cluster) -> None:
    shrink(checkout, engines=[{"name": "one", "recipe": "fake"}], blocks=1)
    outcome = finish(start(checkout, cluster, FAIL="launch"), checkout)
    assert outcome["exit_status"] == 1
    assert "planted failure" in outcome["said"]
    assert started(checkout).count("launch-one") == 1
    assert "--executor slurm" in outcome["said"]


@pytest.mark.parametrize("how", ["ctrl-c", "kill -9"])
def test_jobs_end_with_their_run(checkout: Path, cluster: Cluster, how: str) -> None:
    shrink(checkout, engines=[{"name": "one", "recipe": "fake"}], blocks=1)
    process = start(checkout, cluster, SLEEP_HOST="600")
    wait_until(lambda: begun(checkout, "host"), "no stage began", LIMIT_S)
    family = [p for p in psutil.process_iter() if ours(p, checkout)]
    assert len(family) > 4
    process.send_signal(2 if how == "ctrl-c" else 9)
    process.communicate(timeout=120)
    wait_until(lambda: not cluster.jobs(), f"jobs are left: {cluster.jobs()}", 60)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    prefix = prefix_of(checkout / "outputs")
    assert prefix.startswith("enginebook-")


def ours(process: psutil.Process, root: Path) -> bool:
    try:
        return any(str(root) in word for word in process.cmdline())
    except psutil.Error:
        return False


def test_a_node_of_another_class_is_refused(checkout: Path, cluster: Cluster) -> None:
    shrink(checkout, engines=[{"name": "one", "recipe": "fake"}], blocks=1)
    outcome = finish(start(checkout, cluster, "--host-id", "0123456789ab"), checkout)
    assert outcome["exit_status"] == 1
    logs = "\n".join(p.read_text() for p in checkout.glob("outputs/.snakemake/slurm_logs/**/*.log"))
    assert "the study's figures are of class 0123456789ab" in logs + outcome["said"]
    assert not any(n.split("-")[0] in {"host", "install"} for n in started(checkout))
