"""Recipes: how one engine is installed and started, one YAML file each under params/engines.

A recipe pins everything that decides what is measured: the version, the lock of its environment,
the environment variables and the options of its command line.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, HttpUrl, StringConstraints, ValidationError

from enginebook import paths
from enginebook.engines.base import ModelFormat, Option
from enginebook.engines.bundled import Slimming, find_bundle, load_slimming
from enginebook.engines.names import did_you_mean, listing
from enginebook.errors import InputError
from enginebook.study import EngineSpec, Frozen, PositiveFloat, Slug
from enginebook.study_file import parse_yaml

Version = Annotated[str, StringConstraints(pattern=r"^([0-9][0-9A-Za-z.+!-]*|any)$")]
LockName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\.lock$")]
Label = Literal["cpu", "cuda", "metal", "experimental", "community-build", "simulated"]
Platform = Literal[
    "linux-x86_64", "linux-aarch64", "darwin-arm64", "darwin-x86_64", "windows-amd64"
]
Arm = Literal["defaults", "equalised"]


def _without_user(url: HttpUrl) -> HttpUrl:
    if url.username is not None or url.password is not None:
        raise ValueError("holds a user name or a password, and recipes are written to every record")
    return url


OpenUrl = Annotated[HttpUrl, AfterValidator(_without_user)]


class Torch(Frozen):
    """The PyTorch an environment needs; kept out of the lock because its source differs by host.

    Attributes
    ----------
    version
        Public version, without a local label such as ``+cpu``.
    variant
        ``cpu``, or the CUDA line of PyTorch's own index, such as ``cu130``.
    fallback_lock
        Hashed lock of the ordinary wheel from the package index and all it needs.
    """

    version: Version
    variant: Annotated[str, StringConstraints(pattern=r"^(cpu|cu[0-9]{3})$")] = "cpu"
    fallback_lock: LockName | None = None


class Requires(Frozen):
    """What a host must offer before anything is installed.

    ``cpu_flags`` are names of /proc/cpuinfo; ``gpu`` is the maker whose device must be there;
    ``driver`` the least NVIDIA driver; ``compute_capability`` the least, such as ``"8.0"``;
    ``commands`` are programs on the PATH.
    """

    platforms: tuple[Platform, ...] = ()
    glibc: str | None = None
    cpu_flags: tuple[str, ...] = ()
    gpu: Literal["nvidia", "apple"] | None = None
    driver: str | None = None
    compute_capability: str | None = None
    commands: tuple[str, ...] = ()


class VenvEnvironment(Frozen):
    """An environment of the engine's own, made from a hashed lock."""

    kind: Literal["venv"] = "venv"
    lock: LockName
    torch: Torch | None = None
    python: str = ">=3.11,<3.14"
    requires: Requires = Requires()
    distribution: str
    imports: tuple[str, ...] = Field(min_length=1)
    disk_gb: PositiveFloat


class BundleEnvironment(Frozen):
    """Packages from a bundle before those of a Python that the host has, PyTorch among them.

    Attributes
    ----------
    path
        Folder of the bundle: ``enginebook bundle`` with ``--have`` or ``--arch`` made it.
    python
        The host's interpreter; a bare name is looked for on the PATH, outside of the workbook's
        own environment.
    lock, distribution, imports
        Of the recipe; a study need not repeat them.
    """

    kind: Literal["bundle"]
    path: str
    python: str = "python3"
    lock: LockName
    distribution: str
    imports: tuple[str, ...] = Field(min_length=1)
    requires: Requires = Requires()


class ExistingEnvironment(Frozen):
    """A Python that already has the engine; nothing is installed into it.

    ``python: workbook`` is the interpreter that runs Enginebook.
    """

    kind: Literal["existing"]
    python: Annotated[str, AfterValidator(lambda p: sys.executable if p == "workbook" else p)]
    requires: Requires = Requires()
    distribution: str | None = None
    imports: tuple[str, ...] = ()


class ExternalEnvironment(Frozen):
    """A server that somebody else runs; it is neither installed, started nor stopped."""

    kind: Literal["external"]
    base_url: OpenUrl
    requires: Requires = Requires()


class ProgramEnvironment(Frozen):
    """A program that the user installed by other means and that is found on the PATH."""

    kind: Literal["program"]
    program: str
    install_hint: str
    requires: Requires = Requires()


class IndexEnvironment(Frozen):
    """An environment whose wheels lie on a vendor's own index, without a lock of ours.

    It is installed only where ``index_url`` can be reached; the versions that were resolved are
    recorded at install time.
    """

    kind: Literal["index"]
    requirement: str
    index_url: OpenUrl
    python: str = ">=3.11,<3.14"
    requires: Requires = Requires()
    distribution: str
    imports: tuple[str, ...] = Field(min_length=1)
    disk_gb: PositiveFloat


class ContainerEnvironment(Frozen):
    """An image that holds the engine; the same command line runs inside it.

    Attributes
    ----------
    image
        Name with tag or, better, digest (``name@sha256:...``); for apptainer also a .sif file.
    runtime
        ``auto`` takes the first of docker, podman and apptainer that works.
    python
        The image's interpreter.
    """

    kind: Literal["container"]
    image: str = Field(min_length=1)
    runtime: Literal["auto", "docker", "podman", "apptainer"] = "auto"
    python: str = "python3"
    requires: Requires = Requires()


Environment = Annotated[
    VenvEnvironment
    | BundleEnvironment
    | ExistingEnvironment
    | ExternalEnvironment
    | ProgramEnvironment
    | IndexEnvironment
    | ContainerEnvironment,
    Field(discriminator="kind"),
]


