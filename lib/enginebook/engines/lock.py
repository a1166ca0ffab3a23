"""Make a recipe's lock: ``python -m enginebook.engines.lock RECIPE``.

Reads ``<stem>.in`` and ``<stem>.overrides.txt`` beside the lock and writes the lock with a hash of
every file of every version, for all Python versions of the project. Needs the network, and is run
by whoever changes a recipe, never by its users.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from enginebook import paths
from enginebook.engines.names import did_you_mean, listing
from enginebook.engines.recipes import Platform, recipe_names
from enginebook.errors import EnginebookError, InputError, InstallError
from enginebook.store import write_text

SYSTEMS = {
    "linux": ("Linux", "posix"),
    "darwin": ("Darwin", "posix"),
    "windows": ("Windows", "nt"),
}
PYTHONS = ("3.11", "3.12", "3.13")
FOREIGN = ("://", "file:", "--index-url", "--extra-index-url", "--find-links", " @ ")


@dataclass(frozen=True)
class Entry:
    """One requirement of a lock with its hashes, as the lines of the file."""

    requirement: Requirement
    lines: tuple[str, ...]

    @property
    def hashes(self) -> tuple[str, ...]:
        """Return the digests, each ``sha256:...``."""
        parts = [line.strip().removesuffix("\\").strip() for line in self.lines]
        return tuple(p.removeprefix("--hash=") for p in parts if p.startswith("--hash="))


def parse_lock(text: str) -> list[Entry]:
    """Return the entries of a lock; comments are dropped."""
    return [
        Entry(Requirement(block[0].removesuffix("\\").strip()), tuple(block))
        for block in _blocks(text)
    ]


def _blocks(text: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not line.startswith(" ") and block:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def marker_environment(platform: Platform, python: str) -> dict[str, str]:
    """Return the marker values of a host, for CPython."""
    system, machine = platform.split("-", 1)
    return {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": SYSTEMS[system][1],
        "sys_platform": "win32" if system == "windows" else system,
        "platform_system": SYSTEMS[system][0],
        "platform_machine": machine.upper() if system == "windows" else machine,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }


def applies(entry: Entry, platforms: tuple[Platform, ...]) -> bool:
    """Return whether any of the platforms installs this entry, under any Python of the project."""
    marker = entry.requirement.marker
    return marker is None or any(
        marker.evaluate(marker_environment(platform, python))
        for platform in platforms
        for python in PYTHONS
    )


def trimmed(text: str, platforms: tuple[Platform, ...]) -> str:
    """Return a lock without the entries that none of the platforms installs."""
    kept = [e for e in parse_lock(text) if applies(e, platforms)]
    return "\n".join(line.rstrip() for e in kept for line in _closed(e.lines)) + "\n"


def _closed(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Drop the line continuation at the end of an entry."""
    return (*lines[:-1], lines[-1].rstrip().removesuffix("\\").rstrip())


def compile_command(source: Path, overrides: Path | None, output: Path) -> list[str]:
    """Return uv's command line; the resolution holds for all platforms at once."""
    command = [sys.executable, "-m", "uv", "pip", "compile", str(source), "--output-file"]
    command += [str(output), "--universal", "--python-version", PYTHONS[0], "--generate-hashes"]
    command += ["--no-header", "--no-emit-index-url", "--no-annotate", "--quiet"]
    return command + (["--override", str(overrides)] if overrides else [])


def make_lock(lock: Path, platforms: tuple[Platform, ...]) -> int:
    """Resolve and write one lock; returns the number of its entries.

    Raises
    ------
    InputError
        When the lock has no input file.
    InstallError
        When the requirements cannot be resolved, or the lock would name a host or a path.
    """
    source, overrides = lock.with_suffix(".in"), lock.with_suffix(".overrides.txt")
    if not source.is_file():
        raise InputError(f"{source} is not there", "write the direct requirements into it")
    working = lock.with_suffix(".lock.new")
    # The old lock is handed over, so that versions stay where nothing forces a change.
    working.write_text(lock.read_text() if lock.is_file() else "", encoding="utf-8")
    command = compile_command(source, overrides if overrides.is_file() else None, working)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    resolved = working.read_text(encoding="utf-8")
    working.unlink()
    if done.returncode:
        raise InstallError(f"{lock.name} cannot be resolved:\n{done.stderr.strip()}")
    text = trimmed(resolved, platforms)
    found = [word for word in FOREIGN if word in text]
    if found:
        raise InstallError(f"{lock.name} would name a host or a path ({', '.join(found)})")
    write_text(lock, text)
    return len(parse_lock(text))


def recipe_locks(name: str, directory: Path) -> list[tuple[Path, tuple[Platform, ...]]]:
    """Return the locks that a recipe names and the platforms they serve; they need not exist yet.

    Raises
    ------
    InputError
        For an unknown recipe, or one that is not made from a lock.
    """
    path = directory / f"{name}.yaml"
    if not path.is_file():
        known = recipe_names(directory)
        raise InputError(
            f"there is no engine recipe {name!r}",
            f"{did_you_mean(name, known)}known recipes: {listing(known)}",
        )
    environment = yaml.safe_load(path.read_text(encoding="utf-8")).get("environment", {})
    if "lock" not in environment:
        raise InputError(f"{path.name} is not made from a lock", "name a recipe of kind venv")
    platforms = tuple(environment.get("requires", {}).get("platforms", ("linux-x86_64",)))
    names = [environment["lock"], (environment.get("torch") or {}).get("fallback_lock")]
    return [(directory / n, platforms) for n in names if n]


def main() -> int:
    """Make all locks of one recipe again."""
    parser = argparse.ArgumentParser(prog="python -m enginebook.engines.lock", description=__doc__)
    parser.add_argument("recipe", help="name of a recipe under params/engines, such as vllm-cpu")
    args = parser.parse_args()
    try:
        for path, platforms in recipe_locks(args.recipe, paths.engine_recipes_dir()):
            sys.stdout.write(f"{path.name}: {make_lock(path, platforms)} entries\n")
    except EnginebookError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
