"""A load that several hosts make together: one schedule split, one start, one set of records."""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginebook.errors import LoadError
from enginebook.load.clock import NS_PER_MS, NS_PER_S, now_ns
from enginebook.load.control import Progress
from enginebook.load.plan import make_plan
from enginebook.load.precision import Watch
from enginebook.load.probe import prompt_overhead
from enginebook.load.prompts import SOURCE_FILE, prompt_source, save_source
from enginebook.load.records import Records, write_records
from enginebook.load.remote_host import RemoteHost
from enginebook.load.remote_merge import Part, costs, lost_requests, merged, part_of
from enginebook.load.remote_wire import RefusedError, greet
from enginebook.load.run import LoadProgress, OnProgress
from enginebook.load.target import Target
from enginebook.load.tokens import tokens_for
from enginebook.load.workload import Workload

_START_DELAY_NS = 500 * NS_PER_MS
_LOOK_EVERY_S = 0.25
_READY_TIMEOUT_S = 300.0
_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Hosts:
    """Which hosts take part: addresses that listen, or an address here that so many dial."""

    places: tuple[tuple[str, int], ...] = ()
    listen: tuple[str, int] | None = None
    count: int = 0
    wait_s: float = 120.0
    on_listen: Callable[[str], None] | None = None


def run_remote(
    target: Target,
    workload: Workload,
    hosts: Hosts,
    secret: bytes,
    *,
    directory: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Records:
    """Load-test an endpoint from several hosts and return the records on this host's clock.

    The instrument's description has ``hosts``: each with its processes, its clock's offset and the
    bound of the offset's error, and whether it was lost.

    Raises
    ------
    InputError
        When prompts cannot be made, before anything is sent.
    LoadError
        When hosts cannot be had before the start, or all are lost. One that is lost during the
        load costs its part, whose requests are recorded as failed.
    """
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="enginebook-load-")))
        found = gather(hosts, secret)
        for host in found:
            stack.callback(host.close)
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=len(found)))
        load = _Load(
            target, workload, hosts=found, pool=pool, scratch=scratch, on_progress=on_progress
        )
        records = load.work()
    return write_records(records, directory) if directory is not None else records


# -- getting hosts


def gather(hosts: Hosts, secret: bytes) -> list[RemoteHost]:
    """Return a connection to every host.

    Raises
    ------
    LoadError
        When one cannot be had; the others are let go.
    """
    with ExitStack() as stack:
        found: list[RemoteHost] = []
        for sock, peer in _listened(hosts) if hosts.listen else _dialled(hosts):
            stack.callback(sock.close)
            try:
                found.append(RemoteHost(greet(sock, secret, peer)))
            except (EOFError, OSError) as error:
                raise LoadError(
                    f"load worker {peer} ended the greeting: {error}",
                    "look at its last lines: it may serve another coordinator, or know another "
                    "secret",
                ) from None
        stack.pop_all()
    return found


def _dialled(hosts: Hosts) -> Iterable[tuple[socket.socket, str]]:
    for place in hosts.places:
        peer = f"{place[0]}:{place[1]}"
        try:
            yield socket.create_connection(place, timeout=_CONNECT_TIMEOUT_S), peer
        except OSError as error:
            raise LoadError(
                f"no load worker answers at {peer}: {error}",
                f"start one there: enginebook load-worker --listen {peer}",
            ) from None


def _listened(hosts: Hosts) -> Iterable[tuple[socket.socket, str]]:
    assert hosts.listen is not None  # noqa: S101 - checked by the caller
    deadline = time.monotonic() + hosts.wait_s
    with socket.create_server(hosts.listen) as server:
        here = "{}:{}".format(*server.getsockname()[:2])
        if hosts.on_listen is not None:
            hosts.on_listen(here)
        for number in range(hosts.count):
            server.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                sock, address = server.accept()
            except TimeoutError:
                raise LoadError(
                    f"{number} of {hosts.count} load workers came to {here} within "
                    f"{hosts.wait_s:.0f} s",
                    f"start them with: enginebook load-worker --connect {here}",
                ) from None
            yield sock, f"{address[0]}:{address[1]}"


