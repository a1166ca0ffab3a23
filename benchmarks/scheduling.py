"""How long a study takes on a cluster whose hosts fail: a simulation of events, no clock involved.

Stages are started as the executors start them: whenever something changes, the ready stages in
order of priority, each where it fits. A host that fails ends what runs on it; those stages become
ready again. ``python benchmarks/scheduling.py`` prints the table of docs/scale.md.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

S_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Task:
    """One stage: how many GPUs of one host for how long, and after which others."""

    name: str
    gpus: int
    seconds: float
    needs: tuple[str, ...] = ()
    order: int = 0


@dataclass(frozen=True)
class Cluster:
    """Hosts with GPUs; each fails after a random (exponential) time and comes back after repair."""

    hosts: int
    gpus_each: int
    hours_between_failures: float | None = None
    repair_s: float = 600.0

    @property
    def gpus(self) -> int:
        """Return all GPUs together."""
        return self.hosts * self.gpus_each


@dataclass(frozen=True)
class Attempt:
    """One run of a task, on one host, to its end or to the host's failure."""

    task: str
    host: int
    gpus: int
    start_s: float
    end_s: float
    done: bool


@dataclass(frozen=True)
class Outcome:
    """What came of it. Times in seconds, work in GPU seconds."""

    makespan_s: float
    bound_s: float
    attempts: tuple[Attempt, ...]
    host_failures: int
    given_up: tuple[str, ...]

    @property
    def wasted_gpu_s(self) -> float:
        """Return work that was lost with hosts."""
        return sum(a.gpus * (a.end_s - a.start_s) for a in self.attempts if not a.done)

    @property
    def taken_again(self) -> int:
        """Return how many attempts were lost."""
        return sum(not a.done for a in self.attempts)


def bound(tasks: Sequence[Task], gpus: int) -> float:
    """Return a time below which no schedule without failures can come.

    The larger of all work spread evenly over all GPUs, and the longest chain of tasks that wait
    for one another.
    """
    work = sum(t.gpus * t.seconds for t in tasks) / gpus
    ends: dict[str, float] = {}
    for task in _sorted_by_needs(tasks):
        ends[task.name] = task.seconds + max((ends[n] for n in task.needs), default=0.0)
    return max(work, max(ends.values(), default=0.0))


def _sorted_by_needs(tasks: Sequence[Task]) -> Iterable[Task]:
    left = {t.name: t for t in tasks}
    while left:
        ready = [t for t in left.values() if not any(n in left for n in t.needs)]
        if not ready:
            raise ValueError(f"tasks wait for one another: {', '.join(sorted(left))}")
        for task in ready:
            yield left.pop(task.name)


Kind = Literal["end", "fail", "repair"]


@dataclass
class _State:
    """Everything that changes while the simulated time passes."""

    free: list[int]
    up: list[bool]
    waiting: dict[str, Task]
    running: dict[str, tuple[Task, int, float]] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    attempts: list[Attempt] = field(default_factory=list)
    events: list[tuple[float, int, Kind, str, int]] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    failures: int = 0


class Simulation:
    """One run of a set of tasks on a cluster."""

    def __init__(
        self, tasks: Sequence[Task], cluster: Cluster, *, seed: int = 1, retries: int = 2
    ) -> None:
        most = max((t.gpus for t in tasks), default=0)
        if most > cluster.gpus_each:
            raise ValueError(f"a task wants {most} GPUs; a host has {cluster.gpus_each}")
        self._tasks, self._cluster, self._retries = tasks, cluster, retries
        self._rng = np.random.default_rng(seed)
        self._number = 0
        self._state = _State(
            free=[cluster.gpus_each] * cluster.hosts,
            up=[True] * cluster.hosts,
            waiting={t.name: t for t in sorted(tasks, key=lambda t: t.order)},
        )

    def run(self) -> Outcome:
        """Let time pass until all tasks are done or given up."""
        state, now = self._state, 0.0
        for host in range(self._cluster.hosts):
            self._plan_failure(host, now)
        self._start_ready(now)
        while state.waiting or state.running:
            now, _, kind, task, host = heapq.heappop(state.events)
            if kind == "end":
                self._end(task, host, now)
            elif kind == "fail":
                self._fail(host, now)
            else:
                state.up[host] = True
                state.free[host] = self._cluster.gpus_each
                self._plan_failure(host, now)
            self._start_ready(now)
            self._give_up_what_cannot_start()
        return Outcome(
            makespan_s=max((a.end_s for a in state.attempts), default=0.0),
            bound_s=bound(self._tasks, self._cluster.gpus),
            attempts=tuple(state.attempts),
            host_failures=state.failures,
            given_up=tuple(state.given_up),
        )

    def _push(self, at_s: float, kind: Kind, task: str, host: int) -> None:
        self._number += 1  # events of one moment happen in the order in which they were planned
        heapq.heappush(self._state.events, (at_s, self._number, kind, task, host))

    def _plan_failure(self, host: int, now: float) -> None:
        hours = self._cluster.hours_between_failures
        if hours is not None:
            self._push(now + self._rng.exponential(hours * S_PER_HOUR), "fail", "", host)

    def _start_ready(self, now: float) -> None:
        state = self._state
        for task in list(state.waiting.values()):
            if all(n in state.done for n in task.needs):
                host = self._place(task.gpus)
                if host is not None:
                    self._start(task, host, now)

    def _place(self, gpus: int) -> int | None:
        """Return the host that is fullest and still has room, so that large tasks find theirs."""
        state = self._state
        fit = [h for h, free in enumerate(state.free) if state.up[h] and free >= gpus]
        return min(fit, key=lambda h: (state.free[h], h), default=None)

    def _start(self, task: Task, host: int, now: float) -> None:
        state = self._state
        del state.waiting[task.name]
        state.free[host] -= task.gpus
        state.running[task.name] = (task, host, now)
        state.tries[task.name] = state.tries.get(task.name, 0) + 1
        self._push(now + task.seconds, "end", f"{task.name}#{state.tries[task.name]}", host)

    def _end(self, label: str, host: int, now: float) -> None:
        state = self._state
        name, _, attempt = label.rpartition("#")
        current = state.running.get(name)
        if current is None or state.tries[name] != int(attempt):
            return  # that attempt was lost with its host
        task, _, started = state.running.pop(name)
        state.free[host] += task.gpus
        state.done.add(name)
        state.attempts.append(Attempt(name, host, task.gpus, started, now, done=True))

    def _fail(self, host: int, now: float) -> None:
        state = self._state
        state.failures += 1
        state.up[host], state.free[host] = False, 0
        self._push(now + self._cluster.repair_s, "repair", "", host)
        for name, (task, where, started) in list(state.running.items()):
            if where == host:
                del state.running[name]
                state.attempts.append(Attempt(name, host, task.gpus, started, now, done=False))
                if state.tries[name] > self._retries:
                    state.given_up.append(name)
                else:
                    state.waiting[name] = task
        state.waiting = dict(sorted(state.waiting.items(), key=lambda item: item[1].order))

    def _give_up_what_cannot_start(self) -> None:
        """Tasks that need one that was given up are never started."""
        state = self._state
        lost = set(state.given_up)
        for name, task in list(state.waiting.items()):
            if lost & set(task.needs):
                del state.waiting[name]
                state.given_up.append(name)
                lost.add(name)


