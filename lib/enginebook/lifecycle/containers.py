"""Engines in containers: the command lines of docker, podman and apptainer around the engine's own.

The container shares the host's network (the engine binds 127.0.0.1 as ever) and memory segments,
sees the model read-only and its working folder, both under the same paths as outside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from enginebook.engines.base import Command, ModelFiles
from enginebook.engines.recipes import ContainerEnvironment, Recipe
from enginebook.engines.registry import adapter
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle import proctree
from enginebook.lifecycle.installation import Installation
from enginebook.lifecycle.logged import Log

Runtime = Literal["docker", "podman", "apptainer"]
RUNTIMES: tuple[Runtime, ...] = ("docker", "podman", "apptainer")
ASK_TIMEOUT_S = 15.0
VERSION_TIMEOUT_S = 300.0
LAUNCHERS = Path(__file__).parent.parent / "engines" / "launchers"


@dataclass(frozen=True)
class Box:
    """One container of one server.

    Attributes
    ----------
    name
        By which the runtime knows it; the end of the server removes it.
    gpu
        Whether it sees the NVIDIA GPUs.
    """

    runtime: Runtime
    image: str
    name: str
    gpu: bool
    read_only: tuple[Path, ...]
    writable: tuple[Path, ...]

    @classmethod
    def of(
        cls, runtime: Runtime, image: str, token: str, *, gpu: bool, model: ModelFiles, work: Path
    ) -> Box:
        """Return the container that serves a model with a working folder."""
        places = {model.path, model.tokenizer_dir, LAUNCHERS}
        return cls(runtime, image, f"enginebook-{token}", gpu, tuple(sorted(places)), (work,))

    def wrap(self, command: Command) -> Command:
        """Return the command that runs an engine's command and variables inside the container.

        Variables go by name, so that no secret stands on a command line.
        """
        if self.runtime == "apptainer":
            return self._apptainer(command)
        argv = [self.runtime, "run", "--rm", "--init", "--name", self.name]
        argv += ["--network", "host", "--ipc", "host"]
        argv += self._gpu_flags() + self._user_flags()
        for place in self.read_only:
            argv += ["--volume", f"{place}:{place}:ro"]
        for place in self.writable:
            argv += ["--volume", f"{place}:{place}"]
        for name in sorted(command.env):
            argv += ["--env", name]
        entry, *arguments = command.argv
        argv += ["--workdir", str(self.writable[0]), "--entrypoint", entry, self.image]
        return Command((*argv, *arguments), command.env)

    def _gpu_flags(self) -> list[str]:
        if not self.gpu:
            return []
        return ["--gpus", "all"] if self.runtime == "docker" else ["--device", "nvidia.com/gpu=all"]

    def _user_flags(self) -> list[str]:
        """Let files in the working folder belong to the user, not to root."""
        if self.runtime == "podman":
            return ["--userns", "keep-id"]
        return ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]

    def _apptainer(self, command: Command) -> Command:
        argv = ["apptainer", "exec", "--cleanenv", *(["--nv"] if self.gpu else [])]
        for place in self.read_only:
            argv += ["--bind", f"{place}:{place}:ro"]
        for place in self.writable:
            argv += ["--bind", f"{place}:{place}"]
        argv += ["--pwd", str(self.writable[0]), self._apptainer_image()]
        passed = {f"APPTAINERENV_{name}": value for name, value in command.env.items()}
        return Command((*argv, *command.argv), passed)

    def _apptainer_image(self) -> str:
        return self.image if self.image.endswith(".sif") else f"docker://{self.image}"

    def cleanup(self) -> list[str]:
        """Return the command that removes the container, whatever became of its client."""
        return [] if self.runtime == "apptainer" else [self.runtime, "rm", "--force", self.name]

    def pids(self) -> list[int]:
        """Return the engine's processes as the host sees them; below a daemon, not below us."""
        if self.runtime == "apptainer":
            return []
        asked = [self.runtime, "inspect", "--format", "{{.State.Pid}}", self.name]
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            said = subprocess.run(
                asked, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True
            )
            first = int(said.stdout)
            return [first, *(p.pid for p in proctree.descendants(first))] if first else []
        return []


def works(runtime: str) -> bool:
    """Return whether a runtime is installed and its service answers."""
    if shutil.which(runtime) is None:
        return False
    asked = [runtime, "--version"] if runtime == "apptainer" else [runtime, "info"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(asked, capture_output=True, timeout=ASK_TIMEOUT_S, check=False)
        return done.returncode == 0
    return False


def runtime_named(name: str) -> Runtime:
    """Return a runtime by name.

    Raises
    ------
    InputError
        When there is none of that name.
    """
    for runtime in RUNTIMES:
        if runtime == name:
            return runtime
    raise InputError(f"{name!r} is no container runtime", f"use one of {', '.join(RUNTIMES)}")


def choose(environment: ContainerEnvironment) -> Runtime:
    """Return the runtime to use.

    Raises
    ------
    InputError
        When none works, or the one that is asked for does not.
    """
    wanted = RUNTIMES if environment.runtime == "auto" else (environment.runtime,)
    for runtime in wanted:
        if works(runtime):
            return runtime
    raise InputError(
        f"no container runtime works here (tried: {', '.join(wanted)})",
        "install docker, podman or apptainer and start its service, or use a venv recipe",
    )


def prepare(recipe: Recipe, environment: ContainerEnvironment, log: Log) -> Installation:
    """Fetch the image and ask the engine in it for its version.

    Raises
    ------
    InputError
        Without a working runtime.
    InstallError
        When the image cannot be fetched, or holds no such engine.
    """
    runtime = choose(environment)
    if runtime != "apptainer":
        _pull(runtime, environment.image, log)
    version = _version(recipe, environment, runtime)
    return Installation(
        python=Path(environment.python),
        directory=None,
        version=version,
        seconds=round(sum(s.seconds for s in log.steps), 3),
        bytes=_image_bytes(runtime, environment.image),
        packages=None,
        torch=None,
        kind="container",
        installer=runtime,
        reused=not log.steps,
        log=log.path if log.steps else None,
        steps=tuple(log.steps),
        image=environment.image,
    )


def _pull(runtime: Runtime, image: str, log: Log) -> None:
    there = subprocess.run(
        [runtime, "image", "inspect", image], capture_output=True, timeout=60, check=False
    )
    if there.returncode == 0:
        return
    log.say(f"fetching the image {image} with {runtime}")
    if log.run("image", [runtime, "pull", image]):
        raise log.failure(
            f"{runtime} could not fetch {image}",
            f"check the network and the name, or load it from a file: {runtime} load",
        )


def _image_bytes(runtime: Runtime, image: str) -> int | None:
    asked = [runtime, "image", "inspect", "--format", "{{.Size}}", image]
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
        return int(said.stdout)
    return None


def _version(recipe: Recipe, environment: ContainerEnvironment, runtime: Runtime) -> str:
    code = ["-c", adapter(recipe.engine).version_code()]
    inside: Sequence[str]
    if runtime == "apptainer":
        box = Box(runtime, environment.image, "", gpu=False, read_only=(), writable=(Path("/"),))
        inside = box.wrap(Command((environment.python, *code))).argv
    else:
        entry = ["--rm", "--network", "none", "--entrypoint", environment.python]
        inside = [runtime, "run", *entry, environment.image, *code]
    done = subprocess.run(
        inside, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise InstallError(
            f"{environment.image} does not tell {recipe.title}'s version: {done.stderr[-600:]}",
            "correct environment.image or environment.python of the recipe",
        )
    return (done.stdout.strip().splitlines() or ["unknown"])[-1]
