"""Where a study's stages run: on this machine, or on the nodes of a cluster.

An executor answers four questions: which machine do the figures belong to, how is Snakemake told
to run stages there, what do the stages find in their environment, and how are jobs ended that
run elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from enginebook.engines.recipes import recipe_for
from enginebook.errors import InputError
from enginebook.lifecycle.host import host_facts, host_id
from enginebook.pipeline.executors_kubernetes import Kubernetes, KubernetesOptions
from enginebook.pipeline.executors_node import (
    CLASS_VARIABLE,
    SHARE_VARIABLE,
    identity_of,
    is_class,
)
from enginebook.pipeline.executors_resources import Resources, device_of, gpus_of, is_external
from enginebook.pipeline.executors_slurm import Slurm, SlurmOptions
from enginebook.pipeline.executors_topology import Host, bus_ids, read_host, shared_parts
from enginebook.pipeline.plan import EXCLUSIVE, Plan
from enginebook.study import Study

NAMES = ("local", "slurm", "kubernetes")
LOCAL_JOBS = 2
"""Jobs at once on this machine; those that measure are limited further."""


@dataclass(frozen=True)
class Wishes:
    """What a user asks of an executor.

    Attributes
    ----------
    jobs
        Measuring stages at once; None: one on this machine, as many as there are on a cluster.
    exclusive
        Whole machines for stages that measure: nobody else computes beside them.
    machine
        The class of node that the figures belong to, instead of asking a node.
    cluster
        Settings of the cluster, see `SlurmOptions` and `KubernetesOptions`.
    store
        Address of an object store where results meet, see `executors_store`.
    """

    jobs: int | None = None
    exclusive: bool = False
    machine: str | None = None
    cluster: Mapping[str, str] = field(default_factory=dict)
    store: str | None = None

    def words(self, executor: str) -> list[str]:
        """Return these wishes as words of a command line."""
        found = ["--executor", executor] if executor != "local" else []
        found += ["--jobs", str(self.jobs)] if self.jobs else []
        found += ["--exclusive"] if self.exclusive else []
        found += ["--host-id", self.machine] if self.machine else []
        for key, value in self.cluster.items():
            found += ["--cluster", f"{key}={value}"]
        found += ["--store", self.store] if self.store else []
        return found


class Executor(Protocol):
    """A place where stages run."""

    @property
    def name(self) -> str:
        """Return ``local``, ``slurm`` or ``kubernetes``."""

    def machine(self) -> tuple[dict[str, Any], str]:
        """Return the facts and the identity of the machine that the figures belong to."""

    def arguments(self) -> list[str]:
        """Return Snakemake's arguments."""

    def table(self, plan: Plan, resources: Mapping[str, Resources]) -> dict[str, Any]:
        """Return what the Snakefile asks for, by stage."""

    def environment(self) -> dict[str, str]:
        """Return variables for the stages."""

    def cleanup(self) -> list[str]:
        """Return a command that ends what is left elsewhere; empty when nothing can be."""

    def end_jobs(self, timeout_s: float) -> None:
        """End this run's jobs elsewhere and wait until they are gone."""

    def warnings(self) -> list[str]:
        """Return what makes the figures doubtful, in sentences."""


def executor_of(name: str, wishes: Wishes, study: Study, outputs: Path) -> Executor:
    """Return the executor of a run.

    Raises
    ------
    InputError
        When its plugin is missing or a wish cannot be fulfilled.
    """
    _require_one_at_a_time(name, wishes, study)
    if name == "local":
        return Local(wishes, study)
    _require_plugin(name)
    if name == "slurm":
        return Slurm(
            SlurmOptions.read(wishes.cluster),
            study,
            outputs,
            jobs=wishes.jobs,
            machine=wishes.machine,
            exclusive=wishes.exclusive,
        )
    options = KubernetesOptions.read(wishes.cluster)
    return Kubernetes(options, outputs, jobs=wishes.jobs, machine=wishes.machine)


def _require_one_at_a_time(name: str, wishes: Wishes, study: Study) -> None:
    """Refuse stages side by side whose loads would meet at a server that somebody else runs."""
    external = [e.name for e in study.engines if is_external(e)]
    usual = 1 if name == "local" else None
    jobs = 1 if name == "local" and wishes.exclusive else wishes.jobs or usual
    if external and jobs != 1:
        raise InputError(
            f"{', '.join(external)}: a server that somebody else runs would have to answer several "
            "stages at once",
            "give --jobs 1",
        )


