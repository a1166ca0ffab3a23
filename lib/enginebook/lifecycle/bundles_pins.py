"""Which packages of a lock go into a bundle, given what the target host has already.

A package of the host is used in place of the locked one only where every requirement of the
packages that the bundle carries allows its version, or where the recipe says by name, and why,
that another version works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from enginebook.engines.lock import Entry, marker_environment, parse_lock
from enginebook.errors import InputError

_FREEZE = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==|\s)\s*([0-9][^\s;#]*)\s*$")
_RULE = re.compile(r"^[\s-]*$|^Package\s+Version\s*$")
Reason = Literal["host", "accepted", "not needed"]


@dataclass(frozen=True)
class Target:
    """The host that a bundle is made for: CPython's version, such as ``3.12``, and its glibc."""

    python: str
    glibc: str = "2.28"

    def markers(self) -> dict[str, str]:
        """Return the values of environment markers there."""
        return marker_environment("linux-x86_64", self.python)


@dataclass(frozen=True)
class LeftOut:
    """A locked package that a bundle does not carry.

    Attributes
    ----------
    locked, host
        Versions; ``host`` is None when the host has none.
    reason
        ``host``: its version meets every requirement. ``accepted``: it breaks one, and the recipe
        says that it works. ``not needed``: the recipe names it as one that the target never loads.
    note
        The recipe's words, or the requirement.
    """

    name: str
    locked: str
    host: str | None
    reason: Reason
    note: str = ""


@dataclass(frozen=True)
class Need:
    """A requirement of one package on another."""

    by: str
    requirement: Requirement

    @property
    def name(self) -> str:
        """Return the canonical name of what is required."""
        return canonicalize_name(self.requirement.name)

    def allows(self, version: str) -> bool:
        """Return whether a version will do; texts that are no version never will."""
        try:
            return self.requirement.specifier.contains(Version(version), prereleases=True)
        except InvalidVersion:
            return False


def pins(lock: Path, target: Target) -> dict[str, Entry]:
    """Return the entries of a lock that apply to the target, by canonical name."""
    markers = target.markers()
    kept: dict[str, Entry] = {}
    for entry in parse_lock(lock.read_text(encoding="utf-8")):
        marker = entry.requirement.marker
        if marker is None or marker.evaluate(markers):
            kept[canonicalize_name(entry.requirement.name)] = entry
    return kept


def pinned_version(entry: Entry) -> str:
    """Return the version that an entry pins."""
    return str(entry.requirement.specifier).removeprefix("==")


def read_freeze(path: Path) -> dict[str, str]:
    """Return canonical name -> version of ``pip list`` (either format) or ``pip freeze``.

    Raises
    ------
    InputError
        For a line that is neither (an editable or a direct reference has no version).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error}", "name the target's pip list") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if _RULE.match(line) or line.startswith(("#", "-e ")) or " @ " in line:
            continue
        match = _FREEZE.match(line)
        if match is None:
            raise InputError(
                f"{path}:{number}: {line!r} is no line of a pip list",
                "make the file on the target with: python -m pip list --format=freeze",
            )
        found[canonicalize_name(match[1])] = match[2]
    return found


def needs_of(name: str, texts: Iterable[str], extras: Iterable[str], target: Target) -> list[Need]:
    """Return the requirements of one package that apply on the target.

    Parameters
    ----------
    texts
        Values of ``Requires-Dist`` in its metadata; those that cannot be read are passed over.
    extras
        Extras of it that others ask for.
    """
    found = []
    for text in texts:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        asked = [{**target.markers(), "extra": extra} for extra in ("", *extras)]
        if marker is None or any(marker.evaluate(values) for values in asked):
            found.append(Need(name, requirement))
    return found


def extras_asked(needs: Iterable[Need]) -> dict[str, set[str]]:
    """Return canonical name -> the extras that requirements ask of it."""
    asked: dict[str, set[str]] = {}
    for need in needs:
        asked.setdefault(need.name, set()).update(need.requirement.extras)
    return asked


def judge_host(
    locked: Mapping[str, Entry],
    host: Mapping[str, str],
    needs: Iterable[Need],
    accept: Mapping[str, str],
) -> tuple[dict[str, LeftOut], list[Need]]:
    """Return the packages that the host's own stand for, and the requirements that they break.

    Parameters
    ----------
    locked
        The lock's entries by canonical name.
    host
        What the host has: canonical name -> version.
    needs
        Requirements of every package that the bundle carries.
    accept
        Canonical name -> why the host's version works though a requirement says otherwise.
    """
    broken: dict[str, Need] = {}
    for need in needs:
        if need.name in host and not need.allows(host[need.name]):
            broken.setdefault(need.name, need)
    left = {}
    for name, entry in locked.items():
        if name not in host or (name in broken and name not in accept):
            continue
        why: Reason = "accepted" if name in broken else "host"
        left[name] = LeftOut(
            name, pinned_version(entry), host[name], why, accept[name] if why == "accepted" else ""
        )
    return left, [n for name, n in broken.items() if name not in accept]


def subset_lock(entries: Iterable[Entry]) -> str:
    """Return the text of a hashed lock of some entries."""
    return "".join(_closed(entry) for entry in entries)


def _closed(entry: Entry) -> str:
    """Return an entry's lines; the last one must not be continued."""
    last = entry.lines[-1].rstrip().removesuffix("\\").rstrip()
    return "\n".join([*entry.lines[:-1], last]) + "\n"
