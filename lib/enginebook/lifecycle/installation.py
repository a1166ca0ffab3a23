"""What an installed engine environment is, and the marker that says it is whole."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from enginebook import store

MARKER = "enginebook-installation.json"
Kind = Literal["venv", "bundle", "existing", "external", "program", "index", "container"]


@dataclass(frozen=True)
class Step:
    """One thing that was done to install an engine.

    Attributes
    ----------
    name
        What was done, in words.
    seconds
        Wall-clock time.
    command
        The command line, or "" where the step was not a command.
    """

    name: str
    seconds: float
    command: str = ""


@dataclass(frozen=True)
class Installation:
    """An engine that can be started, and what it took to get there.

    Attributes
    ----------
    python
        Interpreter of the environment; None when nothing is started here (``external``).
    directory
        Folder of the environment; None when it is not ours.
    version
        The engine's version as its own environment says it.
    seconds
        Wall-clock time of the whole installation, as it was made (also when reused now); None
        when it is not ours.
    bytes, packages
        Disk use of the environment (allocated blocks) and number of distributions in it;
        None when it is not ours.
    torch
        Which source the PyTorch wheel came from, in words; None when the recipe wants none.
    torch_sha256
        Digest of the PyTorch wheel, when the installer told it.
    kind
        ``venv``, ``bundle``, ``index``, ``container``, ``existing``, ``external`` or ``program``.
    installer
        ``uv``, ``pip``, a container runtime, or "" when nothing was installed.
    reused
        Whether it was found ready.
    log
        Everything the installers said; None when nothing was installed.
    steps
        What was done, with seconds.
    base_url, program, image
        Where an external server, a program or a container image is; else None.
    received_bytes
        What this host's network received meanwhile: the download, and little else on a quiet
        host; about nothing when wheels came from the installer's cache or from disk.
    """

    python: Path | None
    directory: Path | None
    version: str
    seconds: float | None
    bytes: int | None
    packages: int | None
    torch: str | None
    kind: Kind
    installer: str
    reused: bool
    log: Path | None
    torch_sha256: str | None = None
    steps: tuple[Step, ...] = ()
    base_url: str | None = None
    program: str | None = None
    image: str | None = None
    received_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the installation as JSON, paths as texts."""
        plain = asdict(self)
        plain["steps"] = list(plain["steps"])
        return {k: str(v) if isinstance(v, Path) else v for k, v in plain.items()}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Installation:
        """Return the installation that :meth:`to_json` wrote."""
        steps = tuple(Step(**s) for s in plain.get("steps", []))
        places = {k: Path(v) if v is not None else None for k, v in plain.items() if k in _PATHS}
        return cls(**{**plain, **places, "steps": steps})


_PATHS = ("python", "directory", "log")


def write_marker(installation: Installation) -> None:
    """Say that the environment is whole; called last."""
    assert installation.directory is not None  # noqa: S101 - only venvs have markers
    store.write_json(installation.directory / MARKER, installation.to_json())


def read_marker(directory: Path) -> Installation | None:
    """Return the installation in a folder, or None when it is missing, broken or not whole."""
    try:
        found = Installation.from_json(store.read_json(directory / MARKER))
    except (OSError, ValueError, TypeError):
        return None
    whole = found.python is not None and found.python.exists()
    return replace(found, reused=True) if whole else None


def disk_bytes(directory: Path) -> int:
    """Return the bytes that a folder's files take on disk, hard links counted once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            facts = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - called 50,000 times
            if (facts.st_dev, facts.st_ino) not in seen:
                seen.add((facts.st_dev, facts.st_ino))
                total += facts.st_blocks * 512
    return total


def network_received_bytes() -> int | None:
    """Return what all network interfaces but the loopback have received since boot."""
    counters = psutil.net_io_counters(pernic=True)
    found = [c.bytes_recv for name, c in counters.items() if not name.startswith("lo")]
    return sum(found) if found else None


def count_packages(python: Path) -> int:
    """Return the number of distributions in the environment of an interpreter."""
    places = python.parent.parent.glob("lib/python*/site-packages/*.dist-info")
    return sum(1 for _ in places)
