"""One environment an engine: made from a recipe's hashed lock, proved, and marked whole last."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from enginebook import paths, store
from enginebook.engines.recipes import IndexEnvironment, Recipe, VenvEnvironment
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle import environ, found, installers, requirements
from enginebook.lifecycle.installation import (
    Installation,
    count_packages,
    disk_bytes,
    read_marker,
    write_marker,
)
from enginebook.lifecycle.logged import Log, Progress, silent
from enginebook.lifecycle.torch_wheel import TorchSource, install_torch

PROOF_TIMEOUT_S = 600.0
PROOF = """
import importlib, importlib.metadata, json, sys
names = json.loads(sys.argv[2])
for name in names:
    importlib.import_module(name)
print("version:" + importlib.metadata.version(sys.argv[1]))
"""
Made = VenvEnvironment | IndexEnvironment


def environments_dir() -> Path:
    """Return the cache's folder of engine environments."""
    return paths.cache_dir() / "engines"


def install(
    recipe: Recipe, *, on_progress: Progress | None = None, force: bool = False
) -> Installation:
    """Make a recipe's environment, or return the one that is there.

    Parameters
    ----------
    recipe
        What to install.
    on_progress
        Called with each line worth showing.
    force
        Remove an environment that is there and make it again.

    Raises
    ------
    InputError
        The host lacks what the recipe requires; nothing was done.
    InstallError
        An installer failed, or what was installed cannot be imported.
    """
    environment = recipe.environment
    if not isinstance(environment, (VenvEnvironment, IndexEnvironment)):
        return found.installation(recipe)
    base = _check_host(recipe, environment)
    directory = environment_dir(recipe, base)
    with _alone(directory, on_progress or silent) as handle:
        ready = None if force else read_marker(directory)
        if ready is not None:
            return ready
        log = Log(_log_path(directory), on_progress or silent, handle.fileno())
        return _make(recipe, environment, base, directory, log)


def installed(recipe: Recipe) -> Installation | None:
    """Return a recipe's installation if it is there and whole; never installs."""
    environment = recipe.environment
    if not isinstance(environment, (VenvEnvironment, IndexEnvironment)):
        return found.installation(recipe)
    with contextlib.suppress(InputError):
        return read_marker(environment_dir(recipe, requirements.find_python(environment.python)))
    return None


def environment_dir(recipe: Recipe, base: Path) -> Path:
    """Return where the environment lives: its name changes with all that decides its contents."""
    environment = recipe.environment
    locks = [p for p in (recipe.lock_path, recipe.torch_lock_path) if p is not None]
    torch = getattr(environment, "torch", None)
    contents = {
        "locks": [store.sha256_of_file(p) for p in locks],
        "torch": torch.model_dump(mode="json") if torch else None,
        "requirement": getattr(environment, "requirement", None),
        "python": requirements.python_version(base),
        "platform": f"{requirements.this_platform()} {platform.libc_ver()[0]}",
    }
    return environments_dir() / f"{recipe.name}-{store.digest_of(contents)}"


def _check_host(recipe: Recipe, environment: Made) -> Path:
    """Return the base interpreter, or refuse with everything that stands in the way."""
    against = requirements.obstacles(environment.requires)
    if against:
        raise InputError(
            f"{recipe.title} cannot be installed here: {'; '.join(o.what for o in against)}",
            "; ".join(dict.fromkeys(o.remedy for o in against)),
        )
    return requirements.find_python(environment.python)


