"""Manifests against the schema, and a study through a stand-in of kubectl. No cluster was used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from enginebook.errors import InputError
from enginebook.lifecycle.host import host_facts
from enginebook.pipeline import executors_kubectl
from enginebook.pipeline.executors_kubectl import job_manifest, properties_of, state_of
from enginebook.pipeline.executors_kubernetes import Kubernetes, KubernetesOptions
from enginebook.pipeline.executors_node import node_class
from enginebook.pipeline.executors_profile import profile_of
from enginebook.pipeline.plan import EXCLUSIVE, Plan
from enginebook.pipeline.snake import SNAKEFILE, Snake

kubernetes_validate = pytest.importorskip("kubernetes_validate")

MANIFESTS = sorted((Path(__file__).parents[2] / "deploy" / "kubernetes").glob("*.yaml"))
PROFILE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "profile" / "config.yaml"
OPTIONS = {"image": "registry.example/enginebook:0.1.0", "volume": "claim:/shared"}
SETTINGS = {
    **KubernetesOptions.read(OPTIONS).__dict__,
    "run": "eb-0123456789ab",
    "outputs": "/shared/outputs",
    "class": "0123456789ab",
}
ASKED = {"gpu": 2, "cpus": 8, "mem_mb": 64000, "runtime": 30}


def check(manifest: dict[str, Any]) -> None:
    for version in ("1.29", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_the_manifests_follow_the_schema(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        check(document)


def test_there_are_manifests() -> None:
    assert {p.name for p in MANIFESTS} == {
        "load-workers.yaml", "storage.yaml", "study.yaml", "study-store.yaml",
    }  # fmt: skip


def test_the_schema_refuses_what_is_wrong() -> None:
    manifest = job_manifest(SETTINGS, "load-a-b0", "/shared/s.sh", ASKED, "name")
    manifest["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        check(manifest)


def test_secrets_are_references_only() -> None:
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text()):
            assert document["kind"] != "Secret"
            for word in ("TOKEN", "SECRET", "KEY"):
                for row in env_of(document):
                    if word in row["name"]:
                        assert "secretKeyRef" in row["valueFrom"]


def env_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    containers = document["spec"].get("template", {}).get("spec", {}).get("containers", [])
    return [row for c in containers for row in c.get("env", [])]


def test_a_stage_gets_gpus_shared_memory_and_its_node() -> None:
    manifest = job_manifest(SETTINGS, "load-a-b0", "/shared/s.sh", ASKED, "name")
    check(manifest)
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    amounts = container["resources"]
    assert amounts["limits"] == amounts["requests"]
    assert amounts["limits"]["nvidia.com/gpu"] == "2"
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    env = {row["name"]: row for row in container["env"]}
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"]["optional"]
    assert env["ENGINEBOOK_NODE_CLASS"]["value"] == "0123456789ab"
    assert manifest["spec"]["backoffLimit"] == 0
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def test_a_stage_without_gpus_asks_for_none() -> None:
    settings = {**SETTINGS, "node_selector": "pool=big"}
    manifest = job_manifest(settings, "compare", "/shared/s.sh", {**ASKED, "gpu": 0}, "name")
    check(manifest)
    pod = manifest["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "big"}
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"]
    assert "tolerations" not in pod


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        (None, "running"),
        ([{"type": "Complete", "status": "True"}], "success"),
        ([{"type": "Complete", "status": "False"}], "running"),
        ([{"type": "FailureTarget", "status": "True"}], "running"),
        ([{"type": "Failed", "status": "True"}], "failed"),
    ],
)
def test_states(conditions: list[dict[str, str]] | None, state: str) -> None:
    assert state_of({"status": {"conditions": conditions}}) == state
    assert state_of({}) == "running"


def test_properties_come_from_the_job_script() -> None:
    script = '#!/bin/sh\n# properties = {"rule": "load_a", "resources": {"gpu": 1}}\ntrue\n'
    assert properties_of(script) == {"rule": "load_a", "resources": {"gpu": 1}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs image and volume"),
        ({**OPTIONS, "imagee": "x"}, "did you mean 'image'"),
        ({**OPTIONS, "cpus": "many"}, "not a whole number"),
    ],
)
def test_wrong_settings(given: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as error:
        KubernetesOptions.read(given)
    assert said in str(error.value)


def test_the_profile_is_what_a_run_would_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its submit command makes the jobs that are held against the schema above."""
    (tmp_path / "kubectl").write_text("#!/bin/sh\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    outputs = tmp_path / "outputs"
    options = KubernetesOptions.read({**OPTIONS, "volume": f"claim:{tmp_path}"})
    executor = Kubernetes(options, outputs, jobs=None, machine="0123456789ab")
    run = outputs / "runs" / "RUN"
    snake = Snake(
        plan=Plan("RUN", {}, {}, "h", ()), plan_file=run / "plan.json", outputs=outputs,
        directory=run / "snakemake", exclusive=sorted(EXCLUSIVE), executor=executor, resources={},
    )  # fmt: skip
    text = yaml.safe_dump(profile_of(snake.settings))
    places = {str(SNAKEFILE): "/opt/enginebook/lib/enginebook/pipeline/Snakefile"}
    places |= {sys.executable: "python", str(outputs): "/shared/outputs"}
    for place, shown in places.items():
        text = text.replace(place, shown)
    assert yaml.safe_load(PROFILE.read_text()) == yaml.safe_load(text)


def test_a_volume_without_the_outputs_is_refused(tmp_path: Path) -> None:
    options = KubernetesOptions.read(OPTIONS)
    with pytest.raises(InputError, match="does not hold the outputs folder"):
        Kubernetes(options, tmp_path, jobs=None, machine="0123456789ab")
    with pytest.raises(InputError, match="which class of node"):
        Kubernetes(options, tmp_path, jobs=None, machine=None)


def test_time_runs_when_the_pod_does_and_labels_are_valid() -> None:
    manifest = job_manifest(SETTINGS, "load-" + "a" * 57 + "-b0", "/shared/s.sh", ASKED, "name")
    check(manifest)
    assert "activeDeadlineSeconds" not in manifest["spec"]
    assert manifest["spec"]["template"]["spec"]["activeDeadlineSeconds"] == 1800
    label = manifest["metadata"]["labels"]["enginebook/stage"]
    assert len(label) <= 63
    assert label[-1].isalnum()


def test_a_cluster_that_does_not_answer_for_a_while_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(SETTINGS))
    program, mode = tmp_path / "kubectl", tmp_path / "mode"
    program.write_text(f'#!/bin/sh\n[ "$(cat {mode})" = up ] && echo "{{}}" && exit\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(executors_kubectl, "MOST_MISSES", 3)

    def ask(state: str) -> int:
        mode.write_text(state)
        return executors_kubectl.main(["status", str(settings), "some-job"])

    for state in ("down", "down", "up", "down", "down"):
        assert ask(state) == 0
        assert capsys.readouterr().out == "running\n"
    with pytest.raises(subprocess.CalledProcessError):
        ask("down")


# -- a study through the stand-in


def start(root: Path, pods: Path, **env: str) -> subprocess.Popen[str]:
    programs = pods / "bin"
    programs.mkdir()
    fake = Path(__file__).with_name("fake_kubectl.py")
    (programs / "kubectl").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake}" "$@"\n')
    (programs / "kubectl").chmod(0o755)
    words = [sys.executable, "-m", "enginebook.cli", "run", str(root / "params" / "mini.yaml")]
    words += ["--executor", "kubernetes", "--host-id", node_class(host_facts())]
    words += ["--cluster", "image=registry.example/enginebook:0.1.0", "--cluster", "poll_s=1"]
    words += ["--cluster", f"volume=claim:{root}", "--json", str(root / "out.json")]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        words, cwd=root, env={**os.environ, "FAKE_KUBECTL": str(pods), "PATH": path, **env},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def begun(root: Path, stage: str) -> bool:
    diary = root / "outputs" / "diary.txt"
    return diary.is_file() and f"start {stage} " in diary.read_text()


