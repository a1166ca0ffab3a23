"""Bundles of package folders: what a host lacks, trimmed to its GPU, as checked parts.

A bundle of wheels (bundles.py) makes the very environment of a lock and travels whole, PyTorch
included: gigabytes. This kind serves a host that has PyTorch already: it carries what the host
lacks, as unpacked folders, so that libraries can be trimmed and everything compressed anew, and
records what differs from the lock: packages left to the host, files left out, code zeroed.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from enginebook import paths, store
from enginebook.engines.bundled import Slimming, load_slimming
from enginebook.engines.lock import Entry
from enginebook.engines.recipes import Recipe, VenvEnvironment, slimming_of
from enginebook.errors import InputError
from enginebook.lifecycle import bundles_unpack, trimming
from enginebook.lifecycle.bundles_choice import Choice, choose
from enginebook.lifecycle.bundles_pack import Archive, write_parts
from enginebook.lifecycle.bundles_pins import Target, pinned_version
from enginebook.lifecycle.bundles_unpack import WORKBOOK
from enginebook.lifecycle.bundles_wheels import Wheels, unpack_wheel
from enginebook.lifecycle.logged import Log, Progress, silent

SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Source:
    """One thing that a bundle makes runnable: an engine, or the workbook itself.

    Attributes
    ----------
    key
        Names its folder: the engine's id, which stays the same over versions.
    roots
        Requirements from which to follow the lock; None takes every entry of it.
    """

    name: str
    key: str
    version: str
    lock: Path
    slimming: Slimming
    roots: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Request:
    """What a bundle is made for.

    Attributes
    ----------
    arch
        Number of the only GPU architecture, such as 90; None keeps all GPU code.
    host
        What the target has already: canonical name -> version.
    without
        Globs of files to leave out, on top of the recipes' own.
    part_bytes
        Largest part; None makes one.
    strip
        Whether debug symbols are removed.
    """

    target: Target
    arch: int | None = None
    host: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    part_bytes: int | None = None
    strip: bool = True


def recipe_source(recipe: Recipe) -> Source:
    """Return a recipe as the source of a bundle.

    Raises
    ------
    InputError
        When it has no lock, or its PyTorch comes from elsewhere than the lock.
    """
    if not isinstance(recipe.environment, VenvEnvironment) or recipe.lock_path is None:
        raise InputError(f"{recipe.name} has no lock to bundle", "bundle a recipe of kind venv")
    slimming = slimming_of(recipe)
    return Source(recipe.lock_path.stem, recipe.engine, recipe.version, recipe.lock_path, slimming)


def workbook_source() -> Source:
    """Return the workbook's own packages as the source of a bundle, without those of developers."""
    project, lock = _project(), paths.project_root() / "requirements.lock"
    slimming = load_slimming(paths.params_dir() / "bundles" / f"{WORKBOOK}.yaml")
    roots = tuple(project["dependencies"])
    return Source(WORKBOOK, WORKBOOK, project["version"], lock, slimming, roots)


def _project() -> dict[str, Any]:
    text = (paths.project_root() / paths.MARKER).read_text(encoding="utf-8")
    project: dict[str, Any] = tomllib.loads(text)["project"]
    return project


def _write_project(folder: Path) -> None:
    """Write the workbook's own metadata, by which papermill and nbconvert find its plug-ins.

    Its code is not carried: the checkout has it.
    """
    project = _project()
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    store.write_text(info / "METADATA", header)
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {where}" for name, where in entries.items()), ""]
    store.write_text(info / "entry_points.txt", "\n".join(lines))


