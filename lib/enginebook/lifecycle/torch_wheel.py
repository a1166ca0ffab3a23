"""PyTorch for an engine's environment, from the first source that has it.

The build that fits a host (``2.13.0+cpu``) is not on the ordinary package index, and where it can
be had differs by host; hence it stays out of the engines' locks and is looked for here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from enginebook.lifecycle.installers import PYTORCH_INDEX, Installer
from enginebook.lifecycle.logged import Log

TRY_TIMEOUT_S = 1800.0


class Torch(Protocol):
    """The part of a recipe that is needed here."""

    @property
    def version(self) -> str:
        """Return the public version, such as ``2.13.0``."""

    @property
    def variant(self) -> str:
        """Return ``cpu`` or a CUDA line such as ``cu130``."""


@dataclass(frozen=True)
class TorchSource:
    """Where PyTorch came from, in words, and its wheel's digest when the installer told it."""

    text: str
    sha256: str | None


def install_torch(
    torch: Torch, fallback: Path | None, installer: Installer, log: Log
) -> TorchSource:
    """Install PyTorch into the environment and say which source it was taken from.

    Raises
    ------
    InstallError
        When no source had it.
    """
    tried: list[str] = []
    for text, argv, report in _sources(torch, fallback, installer, log):
        log.say(f"PyTorch {torch.version} ({torch.variant}): trying {text}")
        env = {**os.environ, "UV_HTTP_RETRIES": "1", "UV_HTTP_TIMEOUT": "30"}
        if log.run(f"PyTorch from {text}", argv, env=env, timeout_s=TRY_TIMEOUT_S) == 0:
            return TorchSource(text, _sha256(report))
        tried.append(text)
    raise log.failure(
        f"no PyTorch {torch.version} ({torch.variant}) from any of: {'; '.join(tried)}",
        "connect to the internet, name a folder with the wheel in pip's find-links, "
        "or install from a bundle",
    )


def _sources(
    torch: Torch, fallback: Path | None, installer: Installer, log: Log
) -> Iterator[tuple[str, list[str], Path | None]]:
    """Yield (source in words, command, pip's report) in the order in which they are tried."""
    pip = installer.pip()
    if pip is not None:
        report = log.path.with_suffix(".torch.json")
        argv = [*pip, "install", "--no-deps", "--no-input", "--only-binary", ":all:"]
        argv += ["--progress-bar", "off", "--retries", "1", "--timeout", "20"]
        argv += ["--report", str(report), f"torch=={torch.version}+{torch.variant}"]
        yield "the wheel that this host's pip configuration offers", argv, report
    yield (
        f"PyTorch's index ({PYTORCH_INDEX}/{torch.variant})",
        (installer.torch_from_pytorch_index(torch.version, torch.variant)),
        None,
    )
    if fallback is not None:
        yield (
            f"the ordinary wheel of the package index ({fallback.name})",
            (installer.sync(fallback)),
            None,
        )


def _sha256(report: Path | None) -> str | None:
    """Return the digest in pip's installation report."""
    if report is None:
        return None
    try:
        found: Any = json.loads(report.read_text(encoding="utf-8"))
        hashes = found["install"][0]["download_info"]["archive_info"]["hashes"]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    digest = hashes.get("sha256")
    return str(digest) if digest else None
