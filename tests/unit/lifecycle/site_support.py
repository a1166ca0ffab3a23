"""A small engine, a host that has its 'PyTorch', and a bundle of what the host lacks."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fatbin_support import CUBIN, entry, fatbin, library
from wheel_support import lock_of, make_wheel, only_from

from enginebook.engines.bundled import Slimming
from enginebook.engines.recipes import BundleEnvironment, Recipe, VenvEnvironment
from enginebook.lifecycle.bundles_pins import Target
from enginebook.lifecycle.bundles_site import Request, Source, make, recipe_source
from enginebook.lifecycle.bundles_wheels import unpack_wheel

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
OPS = library(fatbin(entry(CUBIN, 80, b"old!" * 8), entry(CUBIN, 90, b"own!" * 8)))
# Bytes that do not compress, so that parts have a size that a test can rely on.
NOISE = bytes((i * i * 7919 + i // 251 * 31) % 251 for i in range(20000))


@dataclass(frozen=True)
class Made:
    """What the tests work on."""

    folder: Path
    recipe: Recipe
    host: Path
    bundle: Path
    facts: dict

    def recipe_from(self, **changed: object) -> Recipe:
        """Return the recipe with the bundle as its environment."""
        own = self.recipe.environment
        kept = {"lock": own.lock, "distribution": own.distribution, "imports": own.imports}
        given = {"kind": "bundle", "path": str(self.bundle), "python": str(self.host), **changed}
        environment = BundleEnvironment(**{**kept, **given})
        return self.recipe.model_copy(update={"environment": environment})


def make_host(folder: Path, index: Path, version: str = "2.11") -> Path:
    """Make an interpreter that has a package of its own; returns its path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python3.*/site-packages")
    files = {"bigtorch.py": f"WHERE = __file__\nVERSION = {version!r}\n".encode()}
    unpack_wheel(make_wheel(index / "host", "bigtorch", version, files), site)
    return folder / "bin" / "python"


def make_recipe(folder: Path, index: Path, name: str = "tiny", **engine_files: bytes) -> Recipe:
    """Write an engine's wheels and lock; it imports the host's package and a helper of its own."""
    module = b"import bigtorch, helper\nSEEN = (bigtorch.VERSION, helper.__file__)\n"
    files = {f"{name}.py": module, f"{name}_lib/ops.so": OPS, f"{name}_lib/tests/t.py": b"assert 0"}
    wheels = [
        make_wheel(index, name, "1.0", {**files, **engine_files}, requires=["bigtorch", "helper"]),
        make_wheel(index, "helper", "2.0", {"helper.py": b"x = 1\n", "helper.bin": NOISE}),
        make_wheel(index, "bigtorch", "2.10", {"bigtorch.py": b"raise SystemExit\n"}),
        make_wheel(index, "blackwell", "1.0", {"blackwell.py": b"raise SystemExit\n"}),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.lock").write_text(lock_of(*wheels))
    environment = VenvEnvironment(
        lock=f"{name}.lock", distribution=name, imports=(name,), disk_gb=0.1
    )
    return Recipe(
        name=name,
        directory=folder,
        engine=name,
        title=name.capitalize(),
        version="1.0",
        environment=environment,
        model_format="hf",
    )


SLIMMING = "leave_out: [blackwell]\ndrop: ['*/tests/*']\nenv: {TINY_QUIET: '1'}\n"


def request(part_bytes: int | None = 8000, **changed: object) -> Request:
    """Return what the bundle is made for: a host with bigtorch 2.11 and an sm_90."""
    given = {"target": Target(PYTHON), "arch": 90, "host": {"bigtorch": "2.11"}}
    return Request(**{**given, "part_bytes": part_bytes, "strip": False, **changed})


def make_bundle(folder: Path, index: Path, *, part_bytes: int | None = 8000) -> Made:
    """Make all of it below a folder."""
    recipe = make_recipe(folder / "params" / "engines", index)
    slimming = folder / "params" / "bundles" / "tiny.yaml"
    slimming.parent.mkdir(parents=True)
    slimming.write_text(SLIMMING)
    host = make_host(folder / "host", index)
    facts = make([recipe_source(recipe)], request(part_bytes), folder / "bundle")
    return Made(folder, recipe, host, folder / "bundle", facts)


@contextmanager
def bundle_made_once(folder: Path) -> Iterator[Made]:
    """Yield the bundle with pip turned to its index, for the tests of a whole module."""
    with pytest.MonkeyPatch.context() as patch:
        only_from(patch, folder / "index")
        yield make_bundle(folder, folder / "index")


def copied(made: Made, folder: Path) -> Made:
    """Return the bundle's copy, which a test may break."""
    shutil.copytree(made.bundle, folder / "bundle")
    return replace(made, bundle=folder / "bundle", facts=copy.deepcopy(made.facts))


def source(recipe: Recipe) -> Source:
    """Return a recipe as a source that leaves out what only other GPUs need."""
    return Source(
        recipe.name,
        recipe.engine,
        recipe.version,
        recipe.lock_path,
        Slimming(leave_out=("blackwell",)),
    )
