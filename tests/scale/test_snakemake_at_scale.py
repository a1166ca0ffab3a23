"""Five hundred cells on sixty-four GPUs under Snakemake itself; stages sleep instead of measuring.

The Snakefile, the resources and the retries are the product's own. The figures of docs/scale.md
come from ``pytest -m soak -s tests/scale/test_snakemake_at_scale.py``.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from scheduling import Cluster, Simulation, Task, bound, study_tasks

from enginebook.pipeline.plan import Plan, Stage
from enginebook.pipeline.snake import SNAKEFILE

GPUS = 64
A_HOST = 8  # GPUs, and so stages that end together when it fails
FASTER = 40.0
SLEEPER = """\
import json, os, pathlib, sys, time
plan, outputs, name, attempt = sys.argv[1:]
here = pathlib.Path(outputs)
seconds = json.loads((here / "seconds.json").read_text())[name]
def note(what):
    with (here / "diary.txt").open("a") as diary:
        diary.write(f"{what} {name} {os.getpid()} {time.monotonic()}\\n")
note("start")
time.sleep(seconds)
note("end")
marker, = (s for s in json.loads(pathlib.Path(plan).read_text())["stages"] if s["name"] == name)
folder = here / "stages" / f"{name}-{marker['digest']}"
folder.mkdir(parents=True, exist_ok=True)
(folder / "stage.json").write_text("{}")
"""


def lay_out(folder: Path, tasks: list[Task]) -> None:
    """Write a plan of such stages, what they ask for, and the program that stands for each."""
    package = folder / "code" / "enginebook" / "pipeline"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "stage.py").write_text(SLEEPER)
    stages = tuple(
        Stage(t.name, t.name.split("-")[0], "0" * 12, needs=t.needs, order=t.order) for t in tasks
    )
    plan = Plan("r", {}, {}, "h", stages)
    (folder / "plan.json").write_text(json.dumps(asdict(plan)))
    asked = {t.name: {"machine": 0, "resources": {"gpu": t.gpus}} for t in tasks}
    (folder / "asked.json").write_text(json.dumps(asked))
    seconds = {t.name: t.seconds / FASTER for t in tasks}
    (folder / "seconds.json").write_text(json.dumps(seconds))


def snakemake(folder: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "snakemake", "study", "--snakefile", str(SNAKEFILE)]
    words += ["--directory", str(folder), "--cores", str(GPUS + 1), "--jobs", str(GPUS + 1)]
    words += ["--resources", f"gpu={GPUS}", "--scheduler", "greedy", "--rerun-triggers", "mtime"]
    words += ["--retries", "5", "--keep-going", "--nolock", "--quiet", "all", "--config"]
    words += [f"plan={folder / 'plan.json'}", f"asked={folder / 'asked.json'}", "exclusive="]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            words, env={**os.environ, "PYTHONPATH": str(folder / "code")}, stdout=log, stderr=log
        )


def rows(folder: Path) -> list[tuple[str, str, int, float]]:
    diary = folder / "diary.txt"
    lines = diary.read_text().splitlines() if diary.is_file() else []
    found = [line.split() for line in lines]
    return [(what, name, int(pid), float(at)) for what, name, pid, at in found]


def end_a_host(folder: Path, rng: random.Random, died: set[int]) -> None:
    """Kill as many running stages as a host holds, and note them among those that died."""
    seen = rows(folder)
    over = died | {pid for what, _, pid, _ in seen if what == "end"}
    running = [pid for what, _, pid, _ in seen if what == "start" and pid not in over]
    for pid in rng.sample(running, A_HOST):
        with suppress(ProcessLookupError):  # it came to its end just now
            os.kill(pid, signal.SIGKILL)
            died.add(pid)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("failures", [0, 3])
def test_snakemake_keeps_sixty_four_gpus_busy(tmp_path: Path, failures: int) -> None:
    tasks = study_tasks(engines=10, blocks=50)
    lay_out(tmp_path, tasks)
    process = snakemake(tmp_path)
    rng, died = random.Random(failures), set[int]()
    try:
        for _ in range(failures):
            time.sleep(20)
            end_a_host(tmp_path, rng, died)
        assert process.wait(600) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
    seen = rows(tmp_path)
    starts = Counter(name for what, name, _, _ in seen if what == "start")
    ends = Counter(name for what, name, _, _ in seen if what == "end")
    assert ends == Counter(t.name for t in tasks)  # each is done once, whatever failed
    assert sum(starts.values()) - len(tasks) == len(died)
    assert len(died) >= failures * A_HOST - 1
    moments = sorted((at, 1 if what == "start" else -1) for what, _, _, at in seen)
    if not failures:
        assert max(itertools.accumulate(change for _, change in moments)) == GPUS
    span_s = moments[-1][0] - moments[0][0]
    least_s = bound(tasks, GPUS) / FASTER
    assert span_s >= least_s
    simulated_s = Simulation(tasks, Cluster(8, 8)).run().makespan_s / FASTER
    print(
        f"\n{failures} host failures, {len(died)} stages taken again: {span_s:.1f} s; bound "
        f"{least_s:.1f} s ({span_s / least_s:.3f}), simulated without failures {simulated_s:.1f} s"
    )
