"""Which node a stage runs on, and whether it is of the class that the study's figures belong to.

On a cluster the machine that submits is not the machine that measures. A node therefore says
itself what it is: ``python -m enginebook.pipeline.executors_node`` prints its facts and its class.
Nodes of one class have the same processors, memory and kind of GPU; they differ in serial numbers,
which is what makes a class wider than one host. Every stage compares its node with the class of
its plan before it measures anything.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from enginebook.errors import InputError
from enginebook.lifecycle.host import GIB, host_facts
from enginebook.store import digest_of

CLASS_VARIABLE = "ENGINEBOOK_NODE_CLASS"
SHARE_VARIABLE = "ENGINEBOOK_SHARE_HOST"
_DIGEST = re.compile(r"[0-9a-f]{12}")
_MEMORY_STEP_GIB = 8
"""Nodes of one kind differ in memory by what their firmware keeps."""


def class_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what nodes of one class have in common."""
    cpu = facts["cpu"]
    memory_gib = facts["memory"]["total_bytes"] / GIB
    return {
        "cpu": [cpu["model"], cpu["architecture"], cpu["logical_cores"], cpu["flags"]],
        "memory_gib": round(memory_gib / _MEMORY_STEP_GIB) * _MEMORY_STEP_GIB,
        # Kinds, not numbers: a job may be shown only those GPUs that it was given.
        "gpus": sorted({(g["name"], g["memory_bytes"]) for g in facts["gpus"]}),
    }


def node_class(facts: Mapping[str, Any]) -> str:
    """Return the identity of a node's class."""
    return digest_of(["node class", class_facts(facts)])


def identity_of(machine: str) -> str:
    """Return the identity that a user names: a class as printed, or a name of their own."""
    return machine if is_class(machine) else digest_of(["machine named by the user", machine])


def is_class(machine: str) -> bool:
    """Return whether a text is an identity as printed, and no name."""
    return _DIGEST.fullmatch(machine) is not None


def require_class(environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to measure on a node of another class than the plan's.

    Raises
    ------
    InputError
        Naming both; results of unlike machines must not stand side by side.
    """
    wanted = environ.get(CLASS_VARIABLE)
    if not wanted:
        return
    facts = host_facts()
    found = node_class(facts)
    if found != wanted:
        raise InputError(
            f"node {node_name()} is of class {found}, the study's figures are of class {wanted} "
            f"(this node: {json.dumps(class_facts(facts))})",
            "keep the study to one kind of node with --cluster constraint=... or partition=...",
        )


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of this node as its cluster calls it."""
    return environ.get("SLURMD_NODENAME") or environ.get("NODE_NAME") or socket.gethostname()


def placement(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return where this process runs: host, node, job, GPUs and CPUs; None where there is none."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return {
        "host": socket.gethostname(),
        "node": node_name(environ),
        "job": environ.get("SLURM_JOB_ID") or environ.get("POD_NAME"),
        "partition": environ.get("SLURM_JOB_PARTITION"),
        "class": environ.get(CLASS_VARIABLE),
        "gpus": environ.get("CUDA_VISIBLE_DEVICES"),
        "cpus": ranges(cpus) or None,
    }


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as Linux writes lists of CPUs: ``0-3,8``."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and n == parts[-1][-1] + 1:
            parts[-1][-1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def main() -> int:
    """Print this node's facts and class as one line of JSON."""
    facts = host_facts()
    answer = {"node": node_name(), "class": node_class(facts), "facts": facts}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