def _log_path(directory: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%S")
    return directory.parent / "logs" / f"{directory.name}-{stamp}-{os.getpid()}.log"


@contextlib.contextmanager
def _alone(directory: Path, say: Progress) -> Iterator[IO[str]]:
    """Hold the lock of one environment; installers inherit it, so that it outlives this process."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f".{directory.name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another installation of {directory.name} is running: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle


def _make(recipe: Recipe, environment: Made, base: Path, directory: Path, log: Log) -> Installation:
    if directory.exists():
        log.say(f"{directory.name} is not whole or was to be made again: removing it")
        shutil.rmtree(directory)
    requirements.check_disk(directory, environment.disk_gb, recipe.title)
    started = time.monotonic()
    try:
        installer, source = _fill(recipe, environment, base, directory, log)
        version = _prove(recipe, environment, installer.python, log)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    installation = Installation(
        python=installer.python,
        directory=directory,
        version=version,
        seconds=round(time.monotonic() - started, 3),
        bytes=disk_bytes(directory),
        packages=count_packages(installer.python),
        torch=source.text if source else None,
        torch_sha256=source.sha256 if source else None,
        kind=environment.kind,
        installer=installer.name,
        reused=False,
        log=log.path,
        steps=tuple(log.steps),
    )
    write_marker(installation)
    log.say(f"{recipe.title} {version} is installed ({installation.seconds:.0f} s)")
    return installation


def _fill(
    recipe: Recipe, environment: Made, base: Path, directory: Path, log: Log
) -> tuple[installers.Installer, TorchSource | None]:
    """Fill the environment with the first installer that can."""
    names = installers.choose()
    for name in names:
        installer = installers.make(name, directory, base)
        try:
            return installer, _fill_with(installer, recipe, environment, log)
        except InstallError:
            if name == names[-1]:
                raise
            log.say(f"{name} could not do it: trying again with {names[-1]}")
            log.steps.clear()
            shutil.rmtree(directory, ignore_errors=True)
    raise AssertionError("no installer")  # choose() never returns an empty list


def _fill_with(
    installer: installers.Installer, recipe: Recipe, environment: Made, log: Log
) -> TorchSource | None:
    log.say(f"making an environment for {recipe.title} {recipe.version} with {installer.name}")
    if log.run("empty environment", installer.create()):
        raise log.failure("the environment could not be made", "install Python's venv module")
    if isinstance(environment, IndexEnvironment):
        _from_index(installer, environment, log)
        return None
    source = None
    if environment.torch is not None:
        source = install_torch(environment.torch, recipe.torch_lock_path, installer, log)
    assert recipe.lock_path is not None  # noqa: S101 - the recipe's own check
    log.say(f"installing {environment.lock}")
    if log.run(f"packages of {environment.lock}", installer.sync(recipe.lock_path)):
        raise log.failure(
            f"{installer.name} could not install {environment.lock}",
            "check the network and the index settings, or install from a bundle",
        )
    return source


def _from_index(installer: installers.Installer, environment: IndexEnvironment, log: Log) -> None:
    url = str(environment.index_url)
    log.say(f"installing {environment.requirement} from {url}")
    if log.run("packages", installer.from_index(environment.requirement, url)):
        raise log.failure(
            f"{environment.requirement} could not be installed from {url}",
            "check that this index can be reached from here; it has no lock of ours",
        )


def _prove(recipe: Recipe, environment: Made, python: Path, log: Log) -> str:
    """Import the engine in its own environment and return the version that it says."""
    log.say(f"proving that {', '.join(environment.imports)} can be imported")
    code = [PROOF, environment.distribution, json.dumps(list(environment.imports))]
    argv = [str(python), "-c", *code]
    if log.run(
        "proof by import",
        argv,
        env={**environ.inherited(), **recipe.env},
        timeout_s=PROOF_TIMEOUT_S,
    ):
        raise log.failure(f"{recipe.title} was installed but cannot be imported", "see the log")
    said = [line for line in log.tail(50).splitlines() if line.startswith("version:")]
    version = said[-1].removeprefix("version:") if said else ""
    if isinstance(environment, VenvEnvironment) and version != recipe.version:
        raise InstallError(
            f"{recipe.name}: the environment holds {environment.distribution} {version}, "
            f"the recipe says {recipe.version}",
            f"correct version: or the lock {environment.lock}",
        )
    return version


def run_in(installation: Installation, code: str, env: Mapping[str, str], timeout_s: float) -> str:
    """Run Python source in an engine's environment and return what it printed.

    Raises
    ------
    InstallError
        When it fails; the message holds its last lines.
    """
    assert installation.python is not None  # noqa: S101 - callers have started an engine with it
    done: Any = subprocess.run(
        [str(installation.python), "-c", code],
        capture_output=True,
        text=True,
        env={**environ.inherited(), **env},
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise InstallError(
            f"{installation.python} failed: {done.stderr[-800:]}", "install it again"
        )
    return str(done.stdout).strip()