PLUGINS = {"slurm": "slurm", "kubernetes": "cluster_generic"}


def _require_plugin(name: str) -> None:
    if find_spec(f"snakemake_executor_plugin_{PLUGINS[name]}") is None:
        raise InputError(
            f"--executor {name} needs a Snakemake plugin that is not installed",
            f"pip install 'enginebook[{name}]' into this environment",
        )


class Local:
    """The machine at hand: one measuring stage at a time, or several in parts of their own."""

    name = "local"

    def __init__(self, wishes: Wishes, study: Study, host: Host | None = None) -> None:
        if wishes.cluster:
            raise InputError(
                "--cluster has no meaning on this machine", "give --executor slurm or kubernetes"
            )
        self._machine = wishes.machine
        self._study = study
        self._jobs = 1 if wishes.exclusive else wishes.jobs or 1
        self._host = host
        if self._jobs > 1:
            self._check_side_by_side()

    def _check_side_by_side(self) -> None:
        self._host = self._host or read_host(bus_ids())
        fixed = [e.name for e in self._study.engines if "devices" in recipe_for(e).options]
        if fixed:
            raise InputError(
                f"--jobs {self._jobs}: option devices of {', '.join(fixed)}: stages side by side "
                "are given their GPUs",
                "leave devices away, or measure one at a time",
            )
        wanted = self._wanted()
        if 0 in wanted:
            raise InputError(
                f"--jobs {self._jobs}: engines that compute on CPUs cannot share this machine",
                "leave --jobs away, or take engines for GPUs only",
            )
        most = len(self._host.gpus) // max(wanted, default=1)
        if wanted and most < 2:  # noqa: PLR2004 - one stage alone is not side by side
            raise InputError(
                f"--jobs {self._jobs}: this machine's {len(self._host.gpus)} GPUs are too few for "
                f"stages that want {max(wanted)} each",
                "leave --jobs away",
            )
        if self._study.port:
            raise InputError(
                f"--jobs {self._jobs}: key port: {self._study.port} can serve one engine only",
                "set port: 0, so that each engine gets a free one",
            )

    def _wanted(self) -> list[int]:
        """Return the GPUs of each engine that computes; 0 for one that computes on CPUs."""
        return [gpus_of(e) for e in self._study.engines if device_of(e) != "none"]

    def machine(self) -> tuple[dict[str, Any], str]:
        """Return this machine's facts and their digest."""
        facts = host_facts()
        return facts, identity_of(self._machine) if self._machine else host_id(facts)

    def arguments(self) -> list[str]:
        """Return the limits of this machine."""
        jobs = max(LOCAL_JOBS, self._jobs)
        gpus = len(self._host.gpus) if self._host and self._host.gpus else None
        limits = [f"machine={self._jobs}", *([f"gpu={gpus}"] if gpus else [])]
        return [
            *("--executor", "local", "--cores", str(jobs), "--jobs", str(jobs)),
            *("--resources", *limits),
        ]

    def table(self, plan: Plan, resources: Mapping[str, Resources]) -> dict[str, Any]:
        """Return the GPUs of each stage; the host stage measures the whole machine."""
        found: dict[str, Any] = {}
        for stage in plan.stages:
            alone = stage.kind == "host"
            whole = self._jobs if alone else 1
            found[stage.name] = {
                "machine": whole if stage.kind in EXCLUSIVE else 0,
                "resources": {"gpu": resources[stage.name].gpus},
            }
        return found

    def environment(self) -> dict[str, str]:
        """Return the class that was named, and whether stages take parts of the machine."""
        found = {CLASS_VARIABLE: self._machine} if self._machine and is_class(self._machine) else {}
        return found | ({SHARE_VARIABLE: str(self._jobs)} if self._jobs > 1 else {})

    def cleanup(self) -> list[str]:
        """Return nothing: all that runs here is owned by the guard."""
        return []

    def end_jobs(self, timeout_s: float) -> None:
        """Do nothing: all that runs here is owned by the guard."""

    def warnings(self) -> list[str]:
        """Return which parts of this machine are shared by stages side by side."""
        if self._jobs == 1 or self._host is None:
            return []
        return shared_parts(self._host, self._jobs, max(self._wanted(), default=1))


__all__ = [
    "CLASS_VARIABLE",
    "NAMES",
    "SHARE_VARIABLE",
    "Executor",
    "Local",
    "Wishes",
    "executor_of",
]
