"""Studies and loads through a real Slurm: jobs that are killed, a node that dies, runs that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import slurm_support
import yaml
from slurm_support import Cluster, wait_until

from enginebook.errors import INTERRUPTED
from enginebook.load import Target, Workload
from enginebook.load.reference import reference_server
from enginebook.load.remote import Hosts, run_remote
from enginebook.load.remote_wire import SECRET_VARIABLE
from enginebook.metrics import summarise
from enginebook.paths import params_dir
from enginebook.store import read_json

LIMIT_S = 600
RUN = [sys.executable, "-m", "enginebook.cli", "run"]
SLURM = ["--executor", "slurm", "--cluster", "poll_s=1", "--cluster", "memory_mb=500",
         "--cluster", "cpus=1"]  # fmt: skip
DEPLOY = Path(__file__).parents[2] / "deploy" / "slurm"
SMOKE: dict[str, Any] = {
    "study": "smoke_slurm",
    "engines": [{"name": "sim-a", "recipe": "simulated"}],
    "scenarios": [
        {"use": "throughput", "concurrency": [1], "input_tokens": 32, "output_tokens": 8,
         "requests_per_stream": 4, "min_requests": 4, "warmup_per_stream": 1, "precision": None},
        {"use": "online_slo_cpu", "rate": 10, "seconds": 8, "min_requests": 10,
         "max_seconds": 12, "search": False},
    ],
}  # fmt: skip
"""The smoke study with one engine, and a second cell that lasts until its job is killed."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(slurm_support.reason_against()), reason=slurm_support.reason_against()),
]


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_support.slurm(tmp_path_factory.mktemp("slurm"), dead_after_s=6) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    shared_cluster.mend()
    yield shared_cluster
    shared_cluster.cancel_all()


class Run:
    """One ``enginebook run`` as a process of its own."""

    def __init__(self, cluster: Cluster, folder: Path, params: Path) -> None:
        self._cluster, self._folder, self._params = cluster, folder, params
        self.outputs = folder / "outputs"
        self.process: subprocess.Popen[str] | None = None

    def start(self, *words: str, **env: str) -> None:
        result = ["--output", str(self.outputs), "--json", str(self._folder / "out.json")]
        self.process = subprocess.Popen(
            [*RUN, str(self._params), *SLURM, *result, *words],
            cwd=self._folder, env={**os.environ, **self._cluster.env, **env},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self) -> dict[str, Any]:
        assert self.process is not None
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert (self._folder / "out.json").is_file(), out + err
        logs = "\n".join(p.read_text() for p in self.outputs.glob("runs/*/snakemake/engine.log"))
        outcome = read_json(self._folder / "out.json")
        return {**outcome, "said": out + err + logs}

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()  # its guard ends what it started
            self.process.communicate()


@pytest.fixture
def mini(checkout: Path, cluster: Cluster) -> Iterator[Run]:
    """The miniature study, one engine and one block, whose notebooks fail or sleep as told."""
    file = checkout / "params" / "mini.yaml"
    engines = [{"name": "one", "recipe": "fake"}]
    file.write_text(
        yaml.safe_dump(yaml.safe_load(file.read_text()) | {"engines": engines, "blocks": 1})
    )
    run = Run(cluster, checkout, file)
    yield run
    run.kill()


@pytest.fixture
def smoke(tmp_path: Path, cluster: Cluster) -> Iterator[Run]:
    """The smoke study with the product's own notebooks."""
    file = tmp_path / "smoke.yaml"
    study = yaml.safe_load((params_dir() / "smoke.yaml").read_text()) | SMOKE
    file.write_text(yaml.safe_dump(study))
    run = Run(cluster, tmp_path, file)
    yield run
    run.kill()


def started(run: Run) -> list[str]:
    diary = run.outputs / "diary.txt"
    lines = diary.read_text().splitlines() if diary.is_file() else []
    return [line.split()[1] for line in lines if line.startswith("start ")]


def job_of(cluster: Cluster, rule: str) -> str:
    """Return the id of a stage's job."""
    (number,) = (n for n, r in cluster.jobs().items() if r == f"rule_{rule}")
    return number


def cells_of(run: Run, block: int) -> dict[Path, int]:
    """Return the load cells of a block that are there, and when they were written."""
    found = {p: p.stat().st_mtime_ns for p in run.outputs.glob("cells/*/cell.json")}
    return {p: at for p, at in found.items() if read_json(p)["cell"]["block"] == block}


def test_the_smoke_study_with_a_cancelled_job_and_a_dead_node(smoke: Run, cluster: Cluster) -> None:
    before, kept, nodes = cluster.taken(), {}, []
    smoke.start()
    # Block 0 is measured on the first node, block 1 on the second, at the same time.
    both = ["load-sim-a-b0", "load-sim-a-b1"]
    wait_until(lambda: cells_of(smoke, 0), "no cell was measured on n1", LIMIT_S)
    kept |= cells_of(smoke, 0)
    job = job_of(cluster, "load_sim_a_b0")
    nodes.append(cluster.node_of(job))
    cluster.ask("scancel", job)
    wait_until(lambda: cells_of(smoke, 1), "no cell was measured on n2", LIMIT_S)
    kept |= cells_of(smoke, 1)
    nodes.append(cluster.node_of(job_of(cluster, "load_sim_a_b1")))
    cluster.kill_node("n2")
    outcome = smoke.finish()
    assert nodes == ["n1", "n2"]
    assert outcome["exit_status"] == 0, outcome["said"]
    # Exactly these two are taken again, and of them what was measured before is kept.
    stages = {s["name"]: s["placement"] for s in outcome["stages"]}
    jobs = cluster.taken() - before
    assert {name: jobs[name.replace("-", "_")] for name in stages} == {
        name: 2 if name in both else 1 for name in stages
    }
    cells = cells_of(smoke, 0) | cells_of(smoke, 1)
    assert kept.items() <= cells.items()
    assert len(cells) == 2 * len(SMOKE["scenarios"])
    assert stages["load-sim-a-b1"]["node"] == "n1"
    assert len({p["job"] for p in stages.values()}) == len(stages)
    assert len({p["class"] for p in stages.values()}) == 1
    manifest = read_json(smoke.outputs / "runs" / outcome["run"] / "manifest.json")
    assert {s["name"]: s["placement"] for s in manifest["outcome"]["stages"]} == stages
    assert manifest["host_id"] == stages["host"]["class"]
    assert Path(outcome["report"]).is_file()
    assert not cluster.jobs()


