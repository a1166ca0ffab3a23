"""Stages as Kubernetes jobs, over a volume that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from enginebook.errors import InputError
from enginebook.pipeline.executors_node import CLASS_VARIABLE, identity_of, is_class
from enginebook.pipeline.executors_resources import Resources
from enginebook.pipeline.plan import Plan
from enginebook.study_file import closest

MOST_JOBS = 1000
PASSED_ON = ("HF_TOKEN", "ENGINEBOOK_CACHE", "ENGINEBOOK_ROOT", CLASS_VARIABLE)
"""Snakemake hands these to the pods as a secret of its own, where they are set."""


@dataclass(frozen=True)
class KubernetesOptions:
    """Settings of ``--cluster KEY=VALUE``.

    Attributes
    ----------
    image
        Container image that holds this checkout and its environment at the same places as here.
    volume
        ``CLAIM:PATH`` of the volume with the outputs folder, mounted at the same path here.
    gpu_vendor
        Whose device plugin hands out GPUs.
    retries
        How often a stage is taken again whose pod ended without a result of its own.
    """

    image: str
    volume: str
    namespace: str = "default"
    service_account: str | None = None
    gpu_vendor: str = "nvidia"
    retries: int = 2

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Return checked options.

        Raises
        ------
        InputError
            For unknown names, and where image or volume are missing.
        """
        known = [f.name for f in fields(cls)]
        values: dict[str, Any] = dict(given)
        for name in given:
            if name not in known:
                raise InputError(f"--cluster {name}: unknown", closest(name, known))
        missing = [name for name in ("image", "volume") if name not in given]
        if missing:
            raise InputError(
                f"--executor kubernetes needs {' and '.join(missing)}",
                "give --cluster image=REGISTRY/NAME:TAG --cluster volume=CLAIM:/path/of/outputs",
            )
        if "retries" in given:
            values["retries"] = int(given["retries"]) if given["retries"].isdigit() else 0
        return cls(**values)


class Kubernetes:
    """The nodes of a Kubernetes cluster that share a volume."""

    name = "kubernetes"

    def __init__(self, options: KubernetesOptions, jobs: int | None, machine: str | None) -> None:
        self.options, self.jobs = options, jobs
        if machine is None:
            raise InputError(
                "--executor kubernetes: which class of node do the figures belong to?",
                "print it on such a node with python -m enginebook.pipeline.executors_node and "
                "give it with --host-id",
            )
        self.given = machine

    @classmethod
    def of(
        cls, cluster: Mapping[str, str], outputs: Path, jobs: int | None, machine: str | None
    ) -> Self:
        """Return the executor for what a user gave."""
        options = KubernetesOptions.read(cluster)
        mounted = Path(options.volume.partition(":")[2])
        if mounted not in (outputs, *outputs.parents):
            raise InputError(
                f"--cluster volume={options.volume} does not hold the outputs folder {outputs}",
                "mount the volume here at the path at which pods mount it, and give --output there",
            )
        return cls(options, jobs, machine)

    def machine(self) -> tuple[dict[str, Any], str]:
        """Return the class that the user named; each stage compares its node with it."""
        return {"named": self.given}, identity_of(self.given)

    def arguments(self) -> list[str]:
        """Return the plugin's arguments."""
        o = self.options
        account = ["--kubernetes-service-account-name", o.service_account]
        return [
            *("--executor", "kubernetes", "--jobs", str(self.jobs or MOST_JOBS)),
            *("--kubernetes-namespace", o.namespace, "--container-image", o.image),
            *("--kubernetes-persistent-volumes", o.volume),
            *(word for word in account if o.service_account is not None and word is not None),
            *("--retries", str(o.retries), "--latency-wait", "60"),
            # The volume is a shared file system, at the same path in every pod.
            *("--shared-fs-usage", "input-output", "persistence", "sources", "source-cache"),
            *("software-deployment", "storage-local-copies", "--envvars", *PASSED_ON),
        ]

    def table(self, plan: Plan, resources: Mapping[str, Resources]) -> dict[str, Any]:
        """Return what each stage asks of the cluster."""
        return {
            s.name: {"machine": 0, "resources": self._asks(resources[s.name])} for s in plan.stages
        }

    def _asks(self, wanted: Resources) -> dict[str, Any]:
        # Not "scale": the pod then gets limits, without which no device plugin hands out a GPU.
        asked: dict[str, Any] = {"mem_mb": wanted.memory_mb, "scale": 0, "_cpus": wanted.cpus}
        if wanted.gpus:
            asked |= {"gpu": wanted.gpus, "gpu_manufacturer": self.options.gpu_vendor}
        return asked

    def environment(self) -> dict[str, str]:
        """Return the class that every node must be of."""
        return {CLASS_VARIABLE: self.given if is_class(self.given) else ""}

    def cleanup(self) -> list[str]:
        """Return nothing: Snakemake deletes its jobs when it is ended in order."""
        return []

    def end_jobs(self, timeout_s: float) -> None:
        """Do nothing: Snakemake deletes its jobs when it is ended in order."""

    def warnings(self) -> list[str]:
        """Return what a reader of the run's log should know."""
        return ["this executor was written from documentation and never run on a cluster"]
