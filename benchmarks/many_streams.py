"""Our client with a few cores against reference servers on all the others.

    python benchmarks/many_streams.py [--streams 1000] [--itl-ms 10] [--seconds 30] [--json FILE]
    python benchmarks/many_streams.py --ladder 64,256,1024,2048,4096 --seconds 8

A thousand streams with a token each ten milliseconds are 100,000 events a second: more than one
server process can send on time, so there is one for each core that the client may not use, and the
streams are shared among them. Each server has a client process of its own; all client processes
together are pinned to ``--client-cores`` cores. Every server keeps the true time of every token.

Needs numpy, polars, uvloop, httptools and orjson, and nothing else but this package on the path:

    PYTHONPATH=lib python benchmarks/many_streams.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

try:
    import numpy as np
    import polars as pl

    from enginebook.load.calibration import paired_stamps
    from enginebook.load.records import Records
    from enginebook.load.reference import reference_server
    from enginebook.load.run import run_load
    from enginebook.load.target import Target
    from enginebook.load.worker import main as _worker  # noqa: F401 - what the processes need
    from enginebook.load.workload import Workload
    from enginebook.metrics.requests import request_metrics
except ImportError as error:
    raise SystemExit(
        f"{error.name} cannot be imported; needed are enginebook (PYTHONPATH=lib), numpy, polars, "
        "uvloop, httptools and orjson"
    ) from error

TTFT_MS = 20.0
ROUNDS = 10
INPUT_TOKENS = 16
MOST_EVENTS_PER_SERVER = 20_000  # a second; beyond that a server itself may be late


@dataclass(frozen=True)
class Cores:
    """Which cores are whose."""

    client: tuple[int, ...]
    server: tuple[int, ...]


def share_cores(client: int, servers: int | None) -> Cores:
    """Give the client the first cores of this process's set, and each server one of the others."""
    own = sorted(os.sched_getaffinity(0))
    given = own[: max(1, min(client, len(own) - 1))]
    rest = own[len(given) :] or own
    count = servers or len(rest)
    return Cores(tuple(given), tuple(rest[i % len(rest)] for i in range(count)))


@dataclass(frozen=True)
class Load:
    """One load: streams in all, and the interval between the tokens of each."""

    streams: int
    itl_ms: float
    seconds: float

    @property
    def tokens(self) -> int:
        """Return the tokens of an answer: so many that ten rounds take the asked time."""
        return max(4, round((self.seconds * 1000 / ROUNDS - TTFT_MS) / self.itl_ms))


@dataclass(frozen=True)
class Result:
    """What was read and what was true, over all servers; times in ms, CPU in us.

    ``*_error`` is reading less truth, request by request and gap by gap; ``stamp_delay`` is the
    time from the server's handing a token to the kernel to the client's stamp.
    """

    streams: int
    servers: int
    client_processes: int
    client_cores: int
    itl_true_ms: float
    events: int
    events_per_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    ttft_true_p50_ms: float
    ttft_true_p99_ms: float
    ttft_error_p50_ms: float
    ttft_error_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    itl_sent_p50_ms: float
    itl_sent_p99_ms: float
    itl_error_p50_ms: float
    itl_error_p99_ms: float
    stamp_delay_p50_ms: float
    stamp_delay_p99_ms: float
    cpu_us_per_token: float
    cpu_us_per_token_while_sending: float
    client_cores_used: float
    lost: int
    failed: int


