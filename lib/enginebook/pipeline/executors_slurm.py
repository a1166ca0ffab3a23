"""Stages as Slurm jobs: what is asked of Slurm, on which node a block is measured, how jobs end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from enginebook.errors import EngineError, InputError
from enginebook.pipeline.executors_node import CLASS_VARIABLE, identity_of, is_class
from enginebook.pipeline.executors_resources import Resources, gpus_of
from enginebook.pipeline.plan import EXCLUSIVE, Plan, Stage
from enginebook.store import digest_of, read_json, write_json
from enginebook.study import Study
from enginebook.study_file import closest

COMMAND_TIMEOUT_S = 60.0
USABLE_STATES = ("idle", "mix", "alloc", "comp")
MOST_JOBS = 1000
LATENCY_WAIT_S = 60
"""A file that another node wrote may take so long to be seen on a network disk."""


@dataclass(frozen=True)
class SlurmOptions:
    """Settings of ``--cluster KEY=VALUE``.

    Attributes
    ----------
    partition, account, qos, constraint, reservation
        As of ``sbatch``; the cluster's defaults where not given.
    extra
        Further words for ``sbatch``, such as ``--exclude=node7``.
    memory_mb, cpus, minutes
        Instead of what is estimated for each stage.
    nodes
        ``block`` keeps all engines of a block on one node of the class, ``any`` leaves it to Slurm.
    retries
        How often a stage is taken again whose job ended without a result of its own.
    poll_s
        Seconds between looks at the queue.
    wait_s
        How long to wait for a node that says what it is, before the study starts.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    extra: str = ""
    memory_mb: int | None = None
    cpus: int | None = None
    minutes: int | None = None
    nodes: str = "block"
    retries: int = 2
    poll_s: int = 10
    wait_s: int = 3600

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Return checked options.

        Raises
        ------
        InputError
            For unknown names and values of the wrong kind.
        """
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name not in known:
                raise InputError(f"--cluster {name}: unknown", closest(name, known))
            values[name] = _number(name, text) if "int" in str(known[name].type) else text
        if values.get("nodes", "block") not in {"block", "any"}:
            raise InputError(f"--cluster nodes={values['nodes']}: unknown", "use block or any")
        return cls(**values)


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InputError(f"--cluster {name}={text}: not a whole number", "give one of 0 or more")
    return int(text)


class Slurm:
    """The nodes of a Slurm cluster that share this outputs folder."""

    name = "slurm"

    def __init__(
        self,
        options: SlurmOptions,
        study: Study,
        outputs: Path,
        *,
        jobs: int | None,
        machine: str | None,
        exclusive: bool,
    ) -> None:
        _slurm(["sinfo", "--version"])  # no Slurm here: say so before anything else
        self.options, self.study, self.jobs = options, study, jobs
        self.exclusive, self.given = exclusive, machine
        self.outputs, self.prefix = outputs, prefix_of(outputs)
        self._class: str | None = machine if machine and is_class(machine) else None
        self._notes: list[str] = []

    # -- whose figures

    def machine(self) -> tuple[dict[str, Any], str]:
        """Ask a node what it is; the figures belong to nodes of its class."""
        if self.given:
            return {"named": self.given}, identity_of(self.given)
        answer = self._answer()
        self._class = str(answer["class"])
        self._notes.append(f"node {answer['node']} stands for class {self._class}")
        return dict(answer["facts"]), self._class

    def _answer(self) -> dict[str, Any]:
        """Return what a node says of itself; asked once, so that a resumed study need not wait."""
        probe = self._probe()
        known = self.outputs / "nodes" / f"{digest_of(probe)}.json"
        if not known.is_file():
            write_json(known, json.loads(_slurm(probe, self.options.wait_s).splitlines()[-1]))
        return dict(read_json(known))

    def _probe(self) -> list[str]:
        gpus = max(map(gpus_of, self.study.engines))
        o = self.options
        named = {
            "partition": o.partition,
            "account": o.account,
            "qos": o.qos,
            "constraint": o.constraint,
            "reservation": o.reservation,
            "gpus": str(gpus) if gpus else None,
        }
        wanted = [f"--{key}={value}" for key, value in named.items() if value]
        return [
            *("srun", "--quiet", "--ntasks=1", "--nodes=1", "--time=5"),
            *(f"--job-name={self.prefix}-probe", *wanted, *o.extra.split()),
            *(sys.executable, "-m", "enginebook.pipeline.executors_node"),
        ]

    # -- Snakemake

    def arguments(self) -> list[str]:
        """Return the plugin's arguments."""
        o = self.options
        return [
            *("--executor", "slurm", "--jobs", str(self.jobs or MOST_JOBS)),
            *("--retries", str(o.retries), "--latency-wait", str(LATENCY_WAIT_S)),
            *("--slurm-init-seconds-before-status-checks", str(o.poll_s)),
            *("--seconds-between-status-checks", str(o.poll_s)),
            *("--slurm-jobname-prefix", self.prefix, "--slurm-status-command", status_command()),
            # Jobs are taken again by Snakemake, which knows what is done; never by Slurm as well.
            "--slurm-no-requeue",
            *(("--slurm-reservation", o.reservation) if o.reservation else ()),
        ]

    def table(self, plan: Plan, resources: Mapping[str, Resources]) -> dict[str, Any]:
        """Return what each stage asks of Slurm, and its node where blocks stay together."""
        pins = assign_nodes(plan.stages, self._nodes() if self.options.nodes == "block" else [])
        return {
            s.name: {
                "machine": 0,
                "resources": self._asks(s, resources[s.name]),
                "first": f"--nodelist={pins[s.name]}" if s.name in pins else "",
            }
            for s in plan.stages
        }

    def _asks(self, stage: Stage, wanted: Resources) -> dict[str, Any]:
        o = self.options
        alone = self.exclusive and stage.kind in EXCLUSIVE
        named = {
            "slurm_partition": o.partition,
            "slurm_account": o.account,
            "qos": o.qos,
            "constraint": o.constraint,
            "gpu": wanted.gpus or None,
        }
        return {
            "mem_mb": o.memory_mb or wanted.memory_mb,
            "runtime": o.minutes or wanted.minutes,
            "cpus_per_task": o.cpus or wanted.cpus,
            "slurm_extra": " ".join(x for x in (o.extra, "--exclusive" if alone else "") if x),
            **{key: value for key, value in named.items() if value is not None},
        }

    def _nodes(self) -> list[str]:
        where = [f"--partition={self.options.partition}"] if self.options.partition else []
        lines = _slurm(["sinfo", "--noheader", "--Node", "--format=%N|%t|%f|%R", *where])
        default = None if self.options.partition else default_partition()
        return usable_nodes(lines, self.options.constraint, default)

    def environment(self) -> dict[str, str]:
        """Return the class that every node must be of."""
        return {CLASS_VARIABLE: self._class} if self._class else {}

    # -- the end

    def cleanup(self) -> list[str]:
        """Return the command that ends this folder's jobs, for when nobody else can."""
        return [sys.executable, "-m", "enginebook.pipeline.executors_slurm", self.prefix]

    def end_jobs(self, timeout_s: float) -> None:
        """End this folder's jobs and wait until Slurm has let go of them."""
        end_jobs(self.prefix, timeout_s)

    def warnings(self) -> list[str]:
        """Return what a reader of the run's log should know of its nodes."""
        shared = (
            "GPUs are this study's alone, but other jobs may compute on the same nodes; "
            "--exclusive asks for whole nodes"
        )
        return self._notes + ([] if self.exclusive else [shared])


