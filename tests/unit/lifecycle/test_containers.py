"""Containers: command lines of the three runtimes, and a whole life under a daemon's stand-in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from enginebook.engines.base import Command, ModelFiles
from enginebook.engines.recipes import ContainerEnvironment, Recipe
from enginebook.errors import EngineError, InputError, InstallError
from enginebook.lifecycle import containers, leases
from enginebook.lifecycle.environments import install, installed
from enginebook.lifecycle.server import serve

FAKE_DOCKER = Path(__file__).with_name("fake_docker.py")
MODEL = ModelFiles("m", Path("/models/m"), "hf", Path("/models/m"))
COMMAND = Command(("python3", "-m", "engine", "--port", "1"), {"HF_TOKEN": "s3cret", "A": "1"})


def box(runtime: str, *, gpu: bool = False) -> containers.Box:
    return containers.Box.of(
        runtime, "vllm/vllm-openai@sha256:ab", "t1", gpu=gpu, model=MODEL, work=Path("/scratch/x")
    )


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_run_lines(runtime):
    wrapped = box(runtime).wrap(COMMAND)
    line = " ".join(wrapped.argv)
    assert line.startswith(f"{runtime} run --rm --init --name enginebook-t1 --network host")
    assert "--volume /models/m:/models/m:ro" in line
    assert "--volume /scratch/x:/scratch/x " in line
    assert f"{containers.LAUNCHERS}:ro" in line
    assert "--env HF_TOKEN" in line
    assert "s3cret" not in line
    assert wrapped.env["HF_TOKEN"] == "s3cret"
    end = "--entrypoint python3 vllm/vllm-openai@sha256:ab -m engine --port 1"
    assert line.endswith(end)
    assert box(runtime).cleanup() == [runtime, "rm", "--force", "enginebook-t1"]


def test_gpus_are_passed_by_each_runtimes_own_flag():
    assert "--gpus" not in box("docker").wrap(COMMAND).argv
    assert "--gpus all" in " ".join(box("docker", gpu=True).wrap(COMMAND).argv)
    assert "--device nvidia.com/gpu=all" in " ".join(box("podman", gpu=True).wrap(COMMAND).argv)
    assert "--nv" in box("apptainer", gpu=True).wrap(COMMAND).argv


def test_files_belong_to_the_user():
    assert f"--user {os.getuid()}:{os.getgid()}" in " ".join(box("docker").wrap(COMMAND).argv)
    assert "--userns keep-id" in " ".join(box("podman").wrap(COMMAND).argv)


def test_apptainer_line():
    wrapped = box("apptainer").wrap(COMMAND)
    line = " ".join(wrapped.argv)
    assert line.startswith("apptainer exec --cleanenv --bind")
    assert "--bind /models/m:/models/m:ro" in line
    assert line.endswith("docker://vllm/vllm-openai@sha256:ab python3 -m engine --port 1")
    assert wrapped.env == {"APPTAINERENV_HF_TOKEN": "s3cret", "APPTAINERENV_A": "1"}
    assert box("apptainer").cleanup() == []
    assert box("apptainer").pids() == []


def test_sif_files_are_taken_as_they_are():
    made = containers.Box.of(
        "apptainer", "/images/x.sif", "t", gpu=False, model=MODEL, work=Path("/w")
    )
    assert "/images/x.sif" in made.wrap(COMMAND).argv


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """Put the stand-in on the PATH, alone; return its state's folder."""
    state = tmp_path / "docker-state"
    tools = tmp_path / "bin"
    for folder in (state, tools):
        folder.mkdir()
    program = tools / "docker"
    program.write_text(f"#!{sys.executable}\n{FAKE_DOCKER.read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_DOCKER_STATE", str(state))
    (state / "service").touch()
    return state


def recipe(folder: Path, **changed: str) -> Recipe:
    environment = {"image": "engine:1", "python": sys.executable, **changed}
    return Recipe(
        name="boxed",
        directory=folder,
        engine="fake",
        title="Boxed",
        version="9.9",
        environment=ContainerEnvironment(kind="container", **environment),
        model_format="hf",
    )


def test_image_is_fetched_once_and_asked_for_the_version(docker, tmp_path, fake):
    first = install(recipe(tmp_path))
    assert (first.version, first.kind, first.installer) == ("9.9", "container", "docker")
    assert (first.image, first.bytes, first.reused) == ("engine:1", 12345, False)
    assert [s.name for s in first.steps] == ["image"]
    assert install(recipe(tmp_path)).reused
    assert (docker / "calls").read_text().count("pull") == 1
    assert installed(recipe(tmp_path)) is None


def test_image_that_cannot_be_fetched(docker, tmp_path, fake):
    (docker / "no-network").touch()
    with pytest.raises(InstallError, match=r"could not fetch engine:1(.|\n)*no such host"):
        install(recipe(tmp_path))


def test_no_runtime(docker, tmp_path, fake):
    (docker / "service").unlink()
    with pytest.raises(InputError, match="no container runtime works here"):
        install(recipe(tmp_path))
    with pytest.raises(InputError, match="tried: podman"):
        install(recipe(tmp_path, runtime="podman"))


def test_image_without_the_engine(docker, tmp_path, fake):
    with pytest.raises(InstallError, match="does not tell Boxed's version"):
        install(recipe(tmp_path, python="false"))


def boxed(fake, **options):
    environment = {"kind": "container", "image": "engine:1", "python": sys.executable}
    return fake(environment=environment, **options)


def test_serves_from_a_container_and_removes_it(docker, tmp_path, fake, model):
    with serve(boxed(fake), model, directory=tmp_path / "s") as server:
        (name,) = [p.name for p in docker.glob("enginebook-*")]
        engine = int((docker / name).read_text())
        assert engine in server.processes()
        assert "--name" in server.command.argv
        assert server.command.env["FAKE_SECRET_TOKEN"] == "***"
        inside = Path(f"/proc/{engine}/environ").read_bytes()
        assert b"FAKE_SECRET_TOKEN=hunter2" in inside
        assert b"HF_HUB_OFFLINE=1" in inside
    assert not Path(f"/proc/{engine}").exists()
    assert not list(docker.glob("enginebook-*"))
    assert f"rm --force {name}" in (docker / "calls").read_text()
    assert leases.all_noted() == []


def test_crash_in_a_container_is_explained(docker, tmp_path, fake, model):
    with (
        pytest.raises(EngineError, match="GPU's memory is not enough"),
        serve(boxed(fake, fault="crash-at-start"), model, directory=tmp_path / "s"),
    ):
        pass
    assert not list(docker.glob("enginebook-*"))
