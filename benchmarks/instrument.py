"""Holds load generators against one punctual server: what they read, and what they cost.

    python benchmarks/instrument.py --tokenizer MODEL_DIR --peers DIR [--json FILE]

``--peers`` is a folder of virtual environments named aiperf, guidellm, vllm and sglang; those that
are missing are left out and said to be. Every run has a server of its own, which keeps the true
time of every token. The cost of a token is taken beyond start-up: a short run of the same client is
subtracted from the long one. Run it on an idle machine; it prints how idle it was.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from clients import CLIENTS, Client, Reading, Run

from enginebook.load.reference import reference_server
from enginebook.store import write_json

TTFT_MS = 20.0
OUTPUT_TOKENS = 100
TIMEOUT_S = 420
SHORT_REQUESTS = 8


@dataclass(frozen=True)
class Level:
    """A load: streams, requests and the server's interval."""

    streams: int
    requests: int
    itl_ms: float

    @property
    def ideal_s(self) -> float:
        """Return how long the run would take if nothing but the schedule took time."""
        rounds = -(-self.requests // self.streams)
        return rounds * (TTFT_MS + (OUTPUT_TOKENS - 1) * self.itl_ms) / 1000


LEVELS = {
    1: Level(1, 20, 5.0),
    64: Level(64, 1280, 5.0),
    256: Level(256, 2560, 5.0),
    1024: Level(1024, 6144, 50.0),
}


@dataclass(frozen=True)
class Result:
    """One client at one level. Times in ms unless named otherwise."""

    client: str
    streams: int
    ttft_true_p50_ms: float
    ttft_true_p99_ms: float
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_true_p50_ms: float
    itl_true_p99_ms: float
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    itl_over: str
    requests: int
    completed: int | None
    tokens_sent: int
    run_s: float
    ideal_s: float
    wall_s: float
    cpu_s: float
    startup_cpu_s: float
    cpu_us_per_token: float
    others_cpu_share: float


@dataclass(frozen=True)
class Cost:
    """What a process and all below it used."""

    wall_s: float
    cpu_s: float
    others_share: float


def timed(argv: list[str], log: Path, server_pid: int) -> Cost:
    """Run a command and return its cost.

    CPU time is that which the kernel accounts to the child and the descendants it waited for, or
    the last reading of the whole tree, whichever is more: some clients do not wait for theirs.
    """
    server = psutil.Process(server_pid)
    before_busy, before_total = machine()
    before_server = sum(server.cpu_times()[:2])
    start = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=quiet())
    tree = psutil.Process(process.pid)
    seen: dict[int, float] = {}
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        watch(tree, seen)
        if time.monotonic() - start > TIMEOUT_S:
            end_tree(tree)
        time.sleep(0.1)
    wall_s = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = max(usage.ru_utime + usage.ru_stime, sum(seen.values()))
    busy, total = machine()
    others = busy - before_busy - cpu_s - (sum(server.cpu_times()[:2]) - before_server)
    if process.returncode != 0:
        tail = log.read_text(errors="replace").splitlines()[-3:]
        raise RuntimeError(f"exit {process.returncode}: {' | '.join(tail)}")
    return Cost(wall_s, cpu_s, max(0.0, others / (total - before_total)))


def watch(tree: psutil.Process, seen: dict[int, float]) -> None:
    """Note the CPU time of every process of a tree."""
    try:
        for process in [tree, *tree.children(recursive=True)]:
            seen[process.pid] = sum(process.cpu_times()[:2])
    except psutil.Error:
        return


def end_tree(tree: psutil.Process) -> None:
    """End a client that takes too long, and what it started."""
    try:
        family = [*tree.children(recursive=True), tree]
    except psutil.Error:
        return
    for process in family:
        try:
            process.kill()
        except psutil.Error:
            continue


def machine() -> tuple[float, float]:
    """Return (busy, total) CPU seconds of the machine."""
    t = psutil.cpu_times()
    return sum(t) - t.idle - t.iowait, sum(t)


def quiet() -> dict[str, str]:
    """Return an environment in which no client phones home or looks for a GPU."""
    names = ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY")
    return {**os.environ, **dict.fromkeys(names, "1"), "SGLANG_USE_CPU_ENGINE": "1"}


def truth_of(report: dict[str, Any]) -> dict[str, float]:
    """Return the server's true times: percentiles of first tokens and gaps, and the run's span."""
    rows = [r for r in report["requests"].values() if r["sent"]]
    firsts = np.array([r["sent"][0] - r["received"] for r in rows]) / 1e6
    gaps = np.concatenate([np.diff(r["sent"]) for r in rows]) / 1e6
    begin, end = min(r["received"] for r in rows), max(r["sent"][-1] for r in rows)
    return {
        "ttft_true_p50_ms": float(np.percentile(firsts, 50)),
        "ttft_true_p99_ms": float(np.percentile(firsts, 99)),
        "itl_true_p50_ms": float(np.percentile(gaps, 50)),
        "itl_true_p99_ms": float(np.percentile(gaps, 99)),
        "run_s": (end - begin) / 1e9,
        "tokens_sent": sum(len(r["sent"]) for r in rows),
    }


