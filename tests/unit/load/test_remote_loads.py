"""Loads that two worker hosts on loopback make together."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from load_workers import ENGINEBOOK, SECRET, Workers

from enginebook.errors import LoadError
from enginebook.load import Target, Workload, run_load
from enginebook.load.reference import RunningReference, reference_server
from enginebook.load.remote import Hosts, run_remote
from enginebook.load.remote_wire import SECRET_VARIABLE
from enginebook.metrics import summarise

WORKLOAD = Workload(
    concurrency=6, requests=36, warmup_requests=4, input_tokens=16, output_tokens=8, seed=3
)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningReference]:
    with reference_server(ttft_ms=20.0, itl_ms=5.0) as running:
        yield running


def remote(server: RunningReference, places: list[tuple[str, int]], **changes: Any) -> Any:
    target = Target(server.base_url, "reference")
    return run_remote(target, WORKLOAD.but(**changes), Hosts(places=tuple(places)), SECRET.encode())


def test_two_hosts_send_what_one_would_send(server: RunningReference, workers: Workers) -> None:
    places = [workers.start("--processes", "1"), workers.start("--processes", "2")]
    server.truth()
    records = remote(server, places)
    truth = {int(k): v for k, v in server.truth()["requests"].items() if int(k) >= 0}
    alone = run_load(Target(server.base_url, "reference"), WORKLOAD.but(processes=3))

    one, many = alone.requests, records.requests
    columns = ["request", "phase", "worker", "input_asked", "output_asked", "status"]
    assert many.select(columns).equals(one.select(columns))
    assert many.filter(many["status"] != "completed").is_empty()
    assert records.instrument["processes"] == 3
    assert set(records.instrument) - {"hosts"} == set(alone.instrument)
    assert [h["processes"] for h in records.instrument["hosts"]] == [1, 2]
    assert summarise(records)["instrument"]["client_cpu_s"] > 0
    # Same clock here, so every stamp may be held against the server's own.
    bound_ns = max(h["clock"]["bound_us"] for h in records.instrument["hosts"]) * 1e3
    measured = many.filter(many["phase"] == "measured")
    late = [
        row["first_byte_ns"] - truth[row["request"]]["sent"][0]
        for row in measured.iter_rows(named=True)
    ]
    assert min(late) >= -bound_ns


def test_an_open_loop_keeps_its_schedule_over_hosts(
    server: RunningReference, workers: Workers
) -> None:
    places = [workers.start(), workers.start()]
    records = remote(server, places, concurrency=None, rate=40.0, arrival="constant", requests=40)
    scheduled = records.requests.filter(records.requests["phase"] == "measured")["scheduled_ns"]
    gaps_ms = np.diff(np.sort(scheduled.to_numpy())) / 1e6
    bound_ms = sum(h["clock"]["bound_us"] for h in records.instrument["hosts"]) / 1e3
    # One schedule: arrivals of both hosts are evenly apart, to the clocks' bounds.
    assert np.abs(gaps_ms - 25.0).max() <= bound_ms + 0.001


def test_a_run_ends_when_enough_is_known(server: RunningReference, workers: Workers) -> None:
    rule = {"half_width": 0.5, "min_requests": 12, "min_seconds": 0.5}
    places = [workers.start(), workers.start()]
    records = remote(server, places, requests=4000, precision=rule, max_seconds=60)
    assert records.instrument["stopped_by"] == "precision"
    assert records.instrument["precision"]["met"]
    assert 12 <= len(records.requests) < 4000


def test_a_host_that_dies_costs_its_part(server: RunningReference, workers: Workers) -> None:
    places = [workers.start(), workers.start()]
    victim = workers.processes[1]
    family: list[psutil.Process] = []

    def kill_one(progress: Any) -> None:
        if progress.done >= 4 and not family:
            family.extend(psutil.Process(victim.pid).children(recursive=True))
            victim.kill()

    records = run_remote(
        Target(server.base_url, "reference"), WORKLOAD.but(requests=120),
        Hosts(places=tuple(places)), SECRET.encode(), on_progress=kill_one,
    )  # fmt: skip
    measured = records.requests.filter(records.requests["phase"] == "measured")
    assert measured["request"].to_list() == list(range(120))
    lost = measured.filter(measured["error_kind"] == "worker_lost")
    assert len(lost) == 60
    assert set(lost["worker"]) == {1}
    assert set(measured.filter(measured["worker"] == 0)["status"]) == {"completed"}
    assert [bool(h["lost"]) for h in records.instrument["hosts"]] == [False, True]
    summary = summarise(records)
    assert summary["requests"] == {"completed": 60, "failed": 60, "cancelled": 0}
    assert summary["errors"][0]["kind"] == "worker_lost"
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_all_hosts_lost_is_an_error(server: RunningReference, workers: Workers) -> None:
    places = [workers.start()]

    def kill(progress: Any) -> None:
        workers.processes[0].kill()

    with pytest.raises(LoadError, match="all load workers are lost"):
        run_remote(
            Target(server.base_url, "reference"), WORKLOAD.but(requests=400),
            Hosts(places=tuple(places)), SECRET.encode(), on_progress=kill,
        )  # fmt: skip


def test_a_worker_outlives_a_coordinator_that_is_killed(
    server: RunningReference, workers: Workers, tmp_path: Path
) -> None:
    place = workers.start()
    argv = [*ENGINEBOOK, "load", "--base-url", server.base_url, "--model", "reference"]
    argv += ["--concurrency", "4", "--duration", "600", "--hosts", f"127.0.0.1:{place[1]}"]
    coordinator = subprocess.Popen(
        argv, env={**os.environ, SECRET_VARIABLE: SECRET}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    worker = psutil.Process(workers.processes[0].pid)
    deadline = time.monotonic() + 60
    while not worker.children():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    load = worker.children()
    coordinator.send_signal(signal.SIGKILL)
    coordinator.wait()
    _, alive = psutil.wait_procs(load, timeout=30)
    assert not alive
    records = remote(server, [place])
    assert set(records.requests["status"]) == {"completed"}


def test_workers_may_come_by_themselves(
    server: RunningReference, workers: Workers, tmp_path: Path
) -> None:
    came: list[subprocess.Popen[bytes]] = []

    def invite(here: str) -> None:
        env = {**os.environ, SECRET_VARIABLE: SECRET}
        argv = [*ENGINEBOOK, "load-worker", "--connect", here]
        came.extend(subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL) for _ in range(2))

    hosts = Hosts(listen=("127.0.0.1", 0), count=2, wait_s=60, on_listen=invite)
    records = run_remote(
        Target(server.base_url, "reference"), WORKLOAD, hosts, SECRET.encode(),
        directory=tmp_path / "raw",
    )  # fmt: skip
    assert set(records.requests["status"]) == {"completed"}
    assert (tmp_path / "raw" / "requests.parquet").is_file()
    assert [p.wait(timeout=30) for p in came] == [0, 0]


def test_hosts_that_do_not_come_are_an_error() -> None:
    hosts = Hosts(listen=("127.0.0.1", 0), count=1, wait_s=0.2)
    with pytest.raises(LoadError, match="0 of 1 load workers came"):
        run_remote(Target("http://127.0.0.1:9", "m"), WORKLOAD, hosts, SECRET.encode())


def test_a_host_that_is_not_there_is_an_error() -> None:
    hosts = Hosts(places=(("127.0.0.1", 1),))
    with pytest.raises(LoadError, match="no load worker answers at"):
        run_remote(Target("http://127.0.0.1:9", "m"), WORKLOAD, hosts, SECRET.encode())


def load_command(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ENGINEBOOK, *words], env={**os.environ, **env}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def test_without_a_secret_nothing_listens() -> None:
    done = load_command("load-worker", **{SECRET_VARIABLE: ""})
    assert done.returncode == 2
    assert SECRET_VARIABLE in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hosts", "127.0.0.1:1", "--workers", "2"], "both given"),
        (["--worker-listen", "127.0.0.1:0"], "without --workers"),
        (["--workers", "0"], "give 1 or more"),
        (["--hosts", "nowhere"], "HOST:PORT"),
    ],
)
def test_options_that_contradict_each_other(words: list[str], said: str) -> None:
    common = ["load", "--base-url", "http://127.0.0.1:9", "--model", "m", "--concurrency", "1"]
    done = load_command(*common, "--requests", "1", *words, **{SECRET_VARIABLE: SECRET})
    assert done.returncode == 2
    assert said in done.stderr