def measure(load: Load, cores: Cores) -> Result:
    """Run one load against fresh servers."""
    servers = len(cores.server)
    parts = [load.streams // servers + (i < load.streams % servers) for i in range(servers)]
    parts = [n for n in parts if n]
    everywhere = os.sched_getaffinity(0)
    with ExitStack() as stack:
        running = []
        for core, _ in zip(cores.server, parts, strict=False):
            os.sched_setaffinity(0, {core})  # the server inherits it
            running.append(stack.enter_context(reference_server(TTFT_MS, load.itl_ms)))
        os.sched_setaffinity(0, everywhere)
        jobs = [
            _job(server.base_url, streams, load, cores.client[i % len(cores.client)])
            for i, (server, streams) in enumerate(zip(running, parts, strict=True))
        ]
        with ThreadPoolExecutor(len(jobs)) as pool:
            records = [f.result() for f in [pool.submit(job) for job in jobs]]
        truths = [server.truth()["requests"] for server in running]
    readings = [
        reading_of(r, {int(k): v for k, v in t.items()})
        for r, t in zip(records, truths, strict=True)
    ]
    return summed(load, cores, readings)


def _job(base_url: str, streams: int, load: Load, core: int) -> Callable[[], Any]:
    workload = Workload(
        concurrency=streams,
        requests=ROUNDS * streams,
        warmup_requests=streams,
        input_tokens=INPUT_TOKENS,
        output_tokens=load.tokens,
        processes=1,
        max_seconds=60 + 3 * load.seconds,
    )

    def run() -> Any:
        os.sched_setaffinity(0, {core})  # of this thread, and so of the process that it starts
        return run_load(Target(base_url, "reference"), workload)

    return run


@dataclass(frozen=True)
class Reading:
    """What one client process read, beside what its server did. Times in ms, arrays."""

    ttft: Any
    ttft_true: Any
    gaps: Any
    gaps_true: Any
    delay: Any
    lost: int
    failed: int
    begin_ns: int
    end_ns: int
    sending_cpu_s: float
    decoding_cpu_s: float


def reading_of(records: Records, truth: dict[int, Any]) -> Reading:
    """Hold one process's records against its server's truth, warm-up left out."""
    frame = request_metrics(records.requests, records.chunks)
    sent, read, lost = paired_stamps(records.chunks, truth, set(frame["request"]))
    done = frame.filter(pl.col("status").cast(pl.String) == "completed")
    true = [truth[i]["sent"][0] - truth[i]["received"] for i in done["request"]]
    about = records.instrument
    return Reading(
        ttft=done["ttft_ms"].to_numpy(),
        ttft_true=np.array(true) / 1e6,
        gaps=np.concatenate([np.diff(r) for r in read]) / 1e6,
        gaps_true=np.concatenate([np.diff(s) for s in sent]) / 1e6,
        delay=(np.concatenate(read) - np.concatenate(sent)) / 1e6,
        lost=lost,
        failed=len(frame) - len(done),
        begin_ns=int(frame["sent_ns"].to_numpy().min()),
        end_ns=int(frame["end_ns"].to_numpy().max()),
        sending_cpu_s=about["window_cpu_s"],
        decoding_cpu_s=about["decode_cpu_s"] * len(frame) / len(records.requests),
    )


def percentiles(**samples: Any) -> dict[str, float]:
    """Return p50 and p99 of each sample, named ``NAME_p50_ms`` and ``NAME_p99_ms``."""
    return {
        f"{name}_p{level}_ms": float(np.percentile(values, level))
        for name, values in samples.items()
        for level in (50, 99)
    }


def summed(load: Load, cores: Cores, readings: Sequence[Reading]) -> Result:
    """Return all processes' readings as one result."""

    def pool(name: str) -> Any:
        return np.concatenate([getattr(r, name) for r in readings])

    ttft, true, gaps, sent, delay = map(pool, ("ttft", "ttft_true", "gaps", "gaps_true", "delay"))
    span_s = (max(r.end_ns for r in readings) - min(r.begin_ns for r in readings)) / 1e9
    sending_s = sum(r.sending_cpu_s for r in readings)
    cpu_s = sending_s + sum(r.decoding_cpu_s for r in readings)
    times = percentiles(
        ttft=ttft, ttft_true=true, ttft_error=ttft - true, itl=gaps, itl_sent=sent,
        itl_error=np.abs(gaps - sent), stamp_delay=delay,
    )  # fmt: skip
    return Result(
        streams=load.streams,
        servers=len(readings),
        client_processes=len(readings),
        client_cores=len(cores.client),
        itl_true_ms=load.itl_ms,
        events=len(delay),
        events_per_s=len(delay) / span_s,
        cpu_us_per_token=cpu_s * 1e6 / len(delay),
        cpu_us_per_token_while_sending=sending_s * 1e6 / len(delay),
        client_cores_used=sending_s / span_s,
        lost=sum(r.lost for r in readings),
        failed=sum(r.failed for r in readings),
        **times,
    )


def show(r: Result) -> None:
    """Print one line."""
    print(
        f"{r.streams:5} streams, {r.servers} servers, {r.events_per_s:9,.0f} events/s: "
        f"TTFT {r.ttft_p50_ms:.2f} / {r.ttft_p99_ms:.2f} ms (true {r.ttft_true_p50_ms:.2f} / "
        f"{r.ttft_true_p99_ms:.2f}; error {r.ttft_error_p50_ms:.2f} / {r.ttft_error_p99_ms:.2f}), "
        f"ITL {r.itl_p50_ms:.2f} / {r.itl_p99_ms:.2f} ms (sent {r.itl_sent_p50_ms:.2f} / "
        f"{r.itl_sent_p99_ms:.2f}), {r.cpu_us_per_token:.1f} us/token, "
        f"{r.client_cores_used:.2f} of {r.client_cores} cores, lost {r.lost}, failed {r.failed}",
        file=sys.stderr,
        flush=True,
    )


def loads_of(args: argparse.Namespace, servers: int) -> list[Load]:
    """Return the loads that are asked for; a ladder's interval keeps the servers punctual."""
    if not args.ladder:
        return [Load(args.streams, args.itl_ms, args.seconds)]
    most = servers * MOST_EVENTS_PER_SERVER
    counts = [int(text) for text in args.ladder.split(",")]
    return [Load(n, max(args.itl_ms, 1000.0 * n / most), args.seconds) for n in counts]


def main() -> int:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--itl-ms", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=30.0, help="of load, for each level")
    parser.add_argument("--ladder", metavar="N,N,...", help="these numbers of streams in turn")
    parser.add_argument("--client-cores", type=int, default=4)
    parser.add_argument("--servers", type=int, help="default: one for each other core")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    cores = share_cores(args.client_cores, args.servers)
    results = []
    for load in loads_of(args, len(cores.server)):
        results.append(measure(load, cores))
        show(results[-1])
    value = {
        "host": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "system": platform.release(),
        },
        "cores": asdict(cores),
        "unix_s": time.time(),
        "results": [asdict(r) for r in results],
    }
    text = json.dumps(value, indent=1)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n")
    return 0 if all(r.lost == 0 and r.failed == 0 for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