# -- the load


class _Load:
    """One load and the hosts that make it."""

    def __init__(
        self,
        target: Target,
        workload: Workload,
        *,
        hosts: list[RemoteHost],
        pool: ThreadPoolExecutor,
        scratch: Path,
        on_progress: OnProgress | None,
    ) -> None:
        self._target, self._workload = target, workload
        self._hosts, self._pool, self._scratch = hosts, pool, scratch
        self._on_progress = on_progress
        self._plan = make_plan(workload)
        rule = workload.stop_rule
        self._watch = Watch(rule, self._plan.count) if rule is not None else None
        self._enough = False
        self._overhead = 0

    def work(self) -> Records:
        self._give_jobs()
        self._each(lambda h: h.measure_clock(), one_by_one=True)
        self._until("ready", _READY_TIMEOUT_S)
        limit_s = self._workload.max_seconds + self._workload.drain_seconds + _READY_TIMEOUT_S
        if self._workload.warmup_requests:
            start_ns = now_ns() + _START_DELAY_NS
            self._each(lambda h: h.go("warmup", start_ns))
            self._until("done", limit_s)
        self._each(lambda h: h.measure_clock(), one_by_one=True)
        start_ns = now_ns() + _START_DELAY_NS
        unix_ns = time.time_ns() - now_ns() + start_ns
        self._each(lambda h: h.go("measure", start_ns))
        self._until("done", limit_s, start_ns)
        self._each(lambda h: h.measure_clock_after(), one_by_one=True)
        self._each(lambda h: h.go("decode", None))
        self._until("decoded", limit_s)
        return self._records(start_ns, unix_ns)

    def _give_jobs(self) -> None:
        tokens = tokens_for(self._target)
        source = prompt_source(self._workload, tokens)
        save_source(source, self._scratch / SOURCE_FILE)
        self._overhead = prompt_overhead(self._target, self._workload, source, tokens)
        files, sent = self._files()
        streams = -(-self._plan.streams // len(self._hosts))
        self._must(lambda h: h.offer(streams))
        first, total = 0, sum(h.size for h in self._hosts)
        for host in self._hosts:
            host.numbers = range(first, first + host.size)
            first += host.size
        job = {
            # The key stays here: each host has its own in its environment.
            "target": {**self._target.public(), "headers": dict(self._target.headers)}
            | {"verify_tls": self._target.verify_tls},
            "workload": self._workload.to_dict(),
            "workers": total,
            "overhead_tokens": self._overhead,
        }
        self._must(lambda h: h.give(job, files, sent))

    def _files(self) -> tuple[dict[str, bytes], dict[str, str]]:
        """Return the files that every host needs, and which settings name them."""
        files = {SOURCE_FILE: (self._scratch / SOURCE_FILE).read_bytes()}
        sent = {}
        for key in ("trace", "prompt_file"):
            path = getattr(self._workload, key)
            if isinstance(path, Path):
                name = f"{key}{path.suffix}"
                files[name], sent[key] = path.read_bytes(), name
        return files, sent

    # -- talking to all

    @property
    def _alive(self) -> list[RemoteHost]:
        return [h for h in self._hosts if not h.lost]

    def _must(self, do: Callable[[RemoteHost], None]) -> None:
        """Do something with every host before the start; one that fails ends the load."""
        self._each(do)
        for host in self._hosts:
            if host.lost:
                raise LoadError(
                    f"load worker {host.name} cannot take its part: {host.lost}",
                    "mend it, or leave this host out",
                )

    def _each(self, do: Callable[[RemoteHost], None], *, one_by_one: bool = False) -> None:
        """Do something with every host; one that fails is lost from then on."""

        def attempt(host: RemoteHost) -> None:
            try:
                do(host)
            except (EOFError, OSError, RefusedError) as error:
                host.lose(str(error) or type(error).__name__)
            except LoadError as error:
                host.lose(error.message)

        if one_by_one:  # stamps of a clock want a quiet interpreter
            for host in self._alive:
                attempt(host)
        else:
            list(self._pool.map(attempt, self._alive))
        if not self._alive:
            reasons = "; ".join(f"{h.name}: {h.lost}" for h in self._hosts)
            raise LoadError(f"all load workers are lost ({reasons})", "look at their last lines")

    def _until(self, state: str, limit_s: float, start_ns: int | None = None) -> None:
        """Look at all hosts until those that live are in a state, and report progress."""
        deadline = time.monotonic() + limit_s
        while True:
            self._each(lambda h: h.look())
            if start_ns is not None:
                self._report(start_ns)
            if all(h.state == state for h in self._alive):
                return
            if time.monotonic() > deadline:
                late = ", ".join(h.name for h in self._alive if h.state != state)
                raise LoadError(
                    f"load workers did not answer within {limit_s:.0f} s: {late}",
                    "look whether these hosts are overloaded, and start fewer streams",
                )
            time.sleep(_LOOK_EVERY_S)

    def _report(self, start_ns: int) -> None:
        columns = zip(*(h.progress for h in self._hosts), strict=True)
        total = Progress(*(sum(values) for values in columns))
        elapsed_ns = now_ns() - start_ns
        if elapsed_ns <= 0:
            return
        if self._watch is not None and not self._enough and self._watch.add(elapsed_ns, total):
            self._enough = True
            self._each(lambda h: h.finish())
        if self._on_progress is not None:
            self._on_progress(self._progress(total, elapsed_ns / NS_PER_S))

    def _progress(self, total: Progress, elapsed_s: float) -> LoadProgress:
        firsts = total.first_bytes
        return LoadProgress(
            done=total.done,
            failed=total.failed,
            total=self._plan.count,
            in_flight=total.in_flight,
            chunks=total.chunks,
            chunks_per_s=total.chunks / max(1e-3, elapsed_s),
            first_byte_ms=total.first_byte_sum_ns / firsts / NS_PER_MS if firsts else None,
            elapsed_s=elapsed_s,
            half_width=self._watch.known.widest if self._watch is not None else None,
        )

    # -- the end

    def _records(self, start_ns: int, unix_ns: int) -> Records:
        parts: dict[str, Part] = {}
        self._each(lambda h: parts.update({h.name: part_of(*h.fetch(), h.clock)}))
        workers = sum(h.size for h in self._hosts)
        lost = [
            lost_requests(self._plan, h.numbers, workers, start_ns, f"{h.name}: {h.lost}")
            for h in self._hosts
            if h.lost
        ]
        kept = [parts[h.name] for h in self._alive]
        requests, chunks = merged(kept, lost)
        instrument = {
            "start_ns": start_ns,
            "start_unix_ns": unix_ns,
            **costs(kept),
            "prompt_overhead_tokens": self._overhead,
            "trace_cut": self._plan.trace_cut,
            "precision": self._watch.report() if self._watch is not None else None,
            "target": self._target.public(),
            "workload": self._workload.to_dict(),
            "hosts": [h.report() for h in self._hosts],
        }
        return Records(requests, chunks, json.loads(json.dumps(instrument)))


def describe(hosts: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence on each host of a load's description."""
    lines = []
    for h in hosts:
        clock = h["clock"]
        known = (
            f"clock {clock['offset_ns'] / NS_PER_MS:+.3f} ms, "
            f"known to {clock['bound_us']:.0f} us, drift {clock['drift_ppm']:+.1f} ppm"
            if clock
            else "clock not measured"
        )
        end = f", LOST: {h['lost']}" if h["lost"] else ""
        lines.append(f"{h['name']} ({h['processes']} processes): {known}{end}")
    return lines
