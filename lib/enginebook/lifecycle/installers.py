"""uv and pip as command lines over one environment; both insist on hashes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from enginebook.errors import InputError

PYTORCH_INDEX = "https://download.pytorch.org/whl"
FORCED = "ENGINEBOOK_INSTALLER"


def uv_binary() -> str | None:
    """Return uv's executable from its Python package or the PATH, or None."""
    if importlib.util.find_spec("uv") is None:
        return None
    from uv import find_uv_bin  # noqa: PLC0415

    try:
        return os.fspath(find_uv_bin())
    except FileNotFoundError:
        return None


def choose() -> list[Literal["uv", "pip"]]:
    """Return the installers to try in order; ``ENGINEBOOK_INSTALLER`` leaves only one.

    Raises
    ------
    InputError
        When the variable names something else, or uv where there is none.
    """
    forced = os.environ.get(FORCED, "")
    if forced not in {"", "uv", "pip"}:
        raise InputError(f"{FORCED}={forced!r} is neither uv nor pip", f"set {FORCED}=uv or =pip")
    there = uv_binary() is not None
    if forced == "uv" and not there:
        raise InputError(f"{FORCED}=uv, but uv is not installed", "pip install uv, or unset it")
    if forced == "pip" or not there:
        return ["pip"]
    return ["uv"] if forced == "uv" else ["uv", "pip"]


def _outer_pip(base: Path) -> list[str] | None:
    """Return a pip that can work on another environment (since 22.3): ours, or the base's."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    asked = subprocess.run([str(base), "-m", "pip", "--version"], capture_output=True, check=False)
    return [str(base), "-m", "pip"] if asked.returncode == 0 else None


def _sources(wheels: Path | None) -> list[str]:
    return ["--no-index", "--find-links", str(wheels)] if wheels is not None else []


class Installer(Protocol):
    """Command lines that make and fill one environment."""

    @property
    def name(self) -> Literal["uv", "pip"]:
        """Return which of the two it is."""

    @property
    def python(self) -> Path:
        """Return the environment's interpreter."""

    def create(self) -> list[str]:
        """Return the command that makes the empty environment."""

    def pip(self) -> list[str] | None:
        """Return the start of a pip command line on the environment, where there is a pip."""

    def sync(self, lock: Path) -> list[str]:
        """Return the command that installs a hashed lock and nothing beside it."""

    def torch_from_pytorch_index(self, version: str, variant: str) -> list[str]:
        """Return the command that installs from PyTorch's own index."""

    def from_index(self, requirement: str, index_url: str) -> list[str]:
        """Return the command that resolves and installs from a vendor's index."""


@dataclass(frozen=True)
class Pip:
    """pip and the standard library's venv."""

    directory: Path
    base: Path
    wheels: Path | None = None
    name: Literal["uv", "pip"] = "pip"

    @property
    def python(self) -> Path:
        """Return the environment's interpreter."""
        return self.directory / "bin" / "python"

    @cached_property
    def _outer(self) -> list[str] | None:
        return _outer_pip(self.base)

    def create(self) -> list[str]:
        """Return the command that makes the empty environment; with its own pip only if needed."""
        options = ["--without-pip"] if self._outer is not None else []
        return [str(self.base), "-m", "venv", *options, str(self.directory)]

    def pip(self) -> list[str] | None:
        """Return the start of a pip command line that works on the environment."""
        return self._pip()

    def _pip(self) -> list[str]:
        quiet = "--disable-pip-version-check"
        if self._outer is None:
            return [str(self.python), "-m", "pip", quiet]
        return [*self._outer, quiet, "--python", str(self.python)]

    def sync(self, lock: Path) -> list[str]:
        """Return the command that installs a hashed lock and nothing beside it."""
        checked = ["--require-hashes", "--no-deps", "--no-input", "--progress-bar", "off"]
        return [*self._pip(), "install", *checked, *_sources(self.wheels), "-r", str(lock)]

    def torch_from_pytorch_index(self, version: str, variant: str) -> list[str]:
        """Return the command that installs from PyTorch's own index."""
        quick = ["--retries", "1", "--timeout", "20", "--no-input", "--progress-bar", "off"]
        index = ["--index-url", f"{PYTORCH_INDEX}/{variant}"]
        return [*self._pip(), "install", "--no-deps", *quick, *index, f"torch=={version}+{variant}"]

    def from_index(self, requirement: str, index_url: str) -> list[str]:
        """Return the command that resolves and installs from a vendor's index."""
        options = ["--no-input", "--progress-bar", "off", "--extra-index-url", index_url]
        return [*self._pip(), "install", *options, requirement]


@dataclass(frozen=True)
class Uv:
    """uv; it compiles bytecode as pip does, so that first starts are alike."""

    directory: Path
    base: Path
    wheels: Path | None = None
    name: Literal["uv", "pip"] = "uv"

    @cached_property
    def _uv(self) -> str:
        found = uv_binary()
        assert found is not None  # noqa: S101 - choose() saw it
        return found

    @property
    def python(self) -> Path:
        """Return the environment's interpreter."""
        return self.directory / "bin" / "python"

    def create(self) -> list[str]:
        """Return the command that makes the empty environment."""
        options = ["--no-project", "--python", str(self.base)]
        return [self._uv, "venv", *options, str(self.directory)]

    def pip(self) -> list[str] | None:
        """Return the start of a pip command line (uv does not read pip's configuration)."""
        outer = _outer_pip(self.base)
        if outer is None:
            return None
        return [*outer, "--disable-pip-version-check", "--python", str(self.python)]

    def _install(self) -> list[str]:
        return [self._uv, "pip", "install", "--python", str(self.python), "--compile-bytecode"]

    def sync(self, lock: Path) -> list[str]:
        """Return the command that installs a hashed lock and nothing beside it."""
        checked = ["--require-hashes", "--no-deps", *_sources(self.wheels)]
        return [*self._install(), *checked, "-r", str(lock)]

    def torch_from_pytorch_index(self, version: str, variant: str) -> list[str]:
        """Return the command that installs from PyTorch's own index."""
        return [*self._install(), "--no-deps", "--torch-backend", variant, f"torch=={version}"]

    def from_index(self, requirement: str, index_url: str) -> list[str]:
        """Return the command that resolves and installs from a vendor's index."""
        return [*self._install(), "--extra-index-url", index_url, requirement]


def make(
    name: Literal["uv", "pip"], directory: Path, base: Path, wheels: Path | None = None
) -> Installer:
    """Return the installer of this name for one environment; ``wheels`` replaces all indexes."""
    return Uv(directory, base, wheels) if name == "uv" else Pip(directory, base, wheels)
