"""The proof that an engine is installed: it is imported in its own environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from enginebook.engines.recipes import Recipe
from enginebook.errors import InstallError
from enginebook.lifecycle import environ
from enginebook.lifecycle.logged import Log

TIMEOUT_S = 600.0
CODE = """
import importlib, importlib.metadata, json, sys
for name in json.loads(sys.argv[2]):
    importlib.import_module(name)
print("version:" + importlib.metadata.version(sys.argv[1]))
"""


class Proved(Protocol):
    """The part of an environment that is needed here."""

    @property
    def distribution(self) -> str:
        """Return the distribution whose version is the engine's."""

    @property
    def imports(self) -> tuple[str, ...]:
        """Return the modules that must be importable."""


def prove(
    recipe: Recipe, environment: Proved, python: Path, log: Log, *, exact: bool = True
) -> str:
    """Import the engine and return the version that it says.

    Parameters
    ----------
    exact
        Whether it must be the recipe's.

    Raises
    ------
    InstallError
        When it cannot be imported, or has another version.
    """
    log.say(f"proving that {', '.join(environment.imports)} can be imported")
    argv = [str(python), "-c", CODE, environment.distribution, json.dumps(environment.imports)]
    env = {**environ.inherited(), **recipe.env}
    shown = f"{python} -c 'import {', '.join(environment.imports)}'"
    if log.run("proof by import", argv, env=env, timeout_s=TIMEOUT_S, shown=shown):
        raise log.failure(f"{recipe.title} was installed but cannot be imported", "see the log")
    said = [line for line in log.tail(50).splitlines() if line.startswith("version:")]
    version = said[-1].removeprefix("version:") if said else ""
    if exact and version != recipe.version:
        raise InstallError(
            f"{recipe.name}: the environment holds {environment.distribution} {version}, "
            f"the recipe says {recipe.version}",
            "correct version: in the recipe, or its lock",
        )
    return version
