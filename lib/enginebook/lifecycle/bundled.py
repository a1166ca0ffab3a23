"""Engines from a bundle: its folders before the packages of a Python that the host has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginebook import paths, store
from enginebook.engines.recipes import BundleEnvironment, Recipe
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle import bundles_unpack, proof, requirements
from enginebook.lifecycle.bundles_unpack import BundleError
from enginebook.lifecycle.installation import (
    Installation,
    Step,
    disk_bytes,
    read_marker,
    write_marker,
)
from enginebook.lifecycle.logged import Log

_VERSIONS = """
import importlib.metadata, json, re, sys
found = {}
for d in importlib.metadata.distributions():
    name = re.sub(r"[-_.]+", "-", d.metadata["Name"] or "").lower()
    found.setdefault(name, d.version)
print(json.dumps({n: found.get(n) for n in json.loads(sys.argv[1])}))
"""
_ASK_TIMEOUT_S = 120.0
_BYTECODE_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Place:
    """Where one recipe's environment from a bundle belongs.

    Attributes
    ----------
    python
        The host's interpreter.
    sites
        Its package folders.
    unpacked
        Folder of the bundle's archives, shared by its recipes.
    directory
        The environment.
    """

    bundle: Path
    facts: dict[str, Any]
    recipe: str
    python: Path
    sites: tuple[str, ...]
    unpacked: Path
    directory: Path


def place(recipe: Recipe, environment: BundleEnvironment) -> Place:
    """Look at the bundle and the host's Python, and say where the environment belongs.

    Raises
    ------
    InputError
        When the bundle is not there, of another lock, or for another Python.
    """
    bundle = Path(environment.path).expanduser().resolve()
    python = host_python(environment.python)
    try:
        facts = bundles_unpack.read_facts(bundle)
        sites, version = bundles_unpack.host_sites(str(python))
    except BundleError as error:
        raise InputError(str(error), "name the folder that enginebook bundle made") from error
    name = _recipe_in(facts, recipe, bundle)
    if version != facts["python"]:
        raise InputError(
            f"the bundle {bundle} is for Python {facts['python']}; {python} is {version}",
            "make it again with --python, or name another interpreter in environment.python",
        )
    key = store.digest_of(facts)
    where = store.digest_of([key, str(python), sites])
    cache = paths.cache_dir()
    return Place(
        bundle=bundle,
        facts=facts,
        recipe=name,
        python=python,
        sites=tuple(sites),
        unpacked=cache / "bundles" / key,
        directory=cache / "engines" / f"{name}-bundle-{where}",
    )


def _recipe_in(facts: dict[str, Any], recipe: Recipe, bundle: Path) -> str:
    """Return the bundle's entry that was made from the recipe's very lock."""
    assert recipe.lock_path is not None  # noqa: S101 - bundle environments name a lock
    digest = store.sha256_of_file(recipe.lock_path)
    for name, about in facts["recipes"].items():
        if about["lock_sha256"] == digest:
            return str(name)
    held = ", ".join(facts["recipes"])
    raise InputError(
        f"{bundle} was not made from {recipe.lock_path.name}: it holds {held}",
        "make the bundle again from this checkout's recipe",
    )


def host_python(given: str) -> Path:
    """Return an interpreter by path, or by name on the PATH outside of the workbook's own.

    Raises
    ------
    InputError
        When there is none.
    """
    own = Path(sys.prefix, "bin").resolve()
    folders = [f for f in os.get_exec_path() if Path(f).resolve() != own]
    found = shutil.which(Path(given).expanduser(), path=os.pathsep.join(folders))
    if found is None:
        raise InputError(
            f"there is no interpreter {given!r} outside of the workbook's own environment",
            "name the host's Python that has PyTorch in environment.python",
        )
    return Path(found)


def ready(here: Place) -> Installation | None:
    """Return the installation if it is there and whole; never installs."""
    names = bundles_unpack.sites_of(here.facts, here.recipe)
    unpacked = all((here.unpacked / n).is_dir() for n in names)
    return read_marker(here.directory) if unpacked else None


def install(recipe: Recipe, environment: BundleEnvironment, here: Place, log: Log) -> Installation:
    """Unpack what is not there yet, make the environment, prove it, and mark it whole last.

    Raises
    ------
    InstallError
        For a bundle that is not whole, a host that differs from the one that it was made for, or
        an engine that cannot be imported.
    """
    started = time.monotonic()
    shutil.rmtree(here.directory, ignore_errors=True)
    try:
        folders = _unpack(here, log)
        _venv(here, folders, log)
        python = here.directory / "bin" / "python"
        _require_host(here, python)
        version = proof.prove(recipe, environment, python, log)
    except BaseException:
        shutil.rmtree(here.directory, ignore_errors=True)
        raise
    packages = [p for p in here.facts["packages"] if p["archive"] in {f.name for f in folders}]
    made = Installation(
        python=python,
        directory=here.directory,
        version=version,
        seconds=round(time.monotonic() - started, 3),
        bytes=disk_bytes(here.directory) + sum(disk_bytes(f) for f in folders),
        packages=len(packages),
        torch=f"the host's own ({here.python})",
        kind="bundle",
        installer="",
        reused=False,
        log=log.path,
        steps=tuple(log.steps),
    )
    write_marker(made)
    log.say(f"{recipe.title} {version} is ready ({made.seconds:.0f} s)")
    return made


def _unpack(here: Place, log: Log) -> list[Path]:
    names = bundles_unpack.sites_of(here.facts, here.recipe)
    missing = [n for n in names if not (here.unpacked / n).is_dir()]
    if missing:
        need = sum(here.facts["archives"][n]["unpacked_bytes"] for n in missing)
        # Byte-compiled files take about a third of the sources' room on top; so does the margin.
        requirements.check_disk(here.unpacked, 1.3 * need / requirements.GB, here.recipe)
    log.say(f"unpacking {', '.join(missing) or 'nothing: all is there'}")
    started = time.monotonic()
    try:
        bundles_unpack.unpack(here.bundle, names, here.unpacked)
    except BundleError as error:
        raise InstallError(str(error), "copy the bundle again; every part must arrive") from error
    log.steps.append(Step("unpack and check", round(time.monotonic() - started, 3)))
    folders = [here.unpacked / n for n in names]
    for name in missing:
        argv = [str(here.python), "-m", "compileall", "-q", "-j", "0", str(here.unpacked / name)]
        # Some packages hold templates that do not compile; they are never imported.
        env = {**os.environ, "PYTHONWARNINGS": "ignore"}
        log.run(f"bytecode of {name}", argv, env=env, timeout_s=_BYTECODE_TIMEOUT_S)
    return folders


def _venv(here: Place, folders: list[Path], log: Log) -> None:
    started = time.monotonic()
    here.directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        bundles_unpack.make_venv(str(here.python), here.directory)
    except BundleError as error:
        raise InstallError(str(error), "install Python's venv module") from error
    bundles_unpack.write_paths(here.directory, folders, list(here.sites))
    log.steps.append(Step("environment", round(time.monotonic() - started, 3)))


def _require_host(here: Place, python: Path) -> None:
    """Refuse when the host lacks, at the version seen then, what the bundle leaves to it."""
    left = here.facts["recipes"][here.recipe]["left_out"]
    expected = {e["name"]: e["host"] for e in left if e["reason"] != "not needed"}
    done = subprocess.run(
        [str(python), "-c", _VERSIONS, json.dumps(sorted(expected))],
        capture_output=True,
        text=True,
        timeout=_ASK_TIMEOUT_S,
        check=True,
    )
    found = json.loads(done.stdout)
    differ = [f"{n} {v} (here: {found[n]})" for n, v in expected.items() if found[n] != v]
    if differ:
        raise InstallError(
            f"the bundle leaves {len(expected)} packages to the host, and {len(differ)} differ: "
            f"{', '.join(differ[:5])}",
            "make the bundle again with this host's list: python -m pip list --format=freeze",
        )
