"""Entries of a lock file: what would be installed, and what a licence or an advisory is asked for.

The engines' locks and the workbook's have the same form (``name==version ; marker`` and hashes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
WORKBOOK = ROOT / "requirements.lock"
ENTRY = re.compile(r"^([A-Za-z0-9_.-]+==[^\\\n]+?)[ \t]*\\?$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Locked:
    """One pinned package; ``marker`` is empty when every host installs it."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...] = ()

    @property
    def pin(self) -> str:
        """Return ``name==version``."""
        return f"{self.name}=={self.version}"


def read_lock(path: Path = WORKBOOK) -> list[Locked]:
    """Return the entries of a lock in its order, with their sha256 sums (hex)."""
    text = path.read_text(encoding="utf-8")
    heads = list(ENTRY.finditer(text))
    ends = [*(h.start() for h in heads[1:]), len(text)]
    return [_entry(h[1], text[h.end() : end]) for h, end in zip(heads, ends, strict=True)]


def _entry(line: str, tail: str) -> Locked:
    requirement = Requirement(line)
    (pin,) = requirement.specifier
    return Locked(
        canonicalize_name(requirement.name),
        pin.version,
        str(requirement.marker or ""),
        tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", tail)),
    )


def applies_here(entry: Locked) -> bool:
    """Return whether this interpreter on this host would install an entry."""
    marker = Requirement(f"{entry.pin} ; {entry.marker}").marker if entry.marker else None
    return marker is None or marker.evaluate()
