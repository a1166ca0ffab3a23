"""Stages as Kubernetes jobs over a volume that all of them share, submitted with ``kubectl``.

Snakemake's own plugin for Kubernetes assumes that pods share no file system, which would send a
study's raw records through object storage; its plugin for any cluster takes commands instead, and
those are in `executors_kubectl`.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from enginebook.errors import EngineError, InputError
from enginebook.pipeline import executors_kubectl
from enginebook.pipeline.executors_node import CLASS_VARIABLE, identity_of, is_class
from enginebook.pipeline.executors_resources import Resources
from enginebook.pipeline.plan import Plan
from enginebook.store import digest_of, write_json
from enginebook.study_file import closest

MOST_JOBS = 1000
LATENCY_WAIT_S = 60


@dataclass(frozen=True)
class KubernetesOptions:
    """Settings of ``--cluster KEY=VALUE``.

    Attributes
    ----------
    image
        Container image that holds this checkout and its environment at the same places as here.
    volume
        ``CLAIM:PATH`` of the volume with the outputs folder, mounted at the same path here.
    gpu_resource
        What the device plugin calls a GPU.
    node_selector
        ``LABEL=VALUE`` of the nodes that may be used.
    token_secret
        ``SECRET:KEY`` with a model hub's token; pods get it as HF_TOKEN where it exists.
    shm_gb
        Size of /dev/shm, through which processes of one engine share tensors.
    memory_mb, cpus, minutes
        Instead of what is estimated for each stage.
    retries
        How often a stage is taken again whose pod ended without a result of its own.
    poll_s
        Seconds between looks at the jobs.
    """

    image: str
    volume: str
    namespace: str = "default"
    service_account: str = "default"
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: str = ""
    token_secret: str = "enginebook-hub:token"  # noqa: S105 - the name of a secret
    shm_gb: int = 16
    memory_mb: int = 0
    cpus: int = 0
    minutes: int = 0
    retries: int = 2
    poll_s: int = 10

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Return checked options.

        Raises
        ------
        InputError
            For unknown names, values of the wrong kind, and where image or volume are missing.
        """
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name not in known:
                raise InputError(f"--cluster {name}: unknown", closest(name, known))
            whole = text.isascii() and text.isdigit()
            if known[name].type == "int" and not whole:
                raise InputError(f"--cluster {name}={text}: not a whole number", "give 0 or more")
            values[name] = int(text) if known[name].type == "int" else text
        missing = [name for name in ("image", "volume") if name not in given]
        if missing:
            raise InputError(
                f"--executor kubernetes needs {' and '.join(missing)}",
                "give --cluster image=REGISTRY/NAME:TAG --cluster volume=CLAIM:/path/of/outputs",
            )
        return cls(**values)


class Kubernetes:
    """The nodes of a Kubernetes cluster that share a volume."""

    name = "kubernetes"

    def __init__(
        self, options: KubernetesOptions, outputs: Path, *, jobs: int | None, machine: str | None
    ) -> None:
        self.options, self.outputs, self.jobs = options, outputs, jobs
        if machine is None:
            raise InputError(
                "--executor kubernetes: which class of node do the figures belong to?",
                "print it on such a node with python -m enginebook.pipeline.executors_node and "
                "give it with --host-id",
            )
        mounted = Path(options.volume.partition(":")[2] or "/nowhere")
        if mounted not in (outputs, *outputs.parents):
            raise InputError(
                f"--cluster volume={options.volume} does not hold the outputs folder {outputs}",
                "mount the volume here at the path at which pods mount it, and give --output there",
            )
        if shutil.which("kubectl") is None:
            raise InputError("kubectl was not found", "install it, with access to the cluster")
        self.given = machine
        self.run = f"eb-{digest_of(str(outputs))}"
        self._settings_file = outputs / "nodes" / "kubernetes.json"

    def machine(self) -> tuple[dict[str, Any], str]:
        """Return the class that the user named; each stage compares its node with it."""
        return {"named": self.given}, identity_of(self.given)

    def arguments(self) -> list[str]:
        """Return the plugin's arguments, and leave the settings where its commands find them."""
        write_json(self._settings_file, self._settings())
        base = [sys.executable, "-m", "enginebook.pipeline.executors_kubectl"]
        commands = {
            w: shlex.join([*base, w, str(self._settings_file)]) for w in ("submit", "status")
        }
        return [
            *("--executor", "cluster-generic", "--jobs", str(self.jobs or MOST_JOBS)),
            *("--cluster-generic-submit-cmd", commands["submit"]),
            *("--cluster-generic-status-cmd", commands["status"]),
            *("--retries", str(self.options.retries), "--latency-wait", str(LATENCY_WAIT_S)),
            *("--seconds-between-status-checks", str(self.options.poll_s)),
        ]

    def _settings(self) -> dict[str, Any]:
        return {
            **asdict(self.options),
            "run": self.run,
            "outputs": str(self.outputs),
            "class": self.given if is_class(self.given) else "",
        }

    def table(self, plan: Plan, resources: Mapping[str, Resources]) -> dict[str, Any]:
        """Return what each stage asks of the cluster."""
        return {
            s.name: {"machine": 0, "resources": self._asks(resources[s.name])} for s in plan.stages
        }

    def _asks(self, wanted: Resources) -> dict[str, Any]:
        o = self.options
        return {
            "gpu": wanted.gpus,
            "cpus": o.cpus or wanted.cpus,
            "mem_mb": o.memory_mb or wanted.memory_mb,
            "runtime": o.minutes or wanted.minutes,
        }

    def environment(self) -> dict[str, str]:
        """Return the class that every node must be of."""
        return {CLASS_VARIABLE: self.given} if is_class(self.given) else {}

    def cleanup(self) -> list[str]:
        """Return the command that ends this folder's jobs, for when nobody else can."""
        module = "enginebook.pipeline.executors_kubectl"
        return [sys.executable, "-m", module, "end", str(self._settings_file)]

    def end_jobs(self, timeout_s: float) -> None:
        """Delete this folder's jobs and wait until their pods are gone."""
        try:
            executors_kubectl.end(self._settings(), timeout_s)
        except subprocess.SubprocessError as error:
            raise EngineError(f"jobs could not be deleted: {error}", "look at kubectl") from None

    def warnings(self) -> list[str]:
        """Return what a reader of the run's log should know."""
        return ["this executor has been tried against schemas and a stand-in, on no cluster"]
