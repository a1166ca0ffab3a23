"""A study through a real Slurm: end to end, with a job that is killed and one node that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(slurm_support.reason_against()), reason=slurm_support.reason_against()),
]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_support.slurm(tmp_path_factory.mktemp("slurm"), dead_after_s=10) as running:
        yield running


def start(root: Path, cluster: Cluster, *words: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*RUN, str(root / "params" / "mini.yaml"), *SLURM, "--json", str(root / "out.json"), *words],
        cwd=root, env={**os.environ, **cluster.env, **env}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


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
    lines = (root / "outputs" / "diary.txt").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith("start ")]


def job_of(cluster: Cluster, rule: str) -> str:
    """Return the id of a stage's job."""
    (number,) = (n for n, r in cluster.jobs().items() if r == f"rule_{rule}")
    return number


def begun(root: Path, stage: str, times: int = 1) -> bool:
    diary = root / "outputs" / "diary.txt"
    return diary.is_file() and started(root).count(stage) == times


def test_a_study_runs_as_jobs_and_a_cancelled_one_is_taken_again(
    checkout: Path, cluster: Cluster
) -> None:
    process = start(checkout, cluster, SLEEP_LOAD="15")
    wait_until(lambda: begun(checkout, "load-two-b0"), "no load stage began", LIMIT_S)
    cluster.ask("scancel", job_of(cluster, "load_two_b0"))
    outcome = finish(process, checkout)
    assert outcome["exit_status"] == 0, outcome["said"]
    names = started(checkout)
    assert names.count("load-two-b0") == 2
    assert {n: names.count(n) for n in set(names)} == dict.fromkeys(set(names), 1) | {
        "load-two-b0": 2
    }
    places = {s["name"]: s["placement"] for s in outcome["stages"]}
    assert all(p["job"] and p["node"] in {"n1", "n2"} for p in places.values())
    for block in (0, 1):
        if block == 1:  # in block 0 the second attempt may go anywhere
            assert len({places[f"load-{e}-b{block}"]["node"] for e in ("one", "two")}) == 1
    assert len({p["class"] for p in places.values()}) == 1
    assert not cluster.jobs()


def test_a_stage_that_fails_by_itself_is_not_taken_again(checkout: Path, cluster: Cluster) -> None:
    shrink(checkout, engines=[{"name": "one", "recipe": "fake"}], blocks=1)
    outcome = finish(start(checkout, cluster, FAIL="launch"), checkout)
    assert outcome["exit_status"] == 1
    assert "planted failure" in outcome["said"]
    assert started(checkout).count("launch-one") == 1
    assert "--executor slurm" in outcome["said"]


def test_a_node_that_dies_costs_its_stages_only(checkout: Path, cluster: Cluster) -> None:
    shrink(checkout, engines=[{"name": "one", "recipe": "fake"}])
    process = start(checkout, cluster, SLEEP_LOAD="20")
    wait_until(lambda: begun(checkout, "load-one-b1"), "no load stage began", LIMIT_S)
    assert "n2" in cluster.ask(
        "squeue", "--noheader", "--format=%N", "-j", job_of(cluster, "load_one_b1")
    )
    cluster.kill_node("n2")
    outcome = finish(process, checkout)
    assert outcome["exit_status"] == 0, outcome["said"]
    places = {s["name"]: s["placement"]["node"] for s in outcome["stages"]}
    assert places["load-one-b1"] == "n1"
    names = started(checkout)
    assert names.count("load-one-b1") == 2
    assert names.count("load-one-b0") == 1


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
    assert not (checkout / "outputs" / "diary.txt").exists()
    time.sleep(0)