def make(
    sources: Sequence[Source],
    request: Request,
    output: Path,
    *,
    on_progress: Progress | None = None,
) -> dict[str, Any]:
    """Make a bundle and return its facts, which also stand in its bundle.json.

    Parameters
    ----------
    output
        Folder to be made; it must not exist. ``<output>.work`` beside it is used meanwhile.

    Raises
    ------
    InputError
        When the folder is there, or a name is given twice.
    InstallError
        When a wheel cannot be had for the target.
    """
    if output.exists():
        raise InputError(f"{output} is there already", "name another folder, or remove it")
    log = Log(output.with_name(f"{output.name}.log"), on_progress or silent)
    work = output.with_name(f"{output.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    output.mkdir(parents=True)
    try:
        facts = _make(sources, request, output, work, log)
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return facts


def _make(
    sources: Sequence[Source], request: Request, output: Path, work: Path, log: Log
) -> dict[str, Any]:
    wheels = Wheels(work / "wheels", request.target, log)
    choices = {s.name: choose(s.lock, s.slimming, s.roots, request.host, wheels) for s in sources}
    for name, choice in choices.items():
        _tell(name, choice, log)
    groups = share({s.name: choices[s.name].carried for s in sources})
    folders = {_folder_name(names, sources): (names, held) for names, held in groups.items()}
    packages, changes = [], {}
    for folder, (names, held) in folders.items():
        log.say(f"unpacking and trimming {len(held)} packages of {folder}")
        packages += [_unpacked(n, e, folder, work, wheels) for n, e in sorted(held.items())]
        if names == (WORKBOOK,):
            _write_project(work / folder)
        slimmings = [s.slimming for s in sources if s.name in names]
        changes[folder] = _trimmed(work / folder, slimmings, request)
    log.say("compressing")
    archives = [Archive(name, work / name) for name in folders]
    packed = write_parts(archives, output, request.part_bytes)
    facts = {
        "format": bundles_unpack.FORMAT,
        "kind": "site",
        "python": request.target.python,
        "glibc": request.target.glibc,
        "architecture": None if request.arch is None else f"sm_{request.arch}",
        "recipes": {s.name: _about(s, choices[s.name], folders) for s in sources},
        "packages": packages,
        "changed_files": {f: [asdict(c) for c in made] for f, made in changes.items()},
        **packed,
    }
    _write(output, facts)
    return facts


def _tell(name: str, choice: Choice, log: Log) -> None:
    accepted = sorted(n for n, left in choice.left_out.items() if left.reason == "accepted")
    log.say(f"{name}: carries {len(choice.carried)} packages, leaves {len(choice.left_out)}")
    if accepted:
        log.say(f"{name}: the host's version breaks a requirement, known to work: {accepted}")
    for need in choice.unmet:
        log.say(f"{name}: {need.by} asks for {need.requirement}, which the lock does not hold")


def share(carried: Mapping[str, Mapping[str, Entry]]) -> dict[tuple[str, ...], dict[str, Entry]]:
    """Group packages by the recipes that carry them at the same version.

    Each group becomes one folder; a recipe sees its own groups alone, hence no package that its
    lock does not have, and a package that several carry travels once.
    """
    users: dict[tuple[str, str], tuple[list[str], Entry]] = {}
    for recipe, entries in carried.items():
        for name, entry in entries.items():
            users.setdefault((name, pinned_version(entry)), ([], entry))[0].append(recipe)
    groups: dict[tuple[str, ...], dict[str, Entry]] = {}
    for (name, _), (recipes, entry) in users.items():
        groups.setdefault(tuple(recipes), {})[name] = entry
    # Shared ones first: with them and the first engine's own, that engine can start.
    order = list(carried)
    ranked = sorted(groups, key=lambda names: (-len(names), order.index(names[0])))
    return {names: groups[names] for names in ranked}


def _folder_name(names: Sequence[str], sources: Sequence[Source]) -> str:
    keys = [s.key for s in sources]
    chosen = [s.key if keys.count(s.key) == 1 else s.name for s in sources if s.name in names]
    return "+".join(chosen)


def _unpacked(name: str, entry: Entry, folder: str, work: Path, wheels: Wheels) -> dict[str, Any]:
    wheel = wheels.path(name, entry)
    files = unpack_wheel(wheel, work / folder)
    return {
        "name": name,
        "version": pinned_version(entry),
        "archive": folder,
        "wheel": wheel.name,
        "wheel_bytes": wheel.stat().st_size,
        "wheel_sha256": store.sha256_of_file(wheel),
        "files": len(files),
    }


def _trimmed(
    folder: Path, slimmings: Sequence[Slimming], request: Request
) -> list[trimming.Change]:
    drop = [*request.without, *(glob for s in slimmings for glob in s.drop)]
    kernels = {glob: pattern for s in slimmings for glob, pattern in s.kernels.items()}
    changes = trimming.leave_out(folder, drop)
    if request.arch is not None:
        changes += trimming.trim_gpu_code(folder, request.arch, kernels)
    return changes + (trimming.strip_symbols(folder) if request.strip else [])


def _about(
    source: Source, choice: Choice, folders: Mapping[str, tuple[Sequence[str], Any]]
) -> dict[str, Any]:
    own = [f for f, (names, _) in folders.items() if source.name in names]
    return {
        "version": source.version,
        "lock": source.lock.name,
        "lock_sha256": store.sha256_of_file(source.lock),
        # Its own folder is searched first, then those that it shares with more and more others.
        "archives": sorted(own, key=lambda f: f.count("+")),
        "left_out": [asdict(left) for _, left in sorted(choice.left_out.items())],
        "unmet": [f"{n.by}: {n.requirement}" for n in choice.unmet],
    }


def _write(output: Path, facts: dict[str, Any]) -> None:
    store.write_json(output / bundles_unpack.FACTS, facts)
    shutil.copyfile(bundles_unpack.__file__, output / "unpack.py")
    files = sorted(p for p in output.iterdir() if p.name != SUMS)
    lines = [f"{store.sha256_of_file(p)}  {p.name}" for p in files]
    store.write_text(output / SUMS, "\n".join(lines) + "\n")
