"""Bundles: an engine's wheels, recipe and locks in one folder, for hosts without internet.

A bundle is made where the indexes can be reached and installed where they cannot. Every file's
sha256 stands in SHA256SUMS and is checked before anything is installed.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from enginebook import paths, store
from enginebook.engines.recipes import Recipe, VenvEnvironment
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle.installers import PYTORCH_INDEX
from enginebook.lifecycle.logged import Log, Progress, silent

SUMS = "SHA256SUMS"
WHEELS = "wheels"
FACTS = "bundle.json"
FORMAT = 1


@dataclass(frozen=True)
class Bundle:
    """A bundle that was made or found.

    Attributes
    ----------
    directory
        Folder with wheels/, the recipe, its locks, bundle.json and SHA256SUMS.
    torch
        The requirement of its PyTorch wheel, such as ``torch==2.13.0+cpu``; None where the
        recipe wants none or the wheel comes by the fallback lock.
    """

    directory: Path
    recipe: str
    version: str
    python: str
    torch: str | None
    torch_source: str | None

    @property
    def wheels(self) -> Path:
        """Return the folder of wheels."""
        return self.directory / WHEELS

    def torch_sha256(self) -> str | None:
        """Return the digest of its PyTorch wheel, or None when there is none."""
        wheels = list(self.wheels.glob("torch-*.whl"))
        return store.sha256_of_file(wheels[0]) if wheels else None

    def torch_lock(self, folder: Path) -> Path | None:
        """Write a hashed requirements file of the PyTorch wheel and return it."""
        if self.torch is None:
            return None
        path = folder / f"{self.recipe}-torch.lock"
        store.write_text(path, f"{self.torch} --hash=sha256:{self.torch_sha256()}\n")
        return path


def make(recipe: Recipe, output: Path, *, on_progress: Progress | None = None) -> Bundle:
    """Download everything that a recipe's environment is made of.

    Parameters
    ----------
    output
        Folder to be made; it must not exist.

    Raises
    ------
    InputError
        When the recipe has no lock, or the folder is there already.
    InstallError
        When something cannot be downloaded.
    """
    environment = recipe.environment
    if not isinstance(environment, VenvEnvironment) or recipe.lock_path is None:
        raise InputError(
            f"{recipe.name} is of kind {environment.kind}, which has no lock to bundle",
            "bundle a recipe of kind venv",
        )
    if output.exists():
        raise InputError(f"{output} is there already", "name another folder, or remove it")
    log = Log(output.with_name(f"{output.name}.log"), on_progress or silent)
    (output / WHEELS).mkdir(parents=True)
    try:
        bundle = _fill(recipe, environment, output, log)
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
    _write_facts(bundle, recipe)
    _write_sums(output)
    return bundle


def _fill(recipe: Recipe, environment: VenvEnvironment, output: Path, log: Log) -> Bundle:
    assert recipe.lock_path is not None  # noqa: S101 - make() looked
    torch, source = None, None
    if environment.torch is not None:
        torch, source = _fetch_torch(recipe, environment, output / WHEELS, log)
    log.say(f"downloading the packages of {environment.lock}")
    if log.run("packages", _download(output / WHEELS, "--require-hashes", "-r", recipe.lock_path)):
        raise log.failure(f"{environment.lock} could not be downloaded", "check the network")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Bundle(output, recipe.name, recipe.version, version, torch, source)


def _download(wheels: Path, *what: str | Path) -> list[str]:
    quiet = ["--disable-pip-version-check", "download", "--no-deps", "--progress-bar", "off"]
    return [sys.executable, "-m", "pip", *quiet, "-d", str(wheels), *map(str, what)]


def _fetch_torch(
    recipe: Recipe, environment: VenvEnvironment, wheels: Path, log: Log
) -> tuple[str | None, str]:
    """Take PyTorch from the first source that has it, in the order of an installation."""
    torch, fallback = environment.torch, recipe.torch_lock_path
    assert torch is not None  # noqa: S101 - the caller looked
    local = f"torch=={torch.version}+{torch.variant}"
    index = f"{PYTORCH_INDEX}/{torch.variant}"
    quick = ("--only-binary", ":all:", "--retries", "1", "--timeout", "20")
    tries: list[tuple[str | None, str, list[str]]] = [
        (local, "pip configuration", _download(wheels, *quick, local)),
        (local, index, _download(wheels, *quick, "--index-url", index, local)),
    ]
    if fallback is not None:
        argv = _download(wheels, "--require-hashes", "-r", fallback)
        tries.append((None, f"the ordinary wheel ({fallback.name})", argv))
    for requirement, source, argv in tries:
        log.say(f"PyTorch {torch.version}: trying {source}")
        if log.run(f"PyTorch from {source}", argv) == 0:
            return requirement, source
    raise log.failure(f"no PyTorch {torch.version} could be downloaded", "check the network")


def _write_facts(bundle: Bundle, recipe: Recipe) -> None:
    beside = [recipe.directory / f"{recipe.name}.yaml", recipe.lock_path, recipe.torch_lock_path]
    for path in beside:
        if path is not None and path.is_file():
            shutil.copyfile(path, bundle.directory / path.name)
    facts = {
        "format": FORMAT,
        "recipe": bundle.recipe,
        "version": bundle.version,
        "python": bundle.python,
        "torch": bundle.torch,
        "torch_source": bundle.torch_source,
    }
    store.write_json(bundle.directory / FACTS, facts)


def _files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*") if p.is_file() and p.name != SUMS)


def _write_sums(directory: Path) -> None:
    lines = [f"{store.sha256_of_file(p)}  {p.relative_to(directory)}" for p in _files(directory)]
    store.write_text(directory / SUMS, "\n".join(lines) + "\n")


def check(directory: Path) -> None:
    """Compare every file with SHA256SUMS, both ways.

    Raises
    ------
    InputError
        For a missing, strange or changed file.
    """
    try:
        lines = (directory / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{directory} is not a bundle: {error}", "name a bundle's folder"
        ) from None
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = {str(p.relative_to(directory)): p for p in _files(directory)}
    odd = sorted(set(expected) ^ set(found))
    changed = [n for n in expected if n not in odd and _differs(found[n], expected[n])]
    if odd or changed:
        first = (odd + changed)[0]
        kind = "changed" if not odd else ("missing" if first in expected else "not listed")
        raise InputError(
            f"{directory}: {first} is {kind} ({len(odd) + len(changed)} files in all)",
            "copy the bundle again; each of its parts must arrive whole",
        )


def _differs(path: Path, digest: str) -> bool:
    return store.sha256_of_file(path) != digest


def read(directory: Path) -> Bundle:
    """Return a bundle whose files were checked."""
    check(directory)
    keys = ("recipe", "version", "python", "torch", "torch_source")
    try:
        facts = store.read_json(directory / FACTS)
        told, known = facts.get("format"), {k: facts[k] for k in keys if facts["format"] == FORMAT}
    except (OSError, ValueError, KeyError, AttributeError, RecursionError):
        told, known = "none", {}
    if not known:
        raise InputError(f"{directory} has format {told}", "make the bundle again")
    return Bundle(directory, **known)


def pack(directory: Path, part_bytes: int | None = None) -> list[Path]:
    """Pack a bundle as a tar file, in parts of at most so many bytes where wanted."""
    archive = directory.with_name(f"{directory.name}.tar")
    with tarfile.open(archive, "w") as tar:  # wheels are compressed already
        tar.add(directory, arcname=directory.name)
    if part_bytes is None or archive.stat().st_size <= part_bytes:
        return [archive]
    parts = list(_split(archive, part_bytes))
    archive.unlink()
    return parts


def _split(archive: Path, part_bytes: int) -> Iterator[Path]:
    with archive.open("rb") as whole:
        number = 0
        while chunk := whole.read(min(part_bytes, 1 << 24)):
            part = archive.with_name(f"{archive.name}.{number:03d}")
            with part.open("wb") as file:
                file.write(chunk)
                left = part_bytes - len(chunk)
                while left > 0 and (more := whole.read(min(left, 1 << 24))):
                    file.write(more)
                    left -= len(more)
            yield part
            number += 1


@contextmanager
def opened(place: Path) -> Iterator[Bundle]:
    """Yield the bundle at a folder, a tar file, or the first part of one (``.tar.000``)."""
    if place.is_dir():
        yield read(place)
        return
    if not place.is_file():
        raise InputError(f"there is no bundle at {place}", "name a folder, a .tar or a .tar.000")
    with tempfile.TemporaryDirectory(dir=paths.cache_dir()) as folder:
        archive = _joined(place, Path(folder))
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise InputError(f"{place} is not a whole bundle: {error}", "copy it again") from error
        inner = [p for p in Path(folder).iterdir() if p.is_dir() and not p.is_symlink()]
        if len(inner) != 1:
            raise InputError(
                f"{place} is no bundle: it holds {len(inner)} folders", "copy it again"
            )
        yield read(inner[0])


def _joined(place: Path, folder: Path) -> Path:
    if place.suffix == ".tar":
        return place
    parts = sorted(place.parent.glob(f"{place.stem}.[0-9][0-9][0-9]"))
    joined = folder / "joined.tar"
    with joined.open("wb") as whole:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole)
    return joined


def require_match(bundle: Bundle, recipe: Recipe) -> None:
    """Refuse a bundle that is not of this very recipe and lock.

    Raises
    ------
    InstallError
        Naming what differs.
    """
    assert recipe.lock_path is not None  # noqa: S101 - a bundle is of kind venv
    theirs = bundle.directory / recipe.lock_path.name
    same = theirs.is_file() and theirs.read_bytes() == recipe.lock_path.read_bytes()
    if bundle.recipe != recipe.name or not same:
        raise InstallError(
            f"the bundle holds {bundle.recipe} {bundle.version}, whose lock is not that of "
            f"{recipe.name} {recipe.version}",
            "make the bundle again from this checkout's recipe",
        )
