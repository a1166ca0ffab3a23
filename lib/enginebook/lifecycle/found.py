"""Engines that are there already: an existing Python, a program on the PATH, a foreign server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from enginebook.engines.recipes import (
    ExistingEnvironment,
    ExternalEnvironment,
    ProgramEnvironment,
    Recipe,
)
from enginebook.errors import InputError
from enginebook.lifecycle.failures import ending
from enginebook.lifecycle.installation import Installation, Kind

VERSION_TIMEOUT_S = 300.0


def installation(recipe: Recipe) -> Installation:
    """Return the installation of an engine that is not ours to install.

    Raises
    ------
    InputError
        When the interpreter or program is not there, or lacks the engine.
    """
    environment = recipe.environment
    if isinstance(environment, ExternalEnvironment):
        return _facts("external", "unknown", base_url=str(environment.base_url).rstrip("/"))
    if isinstance(environment, ProgramEnvironment):
        return _program(recipe, environment)
    assert isinstance(environment, ExistingEnvironment)  # noqa: S101 - the kinds that remain
    return _existing(recipe, environment)


def _existing(recipe: Recipe, environment: ExistingEnvironment) -> Installation:
    from enginebook.engines.registry import adapter  # noqa: PLC0415 - all adapters, rarely needed

    python = Path(environment.python).expanduser()
    code = adapter(recipe.engine).version_code()
    if environment.distribution:
        code = f"import importlib.metadata as m; print(m.version({environment.distribution!r}))"
    imports = "".join(f"import {name}\n" for name in environment.imports)
    version = _ask([str(python), "-c", imports + code], recipe, f"{python} has no {recipe.title}")
    return _facts("existing", version, python=python)


def _program(recipe: Recipe, environment: ProgramEnvironment) -> Installation:
    where = shutil.which(environment.program)
    if where is None:
        raise InputError(
            f"{recipe.title} needs the program {environment.program!r}, which is not on the PATH",
            environment.install_hint,
        )
    version = _ask([where, "--version"], recipe, f"{where} --version fails")
    return _facts("program", version, program=where)


def _ask(argv: list[str], recipe: Recipe, trouble: str) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{recipe.name}: {argv[0]}: {error}", "correct the recipe") from error
    if done.returncode < 0:
        how = ending(done.returncode)
        raise InputError(
            f"{recipe.name}: {argv[0]}, asked for its version, was {how}", "start again"
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{recipe.name}: {trouble}: {last}", "correct environment: in the recipe")
    return (done.stdout.strip().splitlines() or ["unknown"])[-1]


def _facts(
    kind: Kind,
    version: str,
    *,
    python: Path | None = None,
    base_url: str | None = None,
    program: str | None = None,
) -> Installation:
    return Installation(
        python=python,
        directory=None,
        version=version,
        seconds=None,
        bytes=None,
        packages=None,
        torch=None,
        kind=kind,
        installer="",
        reused=True,
        log=None,
        base_url=base_url,
        program=program,
    )