def prefix_of(outputs: Path) -> str:
    """Return the beginning of the names of all jobs of one outputs folder."""
    return f"enginebook-{digest_of(str(outputs))}"


def usable_nodes(lines: str, constraint: str | None, partition: str | None) -> list[str]:
    """Return the nodes of ``sinfo`` that are up and have the wanted features.

    Parameters
    ----------
    lines
        ``name|state|features|partition`` a line.
    constraint
        Features joined by ``&``; anything more than that is Slurm's own to judge, and then no node
        is returned.
    """
    wanted = constraint.split("&") if constraint else []
    if any(set(feature) & set("|*[]()") for feature in wanted):
        return []
    found = []
    for line in lines.splitlines():
        name, state, features, where = line.strip().split("|")
        up = state.rstrip("*~#!%$@^-") in USABLE_STATES and not state.endswith("*")
        if up and set(wanted) <= set(features.split(",")) and partition in {None, where}:
            found.append(name)
    return sorted(set(found))


def default_partition() -> str | None:
    """Return the partition that Slurm takes when none is named."""
    for name in _slurm(["sinfo", "--noheader", "--format=%P"]).split():
        if name.endswith("*"):
            return name.removesuffix("*")
    return None


def status_command() -> str:
    """Return what tells how jobs ended: ``sacct``, or ``squeue`` where Slurm keeps no accounts."""
    words = ["sacct", "--allocations", "--noheader", "--format=jobid"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return "squeue"
    # With accounting switched off it says so and still ends with 0.
    return "sacct" if done.returncode == 0 and not done.stderr.strip() else "squeue"


def assign_nodes(stages: Sequence[Stage], nodes: Sequence[str]) -> dict[str, str]:
    """Return the node of each stage that measures.

    All engines of one block are measured on one node, and all launches on one, so that what is
    compared differs in the engine alone; blocks go round the nodes, so that a node's own quirks
    show as spread between blocks. With fewer than two nodes nothing needs to be assigned.
    """
    if len(nodes) < 2:  # noqa: PLR2004
        return {}
    pins = {}
    for stage in stages:
        if stage.kind in {"host", "launch"}:
            pins[stage.name] = nodes[0]
        elif stage.kind == "load":
            pins[stage.name] = nodes[int(stage.parameters["block"]) % len(nodes)]
    return pins


def own_jobs(listing: str, prefix: str) -> list[str]:
    """Return the ids of the jobs in a listing ``id|name`` whose names begin so."""
    rows = (line.strip().split("|", 1) for line in listing.splitlines() if "|" in line)
    return [number for number, name in rows if name.startswith(prefix)]


def jobs_of(prefix: str) -> list[str]:
    """Return the ids of the user's waiting and running jobs of one outputs folder."""
    user = str(os.getuid())
    return own_jobs(_slurm(["squeue", "--noheader", "--user", user, "--format=%i|%j"]), prefix)


def end_jobs(prefix: str, timeout_s: float) -> list[str]:
    """Cancel jobs, wait until they are gone or the time is over, and return those still there."""
    deadline = time.monotonic() + timeout_s
    left = jobs_of(prefix)
    if left:
        _slurm(["scancel", *left])
    while left and time.monotonic() < deadline:
        time.sleep(0.5)
        left = jobs_of(prefix)
    return left


def _slurm(words: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Return what a command of Slurm prints."""
    try:
        done = subprocess.run(
            list(words), capture_output=True, text=True, timeout=timeout_s, check=True
        )
    except FileNotFoundError:
        raise InputError(
            f"{words[0]} was not found: this machine is no host of a Slurm cluster",
            "start the run on a login node, or leave --executor slurm away",
        ) from None
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"{words[0]} did not answer within {timeout_s:.0f} s",
            "look at squeue: no node may be free; --cluster wait_s=N waits longer, and "
            "--host-id names the class of node instead of asking one",
        ) from None
    except subprocess.CalledProcessError as error:
        raise EngineError(
            f"{words[0]} failed: {error.stderr.strip()[-500:]}", "correct the --cluster settings"
        ) from None
    return done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """End the jobs whose names begin with the given prefix; 1 when some are still there."""
    (prefix,) = argv if argv is not None else sys.argv[1:]
    return 1 if end_jobs(prefix, timeout_s=30.0) else 0


if __name__ == "__main__":
    sys.exit(main())
