"""What a host must offer before an engine is installed: checked first, refused with a remedy."""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from enginebook.errors import InputError

GIB = 1 << 30
GB = 1_000_000_000
SEARCHED_PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14", "python3")


@dataclass(frozen=True)
class Obstacle:
    """One reason why an engine cannot run on this host, and what to do about it."""

    what: str
    remedy: str


def this_platform() -> str:
    """Return the host as recipes name it, such as ``linux-x86_64``."""
    return f"{sys.platform}-{platform.machine().lower()}".replace("win32", "windows")


def glibc_version() -> str | None:
    """Return the C library's version, or None where it is not glibc."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else None


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """Return the CPU's feature flags as Linux names them (empty where they cannot be read)."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def python_version(python: str | Path) -> str | None:
    """Return the version of an interpreter, or None when it cannot be run."""
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    try:
        shown = subprocess.run(
            [str(python), "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return shown.stdout.strip()


def find_python(specifier: str) -> Path:
    """Return an interpreter for an environment: this one's base if it fits, else one on the PATH.

    Raises
    ------
    InputError
        When none fits.
    """
    wanted = SpecifierSet(specifier)
    # A virtual environment's own interpreter would make the new one depend on it.
    base = getattr(sys, "_base_executable", None) or sys.executable
    for candidate in (base, *filter(None, map(shutil.which, SEARCHED_PYTHONS))):
        version = python_version(candidate)
        if version and Version(version) in wanted:
            return Path(candidate)
    raise InputError(
        f"no Python {specifier} on this machine (this one is {platform.python_version()})",
        "install one and put it on the PATH, for example with: uv python install 3.12",
    )


def obstacles(requires: Any, *, python: str | None = None) -> list[Obstacle]:
    """Return what stands against a recipe's ``requires`` (and Python) on this host."""
    found = [
        *_platform(requires.platforms),
        *_glibc(requires.glibc),
        *_flags(requires.cpu_flags),
        *_commands(requires.commands),
        *_gpu(requires),
    ]
    if python is not None:
        try:
            find_python(python)
        except InputError as error:
            found.append(Obstacle(error.message, error.remedy))
    return found


def _platform(platforms: Sequence[str]) -> list[Obstacle]:
    here = this_platform()
    if not platforms or here in platforms:
        return []
    what = f"it runs on {', '.join(platforms)}; this machine is {here}"
    return [Obstacle(what, "use another machine, or another engine")]


def _glibc(least: str | None) -> list[Obstacle]:
    if least is None or not sys.platform.startswith("linux"):
        return []
    have = glibc_version()
    if have is not None and Version(have) >= Version(least):
        return []
    what = f"its wheels need glibc {least} or newer; this machine has {have or 'another C library'}"
    return [Obstacle(what, "use a newer Linux, or run the engine in a container")]


def _flags(wanted: Sequence[str]) -> list[Obstacle]:
    have = cpu_flags()
    missing = [flag for flag in wanted if flag not in have]
    if not missing or not have:
        return []
    what = f"its CPU code needs {', '.join(missing)}, which this CPU lacks"
    return [Obstacle(what, "use a CPU that has it, or another engine")]


def _commands(wanted: Sequence[str]) -> list[Obstacle]:
    missing = [name for name in wanted if shutil.which(name) is None]
    return [
        Obstacle(f"the program {name!r} is not on the PATH", f"install {name}") for name in missing
    ]


def _gpu(requires: Any) -> list[Obstacle]:
    if requires.gpu != "nvidia":
        return []
    from enginebook.lifecycle import gpu  # noqa: PLC0415 - NVML is looked for only when needed

    view = gpu.look()
    if not view.devices:
        return [Obstacle(f"it needs an NVIDIA GPU: {view.reason}", "use a machine with a GPU")]
    return _driver(requires.driver, view.driver) + _capability(
        requires.compute_capability, view.devices
    )


def _known(version: str | None) -> Version | None:
    """Return a version, or None where it is unknown or no version: nothing is refused for that."""
    with contextlib.suppress(InvalidVersion):
        return Version(version) if version else None
    return None


def _driver(least: str | None, driver: str | None) -> list[Obstacle]:
    have = _known(driver)
    if least is None or have is None or have >= Version(least):
        return []
    what = f"it needs NVIDIA driver {least} or newer; this one is {driver}"
    return [Obstacle(what, "update the driver, or choose a recipe for an older CUDA")]


def _capability(least: str | None, devices: Sequence[Any]) -> list[Obstacle]:
    known = [(d, _known(d.compute_capability)) for d in devices]
    weak = [d for d, have in known if least and have is not None and have < Version(least)]
    if not weak:
        return []
    what = f"it needs compute capability {least}; {weak[0].name} has {weak[0].compute_capability}"
    return [Obstacle(what, "use a newer GPU, or another engine")]


def check_disk(directory: Path, need_gb: float, what: str) -> None:
    """Refuse when a folder's file system lacks space; ``need_gb`` counts 1e9 bytes.

    Raises
    ------
    InputError
        With what is free, what is needed, and how to put the cache elsewhere.
    """
    place = directory
    while not place.exists():
        place = place.parent
    free_gb = shutil.disk_usage(place).free / GB
    if free_gb < need_gb:
        raise InputError(
            f"{what} needs {need_gb:g} GB of disk; {free_gb:.1f} GB are free at {place}",
            "free some space, or set ENGINEBOOK_CACHE to a folder on another disk",
        )
