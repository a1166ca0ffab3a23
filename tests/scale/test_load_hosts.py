"""Loads from hosts with clocks and networks of their own: offsets found, results as of one host."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hosts_support
import numpy as np
import polars as pl
import pytest
from hosts_support import Relay, add_netem, net, time_namespace
from load_workers import SECRET, Workers

from enginebook.load import Target, Workload, run_load
from enginebook.load.records import Records
from enginebook.load.reference import RunningReference, reference_server
from enginebook.load.remote import Hosts, run_remote
from enginebook.metrics import summarise

WORKLOAD = Workload(concurrency=8, requests=48, warmup_requests=8, input_tokens=16,
                    output_tokens=16, seed=5)  # fmt: skip
AHEAD_S = (777, 100_000)

CLOCKS = hosts_support.reason_against_time_namespaces()
NETS = hosts_support.reason_against_network_namespaces()
pytestmark = pytest.mark.skipif(bool(CLOCKS), reason=CLOCKS)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.end()


@pytest.fixture
def server() -> Iterator[RunningReference]:
    with reference_server(ttft_ms=20.0, itl_ms=5.0) as running:
        yield running


def remote(url: str, places: list[tuple[str, int]]) -> Records:
    hosts = Hosts(places=tuple(places))
    return run_remote(Target(url, "reference"), WORKLOAD, hosts, SECRET.encode())


def clocks(records: Records) -> list[dict[str, Any]]:
    return [h["clock"] for h in records.instrument["hosts"]]


def delays_ms(records: Records, server: RunningReference) -> np.ndarray:
    """How long after the server's true sending each measured answer's first byte was stamped."""
    truth = {int(k): v for k, v in server.truth()["requests"].items()}
    measured = records.requests.filter(pl.col("phase") == "measured")
    return np.array([
        (row["first_byte_ns"] - truth[row["request"]]["sent"][0]) / 1e6
        for row in measured.iter_rows(named=True)
    ])  # fmt: skip


def assert_found(records: Records, ahead_s: tuple[int, ...]) -> None:
    """The namespaces' clocks are ours plus a number, so the truth is known to the nanosecond."""
    for clock, ahead in zip(clocks(records), ahead_s, strict=True):
        for measured in (clock["before"], clock["after"]):
            assert abs(measured["offset_ns"] - ahead * 10**9) <= measured["bound_ns"]


def assert_as_one_host(records: Records, alone: Records) -> None:
    columns = ["request", "phase", "input_asked", "output_asked", "status", "completion_tokens"]
    assert records.requests.select(columns).equals(alone.requests.select(columns))
    counts = summarise(records)["requests"]
    assert counts == {"completed": 48, "failed": 0, "cancelled": 0}


def test_clocks_far_apart_are_found_and_times_put_on_ours(
    server: RunningReference, workers: Workers
) -> None:
    places = [workers.start(before=time_namespace(s)) for s in AHEAD_S]
    alone = run_load(Target(server.base_url, "reference"), WORKLOAD)
    error_ms = delays_ms(alone, server)
    records = remote(server.base_url, places)
    assert_found(records, AHEAD_S)
    assert_as_one_host(records, alone)
    bound_ms = max(c["bound_us"] for c in clocks(records)) / 1e3
    merged_ms = delays_ms(records, server)
    # What a single host adds to the truth is the error that is calibrated on this very machine.
    assert merged_ms.min() >= -bound_ms
    assert np.median(merged_ms) <= error_ms.max() + bound_ms


def test_an_unequal_way_there_and_back_stays_within_the_bound(
    server: RunningReference, workers: Workers
) -> None:
    relays = [
        Relay(workers.start(before=time_namespace(s)), there_ms=4, back_ms=1) for s in AHEAD_S
    ]
    records = remote(server.base_url, [r.place for r in relays])
    assert_found(records, AHEAD_S)
    for clock in clocks(records):
        assert clock["bound_us"] >= 2_500  # half of 5 ms
    for relay in relays:
        relay.close()


@pytest.mark.skipif(bool(NETS), reason=NETS)
@pytest.mark.parametrize("delay_ms", [0.0, 3.0])
def test_hosts_with_networks_of_their_own(
    server: RunningReference, workers: Workers, delay_ms: float
) -> None:
    port = int(server.base_url.rsplit(":", 1)[1])
    with ExitStack() as stack:
        nets = [stack.enter_context(net(n)) for n in (1, 2)]
        reasons = [add_netem(n.device, delay_ms) for n in nets] if delay_ms else []
        if any(reasons):
            pytest.skip(reasons[0])
        # The reference server listens on loopback alone; a relay stands on each cable's end.
        gate = Relay(("127.0.0.1", port), at="0.0.0.0")
        stack.callback(gate.close)
        places = [
            workers.start(before=(*n.inside(), *time_namespace(s)), at=n.there)
            for n, s in zip(nets, AHEAD_S, strict=True)
        ]
        alone = run_load(Target(f"http://127.0.0.1:{gate.place[1]}", "reference"), WORKLOAD)
        error_ms = delays_ms(alone, server)
        # Both namespaces reach the first cable's end of ours by their own route.
        for n in nets[1:]:
            add = ["ip", "-n", n.name, "route", "add", nets[0].here, "via", n.here]
            subprocess.run(add, check=True, capture_output=True)
        records = remote(f"http://{nets[0].here}:{gate.place[1]}", places)
        assert_found(records, AHEAD_S)
        assert_as_one_host(records, alone)
        bound_ms = max(c["bound_us"] for c in clocks(records)) / 1e3
        merged_ms = delays_ms(records, server)
        assert merged_ms.min() >= -bound_ms
        assert np.median(merged_ms) <= error_ms.max() + bound_ms + delay_ms
        if delay_ms:
            assert np.median(merged_ms) >= delay_ms - bound_ms