def wait_for(true: Any, process: subprocess.Popen[str], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def shrink(root: Path) -> None:
    file = root / "params" / "mini.yaml"
    study = yaml.safe_load(file.read_text())
    engines = [{"name": "one", "recipe": "fake"}]
    file.write_text(yaml.safe_dump({**study, "engines": engines, "blocks": 1}))


@pytest.fixture
def pods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pods")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_study_runs_as_pods_and_a_lost_one_is_taken_again(checkout: Path, pods: Path) -> None:
    shrink(checkout)
    process = start(checkout, pods, SLEEP_LOAD="4")
    wait_for(lambda: begun(checkout, "load-one-b0"), process)
    (victim,) = pods.glob("*-load-one-b0-*.json")
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["FAKE_KUBECTL"] = str(pods)
    from fake_kubectl import delete  # noqa: PLC0415 - reads its folder when imported

    delete(victim.stem)
    out, err = process.communicate(timeout=600)
    outcome = json.loads((checkout / "out.json").read_text())
    assert outcome["exit_status"] == 0, out + err
    diary = (checkout / "outputs" / "diary.txt").read_text()
    assert diary.count("start load-one-b0 ") == 2
    places = [s["placement"] for s in outcome["stages"]]
    assert {p["node"] for p in places} == {"node-of-test"}
    assert all(p["job"].endswith("-pod") for p in places)
    assert (pods / "calls.log").read_text().count("create -f -") == len(places) + 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pods_end_with_a_run_that_is_killed(checkout: Path, pods: Path) -> None:
    shrink(checkout)
    process = start(checkout, pods, SLEEP_HOST="600")
    wait_for(lambda: begun(checkout, "host"), process)
    (pid,) = [int(p.read_text()) for p in pods.glob("*-host-*.pid")]
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    # These pods hang below the run's guard as well; that the job is gone is the command's doing.
    deadline = time.monotonic() + 60
    while list(pods.glob("*-host-*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