def study_tasks(
    engines: int, blocks: int, *, median_s: float = 300.0, sigma: float = 0.5, seed: int = 1
) -> list[Task]:
    """Return the stages of a study in their running order: A B, B A, with load stages of one GPU.

    Times of load stages are lognormal around ``median_s``; the others take what is usual.
    """
    rng = np.random.default_rng(seed)
    tasks = [Task("host", 1, 30.0)]

    def add(name: str, gpus: int, seconds: float, needs: tuple[str, ...]) -> None:
        tasks.append(Task(name, gpus, seconds, needs, len(tasks)))

    names = [f"e{n}" for n in range(engines)]
    for name in names:
        add(f"install-{name}", 1, 120.0, ())
    for name in names:
        add(f"launch-{name}", 1, 180.0, (f"install-{name}",))
    for block in range(blocks):
        for name in names if block % 2 == 0 else reversed(names):
            seconds = float(rng.lognormal(np.log(median_s), sigma))
            add(f"load-{name}-b{block}", 1, seconds, (f"install-{name}",))
    measured = tuple(t.name for t in tasks)
    add("compare", 0, 20.0, measured)
    add("claims", 0, 10.0, ("compare",))
    add("report", 0, 30.0, ("claims",))
    return tasks


def longest_first(tasks: Sequence[Task]) -> list[Task]:
    """Return the same tasks in the order that fills a cluster best, which is not the study's."""
    return [
        replace(task, order=place)
        for place, task in enumerate(sorted(tasks, key=lambda t: -t.seconds))
    ]


def table(rows: Iterable[tuple[str, Sequence[Task], Cluster]], seeds: int = 20) -> list[str]:
    """Return lines of a Markdown table: makespan against the bound, medians over seeds."""
    heads = ["cluster", "failures", "bound, min", "makespan, min", "against the bound"]
    heads += ["stages taken again", "work lost"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for label, tasks, cluster in rows:
        count = 1 if cluster.hours_between_failures is None else seeds  # nothing else is random
        found = [Simulation(tasks, cluster, seed=s, retries=5).run() for s in range(count)]
        useful = sum(t.gpus * t.seconds for t in tasks)
        cells: Mapping[str, float] = {
            "failures": float(np.median([o.host_failures for o in found])),
            "span": float(np.median([o.makespan_s for o in found])) / 60,
            "again": float(np.median([o.taken_again for o in found])),
            "lost": float(np.median([o.wasted_gpu_s for o in found])) / useful,
        }
        bound_min = found[0].bound_s / 60
        lines.append(
            f"| {label} | {cells['failures']:.0f} | {bound_min:.1f} | {cells['span']:.1f} "
            f"| {cells['span'] / bound_min:.3f} | {cells['again']:.0f} | {cells['lost']:.1%} |"
        )
    return lines


def main() -> int:
    """Print the table of docs/scale.md."""
    tasks = study_tasks(engines=10, blocks=50)
    pairs = [
        ("1 host of 1 GPU", Cluster(1, 1)),
        ("1 host of 8 GPUs", Cluster(1, 8)),
        ("8 hosts of 8 GPUs", Cluster(8, 8)),
        ("8 x 8, a host fails every 24 h", Cluster(8, 8, 24)),
        ("8 x 8, a host fails every 4 h", Cluster(8, 8, 4)),
        ("8 x 8, a host fails every hour", Cluster(8, 8, 1)),
        ("64 x 1, a host fails every 4 h", Cluster(64, 1, 4)),
    ]
    rows = [(label, tasks, cluster) for label, cluster in pairs]
    rows.insert(3, ("8 x 8, longest stages first", longest_first(tasks), Cluster(8, 8)))
    sys.stdout.write("\n".join(table(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
