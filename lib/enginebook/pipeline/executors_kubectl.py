"""What Snakemake calls for a stage on Kubernetes: submit its job, tell how it is, end all jobs.

``python -m enginebook.pipeline.executors_kubectl submit|status|end SETTINGS [...]``; standard
library only, because ``status`` is called for every job again and again.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROPERTIES = "# properties = "
TIMEOUT_S = 60.0
MOST_MISSES = 60
"""Questions in a row without an answer, over all jobs of a run."""
KEPT_S = 3600
"""A finished job's pod can be looked at for so long."""
PASSED_ON = ("ENGINEBOOK_CACHE", "ENGINEBOOK_ROOT")


def job_manifest(
    settings: Mapping[str, Any], stage: str, script: str, asked: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Return a stage's Job.

    Requests equal limits and CPUs are whole, so that the pod is of the class Guaranteed, whose
    CPUs a kubelet with the static CPU manager pins.

    Parameters
    ----------
    settings
        The fields of `executors_kubernetes.KubernetesOptions`, and ``run``, ``outputs``, ``class``.
    script
        Snakemake's job script, on the shared volume.
    asked
        ``gpu``, ``cpus``, ``mem_mb`` and ``runtime`` (minutes).
    """
    labels = {"app.kubernetes.io/name": "enginebook", "enginebook/run": settings["run"]}
    labels["enginebook/stage"] = stage[:63].rstrip("-_.")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": settings["namespace"], "labels": labels},
        "spec": {
            "backoffLimit": 0,  # Snakemake takes stages again, knowing what is done
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod(settings, script, asked),
            },
        },
    }


def _pod(settings: Mapping[str, Any], script: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    claim, _, path = str(settings["volume"]).partition(":")
    label, _, value = str(settings["node_selector"]).partition("=")
    shm = {"medium": "Memory", "sizeLimit": f"{settings['shm_gb']}Gi"}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": settings["service_account"],
        "automountServiceAccountToken": False,
        # Of the pod and not of the job, whose clock also counts the wait for a GPU.
        "activeDeadlineSeconds": 60 * int(asked["runtime"]),
        # Time for a stage to shut its notebook and its engine down.
        "terminationGracePeriodSeconds": 60,
        "containers": [
            {
                "name": "stage",
                "image": settings["image"],
                "command": ["/bin/sh", script],
                "workingDir": settings["outputs"],
                "env": _env(settings),
                "resources": _amounts(settings, asked),
                "securityContext": {"allowPrivilegeEscalation": False},
                "volumeMounts": [
                    {"name": "outputs", "mountPath": path},
                    {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - inside the container
                ],
            }
        ],
        "volumes": [
            {"name": "outputs", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "shm", "emptyDir": shm},
        ],
    }
    if label:
        pod["nodeSelector"] = {label: value}
    if asked["gpu"]:
        pod["tolerations"] = [{"key": settings["gpu_resource"], "operator": "Exists"}]
    return pod


def _env(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    secret, _, key = str(settings["token_secret"]).partition(":")
    token = {"secretKeyRef": {"name": secret, "key": key or "token", "optional": True}}
    env: list[dict[str, Any]] = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "HF_TOKEN", "valueFrom": token},
    ]
    if settings["class"]:
        env.append({"name": "ENGINEBOOK_NODE_CLASS", "value": settings["class"]})
    return env + [{"name": n, "value": os.environ[n]} for n in PASSED_ON if n in os.environ]


def _amounts(settings: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    amounts = {"cpu": str(asked["cpus"]), "memory": f"{asked['mem_mb']}M"}
    if asked["gpu"]:
        amounts[settings["gpu_resource"]] = str(asked["gpu"])
    return {"requests": amounts, "limits": amounts}


def state_of(job: Mapping[str, Any]) -> str:
    """Return ``success``, ``failed`` or ``running`` of a Job as the cluster tells it.

    ``FailureTarget`` comes while the pod is still being ended; ``Failed`` when it is gone.
    """
    conditions = job.get("status", {}).get("conditions") or []
    true = {c["type"] for c in conditions if c.get("status") == "True"}
    if "Complete" in true:
        return "success"
    return "failed" if "Failed" in true else "running"


def properties_of(script: str) -> dict[str, Any]:
    """Return what Snakemake wrote of a job into its script: rule, resources ..."""
    line = next(x for x in script.splitlines() if x.startswith(PROPERTIES))
    return dict(json.loads(line.removeprefix(PROPERTIES)))


def submit(settings: Mapping[str, Any], script: Path) -> str:
    """Create a stage's job; return its name."""
    properties = properties_of(script.read_text(encoding="utf-8"))
    stage = re.sub(r"[^a-z0-9-]+", "-", str(properties["rule"]).lower()).strip("-")
    # A new name each time: the job of an attempt before may still be there.
    name = f"{settings['run']}-{stage}"[:50].rstrip("-") + f"-{secrets.token_hex(3)}"
    manifest = job_manifest(settings, stage, str(script), properties["resources"], name)
    kubectl(settings, "create", "-f", "-", give=json.dumps(manifest))
    return name


def status(settings: Mapping[str, Any], name: str) -> str:
    """Return how a job is; one that somebody deleted has failed."""
    found = kubectl(settings, "get", "job", name, "--ignore-not-found", "-o", "json")
    return state_of(json.loads(found)) if found.strip() else "failed"


def patient_status(settings: Mapping[str, Any], name: str, misses: Path) -> str:
    """Return how a job is; while the cluster does not answer, ``running``.

    Snakemake ends the whole run at a status command that fails, and an API server that starts
    anew takes a minute.

    Raises
    ------
    subprocess.SubprocessError
        When it has not answered `MOST_MISSES` times in a row; ``misses`` keeps the count.
    """
    try:
        found = status(settings, name)
    except subprocess.SubprocessError as error:
        count = int(misses.read_text()) + 1 if misses.is_file() else 1
        misses.write_text(str(count))
        if count >= MOST_MISSES:
            raise
        sys.stderr.write(f"the cluster does not tell of {name} ({error}); asked again later\n")
        return "running"
    misses.unlink(missing_ok=True)
    return found


def end(settings: Mapping[str, Any], timeout_s: float) -> None:
    """Delete all jobs of one outputs folder, and wait until their pods are gone."""
    selector = f"--selector=enginebook/run={settings['run']}"
    words = ["delete", "jobs", selector, "--cascade=foreground", "--ignore-not-found"]
    kubectl(settings, *words, f"--timeout={int(timeout_s)}s", timeout_s=timeout_s + TIMEOUT_S)


def kubectl(
    settings: Mapping[str, Any], *words: str, give: str = "", timeout_s: float = TIMEOUT_S
) -> str:
    """Return what kubectl prints.

    Raises
    ------
    subprocess.SubprocessError
        When it fails or does not answer.
    """
    argv = ["kubectl", "--namespace", str(settings["namespace"]), *words]
    done = subprocess.run(
        argv, input=give, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    return done.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Do what Snakemake, or the guard of a run that is gone, asks for."""
    order, file, *rest = argv if argv is not None else sys.argv[1:]
    settings = json.loads(Path(file).read_text(encoding="utf-8"))
    if order == "end":
        end(settings, timeout_s=30.0)
        return 0
    if order == "submit":
        answer = submit(settings, Path(rest[0]))
    else:
        answer = patient_status(settings, rest[0], Path(file).with_suffix(".misses"))
    sys.stdout.write(answer + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
