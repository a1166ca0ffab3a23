"""Filling one engine environment: installer, PyTorch, lock, proof, and the marker last."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from enginebook.engines.recipes import IndexEnvironment, Recipe, VenvEnvironment
from enginebook.errors import InstallError
from enginebook.lifecycle import installers, proof, requirements
from enginebook.lifecycle.bundles import Bundle
from enginebook.lifecycle.installation import (
    Installation,
    count_packages,
    disk_bytes,
    network_received_bytes,
    write_marker,
)
from enginebook.lifecycle.logged import Log
from enginebook.lifecycle.torch_wheel import TorchSource, install_torch

Made = VenvEnvironment | IndexEnvironment


@dataclass(frozen=True)
class Site:
    """One environment that is to be made.

    Attributes
    ----------
    base
        The interpreter that makes it.
    bundle
        Where wheels come from on a host without internet; None uses the indexes.
    """

    recipe: Recipe
    environment: Made
    base: Path
    directory: Path
    log: Log
    bundle: Bundle | None = None


def build(site: Site) -> Installation:
    """Make the environment; on any failure nothing of it is left.

    Raises
    ------
    InputError
        When the disk is too small.
    InstallError
        When an installer failed, or what was installed cannot be imported.
    """
    recipe, directory, log = site.recipe, site.directory, site.log
    if directory.exists():
        log.say(f"{directory.name} is not whole or was to be made again: removing it")
        shutil.rmtree(directory)
    requirements.check_disk(directory, site.environment.disk_gb, recipe.title)
    started, received = time.monotonic(), network_received_bytes()
    try:
        installer, source = _fill(site)
        exact = isinstance(site.environment, VenvEnvironment)
        version = proof.prove(recipe, site.environment, installer.python, log, exact=exact)
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
        kind=site.environment.kind,
        installer=installer.name,
        reused=False,
        log=log.path,
        steps=tuple(log.steps),
        received_bytes=_received_since(received),
    )
    write_marker(installation)
    log.say(f"{recipe.title} {version} is installed ({installation.seconds:.0f} s)")
    return installation


def _received_since(before: int | None) -> int | None:
    now = network_received_bytes()
    return now - before if before is not None and now is not None else None


def _fill(site: Site) -> tuple[installers.Installer, TorchSource | None]:
    """Fill the environment with the first installer that can."""
    names = installers.choose()
    wheels = site.bundle.wheels if site.bundle else None
    for name in names:
        installer = installers.make(name, site.directory, site.base, wheels)
        try:
            return installer, _fill_with(installer, site)
        except InstallError:
            if name == names[-1]:
                raise
            site.log.say(f"{name} could not do it: trying again with {names[-1]}")
            site.log.steps.clear()
            shutil.rmtree(site.directory, ignore_errors=True)
    raise AssertionError("no installer")  # choose() never returns an empty list


def _fill_with(installer: installers.Installer, site: Site) -> TorchSource | None:
    recipe, environment, log = site.recipe, site.environment, site.log
    log.say(f"making an environment for {recipe.title} {recipe.version} with {installer.name}")
    if log.run("empty environment", installer.create()):
        raise log.failure("the environment could not be made", "install Python's venv module")
    if isinstance(environment, IndexEnvironment):
        _from_index(installer, environment, log)
        return None
    source = None
    if site.bundle is not None:
        source = _bundled_torch(installer, site, site.bundle)
    elif environment.torch is not None:
        source = install_torch(environment.torch, recipe.torch_lock_path, installer, log)
    assert recipe.lock_path is not None  # noqa: S101 - the recipe's own check
    _sync(installer, recipe.lock_path, log)
    return source


def _sync(installer: installers.Installer, lock: Path, log: Log) -> None:
    log.say(f"installing {lock.name}")
    if log.run(f"packages of {lock.name}", installer.sync(lock)):
        raise log.failure(
            f"{installer.name} could not install {lock.name}",
            "check the network and the index settings, or install from a bundle",
        )


def _bundled_torch(
    installer: installers.Installer, site: Site, bundle: Bundle
) -> TorchSource | None:
    if bundle.torch_source is None:
        return None
    lock = bundle.torch_lock(site.log.path.parent) or site.recipe.torch_lock_path
    assert lock is not None  # noqa: S101 - the bundle's maker used one of the two
    _sync(installer, lock, site.log)
    return TorchSource(f"the bundle (made from {bundle.torch_source})", bundle.torch_sha256())


def _from_index(installer: installers.Installer, environment: IndexEnvironment, log: Log) -> None:
    url = str(environment.index_url)
    log.say(f"installing {environment.requirement} from {url}")
    if log.run("packages", installer.from_index(environment.requirement, url)):
        raise log.failure(
            f"{environment.requirement} could not be installed from {url}",
            "check that this index can be reached from here; it has no lock of ours",
        )