def one_run(
    client: Client, level: Level, args: argparse.Namespace, requests: int
) -> tuple[Cost, Reading, dict[str, float]]:
    """Run one client once against a fresh server."""
    environment = args.peers / client.needs if client.needs else None
    streams = min(level.streams, requests)
    with (
        tempfile.TemporaryDirectory() as folder,
        reference_server(TTFT_MS, level.itl_ms) as server,
    ):
        run = Run(
            server.base_url, streams, requests, OUTPUT_TOKENS, args.tokenizer, Path(folder),
            environment,
        )  # fmt: skip
        cost = timed(client.command(run), Path(folder) / "log", server.pid)
        return cost, client.read(run), truth_of(server.truth())


def compare(client: Client, level: Level, args: argparse.Namespace) -> Result:
    """Measure one client at one level."""
    short, _, short_truth = one_run(client, level, args, SHORT_REQUESTS)
    cost, reading, truth = one_run(client, level, args, level.requests)
    tokens = truth["tokens_sent"] - short_truth["tokens_sent"]
    times = {k: v for k, v in asdict(reading).items() if k != "completed"}
    return Result(
        client=client.name,
        streams=level.streams,
        itl_over=client.itl,
        requests=level.requests,
        completed=reading.completed,
        ideal_s=level.ideal_s,
        wall_s=cost.wall_s,
        cpu_s=cost.cpu_s,
        startup_cpu_s=short.cpu_s,
        cpu_us_per_token=(cost.cpu_s - short.cpu_s) * 1e6 / tokens,
        others_cpu_share=cost.others_share,
        **times,
        **truth,
    )


@contextmanager
def held(path: Path | None) -> Iterator[None]:
    """Hold a lock file while a measurement runs, so that nobody else who does measures too."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def show(r: Result) -> None:
    """Print one line."""

    def number(value: float | None) -> str:
        return f"{value:8.2f}" if value is not None else "       -"

    print(
        f"{r.streams:5} {r.client:22} TTFT {number(r.ttft_p50_ms)} {number(r.ttft_p99_ms)} "
        f"(true {r.ttft_true_p50_ms:6.2f} {r.ttft_true_p99_ms:6.2f})  ITL {number(r.itl_p50_ms)} "
        f"{number(r.itl_p99_ms)} (true {r.itl_true_p50_ms:5.2f} {r.itl_true_p99_ms:6.2f})  "
        f"run {r.run_s:5.1f}/{r.ideal_s:.1f} s  {r.cpu_us_per_token:7.1f} us/token  "
        f"done {r.completed}/{r.requests}  others {r.others_cpu_share:.0%}",
        flush=True,
    )


def main() -> int:
    """Compare all clients that are there at all levels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR")
    parser.add_argument("--peers", type=Path, required=True, metavar="DIR")
    parser.add_argument("--levels", default="1,64,256,1024")
    parser.add_argument("--only", help="names of clients, separated by commas")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="held during each measurement")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    args.tokenizer, args.peers = args.tokenizer.resolve(), args.peers.resolve()
    results: list[dict[str, Any]] = []
    for level in (LEVELS[int(text)] for text in args.levels.split(",")):
        for client in wanted(args):
            results.append(attempt(client, level, args))
            if args.json is not None:
                write_json(args.json, {"cores": os.cpu_count(), "results": results})
    return 0


def wanted(args: argparse.Namespace) -> list[Client]:
    """Return the clients that are asked for and there; say which are not there."""
    named = [c for c in CLIENTS if not args.only or c.name in args.only.split(",")]
    missing = [c for c in named if c.needs and not (args.peers / c.needs).is_dir()]
    for client in missing:
        print(f"{client.name}: left out, no environment {args.peers / str(client.needs)}")
    return [c for c in named if c not in missing]


def attempt(client: Client, level: Level, args: argparse.Namespace) -> dict[str, Any]:
    """Measure a client, or say why that did not work; print either."""
    try:
        with held(args.lock):
            result = compare(client, level, args)
    except (RuntimeError, OSError, KeyError, ValueError) as error:
        print(f"{level.streams:5} {client.name:22} failed: {error}", flush=True)
        return {"client": client.name, "streams": level.streams, "failed": str(error)}
    show(result)
    return asdict(result)


if __name__ == "__main__":
    sys.exit(main())