def assert_all_is_over(run: Run, cluster: Cluster, family: list[psutil.Process]) -> None:
    wait_until(lambda: not cluster.jobs(), f"jobs are left: {cluster.jobs()}", 60)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_a_stage_that_fails_is_not_measured_again_and_ctrl_c_ends_the_others(
    mini: Run, cluster: Cluster
) -> None:
    before = cluster.taken()
    mini.start("--cluster", "retries=1", FAIL="install", SLEEP_HOST="600")
    # The second job finds the failure that the first one left, and refuses.
    again = "install-one failed in the attempt before"
    logs = mini.outputs / ".snakemake" / "slurm_logs" / "rule_install_one"
    wait_until(lambda: any(again in p.read_text() for p in logs.glob("*.log")), again, LIMIT_S)
    wait_until(lambda: "host" in started(mini), "no other stage began", LIMIT_S)
    family = [p for p in psutil.process_iter() if ours(p, mini.outputs.parent)]
    assert len(family) > 4
    assert mini.process is not None
    mini.process.send_signal(signal.SIGINT)
    outcome = mini.finish()
    assert_all_is_over(mini, cluster, family)
    assert outcome["exit_status"] == INTERRUPTED
    assert started(mini).count("install-one") == 1
    assert (cluster.taken() - before)["install_one"] == 2
    assert "planted failure" in outcome["said"]
    assert "--executor slurm" in outcome["said"]


def test_jobs_end_with_a_run_that_is_killed(mini: Run, cluster: Cluster) -> None:
    mini.start(SLEEP_HOST="600")
    wait_until(lambda: "host" in started(mini), "no stage began", LIMIT_S)
    family = [p for p in psutil.process_iter() if ours(p, mini.outputs.parent)]
    assert len(family) > 4
    mini.kill()
    assert_all_is_over(mini, cluster, family)


def ours(process: psutil.Process, root: Path) -> bool:
    try:
        return any(str(root) in word for word in process.cmdline())
    except psutil.Error:
        return False


def test_a_node_of_another_class_is_refused(mini: Run, cluster: Cluster) -> None:
    mini.start("--host-id", "0123456789ab", "--cluster", "retries=0")
    outcome = mini.finish()
    assert outcome["exit_status"] == 1
    logs = "\n".join(p.read_text() for p in mini.outputs.glob(".snakemake/slurm_logs/**/*.log"))
    assert "the study's figures are of class 0123456789ab" in logs + outcome["said"]
    assert not any(n.split("-")[0] in {"host", "install"} for n in started(mini))


def test_load_workers_come_as_slurm_jobs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "a secret of this test alone")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    jobs: list[str] = []

    def submit(here: str) -> None:
        size = ["--nodes=2", "--cpus-per-task=1", "--mem=500", f"--output={tmp_path / 'said'}"]
        jobs.append(
            cluster.ask(
                "sbatch", "--parsable", *size, str(DEPLOY / "load_workers.sbatch"), here
            ).strip()
        )

    hosts = Hosts(listen=("127.0.0.1", 0), count=2, on_listen=submit)
    workload = Workload(concurrency=4, requests=24, input_tokens=16, output_tokens=8, seed=5)
    with reference_server(ttft_ms=10.0, itl_ms=2.0) as server:
        target = Target(server.base_url, "reference")
        records = run_remote(target, workload, hosts, os.environ[SECRET_VARIABLE].encode())
    assert summarise(records)["requests"] == {"completed": 24, "failed": 0, "cancelled": 0}
    found = records.instrument["hosts"]
    assert len(found) == 2
    assert not any(h["lost"] for h in found)
    assert all(h["clock"]["bound_us"] < 100_000 for h in found)
    where = ["squeue", "-h", "--states=all", "--format=%T %N", "-j", jobs[0]]
    wait_until(lambda: cluster.ask(*where).strip() == "COMPLETED n[1-2]", (tmp_path / "said").name)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_over_hosts_is_started_once_a_host(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str
) -> None:
    """The engine is a program that tells its words; no host here has GPUs."""
    program = tmp_path / {"vllm": "vllm", "sglang": "python"}[engine]
    program.write_text(f'#!/bin/sh\necho "$*" > "{tmp_path}/words-$SLURM_NODEID"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    size = [
        "--gpus-per-node=0",
        "--mem=100",
        "--time=1",
        "--chdir=/",
        f"--output={tmp_path / 'said'}",
    ]
    script = str(DEPLOY / "engine_over_hosts.sbatch")
    cluster.ask("sbatch", "--wait", *size, script, engine, "some/model", "--seed", "1")
    first, second = [(tmp_path / f"words-{n}").read_text().split() for n in (0, 1)]
    for rank, words in enumerate((first, second)):
        assert words[words.index("--node-rank") + 1] == str(rank)
        assert words[words.index("--nnodes") + 1] == "2"
        assert words[words.index("--seed") + 1] == "1"
    assert ("--headless" in second) == (engine == "vllm")
    assert "--headless" not in first
