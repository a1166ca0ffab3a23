"""One environment an engine: made from a recipe's hashed lock, proved, and marked whole last."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from enginebook import paths, store
from enginebook.engines.recipes import (
    BundleEnvironment,
    ContainerEnvironment,
    IndexEnvironment,
    Recipe,
    VenvEnvironment,
)
from enginebook.errors import InputError
from enginebook.lifecycle import bundled, bundles, containers, found, requirements
from enginebook.lifecycle.building import Site, build
from enginebook.lifecycle.installation import Installation, read_marker
from enginebook.lifecycle.logged import Log, Progress, silent


def environments_dir() -> Path:
    """Return the cache's folder of engine environments."""
    return paths.cache_dir() / "engines"


def install(
    recipe: Recipe,
    *,
    on_progress: Progress | None = None,
    force: bool = False,
    bundle: Path | None = None,
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
    bundle
        Take everything from this bundle (folder, .tar or .tar.000) instead of from the network.

    Raises
    ------
    InputError
        The host lacks what the recipe requires; nothing was done.
    InstallError
        An installer failed, or what was installed cannot be imported.
    """
    environment = recipe.environment
    if isinstance(environment, ContainerEnvironment):
        log = Log(_log_path(environments_dir() / recipe.name), on_progress or silent)
        return containers.prepare(recipe, environment, log)
    if isinstance(environment, BundleEnvironment):
        return _from_bundle(recipe, environment, on_progress or silent, force=force)
    if not isinstance(environment, (VenvEnvironment, IndexEnvironment)):
        return found.installation(recipe)
    base = _check_host(recipe, environment)
    directory = environment_dir(recipe, base)
    with _alone(directory, on_progress or silent) as handle:
        ready = None if force else read_marker(directory)
        if ready is not None:
            return ready
        log = Log(_log_path(directory), on_progress or silent, handle.fileno())
        site = Site(recipe, environment, base, directory, log)
        if bundle is None:
            return build(site)
        with bundles.opened(bundle) as opened:
            bundles.require_match(opened, recipe)
            return build(replace(site, bundle=opened))


def _from_bundle(
    recipe: Recipe, environment: BundleEnvironment, say: Progress, *, force: bool
) -> Installation:
    """Make an environment over a bundle's folders; recipes of one bundle take turns."""
    _require_host(recipe, environment)
    here = bundled.place(recipe, environment)
    with _alone(here.unpacked, say) as handle:
        ready = None if force else bundled.ready(here)
        if ready is not None:
            return ready
        return bundled.install(
            recipe, environment, here, Log(_log_path(here.directory), say, handle.fileno())
        )


def installed(recipe: Recipe) -> Installation | None:
    """Return a recipe's installation if it is there and whole; never installs."""
    environment = recipe.environment
    if isinstance(environment, BundleEnvironment):
        return bundled.ready(bundled.place(recipe, environment))
    if isinstance(environment, ContainerEnvironment):
        return None  # the runtime is not asked for what a look should answer at once
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
    # Named after the lock, so that recipes that differ in options alone share one environment.
    name = recipe.name if recipe.lock_path is None else recipe.lock_path.stem
    return environments_dir() / f"{name}-{store.digest_of(contents)}"


def _check_host(recipe: Recipe, environment: VenvEnvironment | IndexEnvironment) -> Path:
    """Return the base interpreter, or refuse with everything that stands in the way."""
    _require_host(recipe, environment)
    return requirements.find_python(environment.python)


def _require_host(
    recipe: Recipe, environment: VenvEnvironment | IndexEnvironment | BundleEnvironment
) -> None:
    against = requirements.obstacles(environment.requires)
    if against:
        raise InputError(
            f"{recipe.title} cannot be installed here: {'; '.join(o.what for o in against)}",
            "; ".join(dict.fromkeys(o.remedy for o in against)),
        )


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