class Recipe(Frozen):
    """One engine in one version, ready to install and start.

    Attributes
    ----------
    name
        Stem of the file it was read from.
    directory
        Folder of that file; locks lie beside it.
    engine
        Id of the adapter that writes the command line.
    version
        Exact version; ``any`` where the engine is installed or run by somebody else.
    env
        Environment variables of the server process.
    options
        Options as the adapter's own type names them, checked when the recipe is read.
    arm
        ``defaults`` leaves the engine's own choices, ``equalised`` sets what makes engines alike.
    """

    name: Slug
    directory: Path
    engine: Slug
    title: str
    version: Version
    labels: tuple[Label, ...] = ()
    notes: str = ""
    environment: Environment
    env: dict[str, str] = Field(default_factory=dict)
    options: dict[str, Option] = Field(default_factory=dict)
    arm: Arm = "defaults"
    model_format: ModelFormat

    @property
    def lock_path(self) -> Path | None:
        """Return the lock file's path, or None when the environment is not made from a lock."""
        return self._beside(getattr(self.environment, "lock", None))

    @property
    def torch_lock_path(self) -> Path | None:
        """Return the lock of the ordinary PyTorch wheel, or None when there is none."""
        torch = getattr(self.environment, "torch", None)
        return self._beside(torch.fallback_lock if torch else None)

    def _beside(self, name: str | None) -> Path | None:
        return None if name is None else self.directory / name


def recipe_names(directory: Path | None = None) -> list[str]:
    """Return the names of all recipes, in order."""
    folder = directory or paths.engine_recipes_dir()
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_recipe(name: str, directory: Path | None = None) -> Recipe:
    """Read and check params/engines/<name>.yaml.

    Raises
    ------
    InputError
        For an unknown name, broken YAML, an unknown key or an option its adapter does not know.
    """
    folder = directory or paths.engine_recipes_dir()
    path = folder / f"{name}.yaml"
    known = recipe_names(folder)
    if name not in known:
        raise InputError(
            f"there is no engine recipe {name!r} in {folder}",
            f"{did_you_mean(name, known)}known recipes: {listing(known)}",
        )
    recipe = _validated(path, {**_read_mapping(path), "name": name, "directory": folder})
    if recipe.lock_path is not None and not recipe.lock_path.is_file():
        raise InputError(
            f"{path}: environment.lock names {recipe.lock_path.name}, which is not beside it",
            f"make it with: python -m enginebook.engines.lock {name}",
        )
    return recipe


def recipe_for(spec: EngineSpec, directory: Path | None = None) -> Recipe:
    """Return a study's engine as a recipe: the file's contents with the study's changes over them.

    ``spec.options`` go over the recipe's options key by key. ``spec.environment`` goes over its
    environment; when it names another ``kind`` it replaces the environment altogether, so that
    ``{kind: external, base_url: ...}`` measures a server that runs elsewhere, and
    ``{kind: bundle, path: ...}`` runs the recipe's own engine from a bundle. Without either, a
    bundle in ``ENGINEBOOK_BUNDLES`` that was made from the recipe's very lock takes its place.
    """
    recipe = load_recipe(spec.recipe, directory)
    given = dict(spec.environment) or _bundled(recipe)
    if not spec.options and not given:
        return recipe
    changed = {
        **recipe.model_dump(mode="python"),
        "options": {**recipe.options, **spec.options},
        "environment": {**_kept(recipe.environment, given), **given},
    }
    made = _validated(recipe.directory / f"{recipe.name}.yaml (engine {spec.name})", changed)
    if not isinstance(made.environment, BundleEnvironment):
        return made
    return made.model_copy(update={"env": {**made.env, **slimming_of(made).env}})


def slimming_of(recipe: Recipe) -> Slimming:
    """Return what bundles of a recipe's lock may leave out."""
    assert recipe.lock_path is not None  # noqa: S101 - only recipes with a lock have bundles
    return load_slimming(recipe.directory.parent / "bundles" / f"{recipe.lock_path.stem}.yaml")


def _bundled(recipe: Recipe) -> dict[str, Any]:
    """Return the environment of a bundle that ``ENGINEBOOK_BUNDLES`` offers for a recipe's lock."""
    if not isinstance(recipe.environment, VenvEnvironment) or recipe.lock_path is None:
        return {}
    place = find_bundle(recipe.lock_path)
    return {"kind": "bundle", "path": str(place)} if place is not None else {}


def _kept(own: Environment, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stays of a recipe's environment under a study's changes."""
    kept = own.model_dump(mode="json")
    kind = given.get("kind", own.kind)
    if kind == own.kind:
        return kept
    of_bundle = ("lock", "distribution", "imports", "requires")
    return {k: kept[k] for k in of_bundle if k in kept} if kind == "bundle" else {}


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read: {error}", "correct the file") from error
    if not isinstance(data, dict):
        raise InputError(f"{path} is not a mapping of keys to values", "correct the file")
    return data


def _validated(path: Path, data: dict[str, Any]) -> Recipe:
    from enginebook.engines.registry import adapter  # noqa: PLC0415 - adapters import this module

    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{path}: {_first_problem(error)}", "correct this key") from error
    engine = adapter(recipe.engine)
    engine.check_options(recipe.options, where=str(path))
    return recipe


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the file"
    more = error.error_count() - 1
    return f"{key}: {first['msg']}" + (f" (and {more} more)" if more else "")
