"""The choice of packages for one recipe: what is carried, what the host's own stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from enginebook.engines.bundled import Slimming
from enginebook.engines.lock import Entry
from enginebook.lifecycle.bundles_pins import (
    LeftOut,
    Need,
    extras_asked,
    judge_host,
    needs_of,
    pinned_version,
    pins,
)
from enginebook.lifecycle.bundles_wheels import Wheels


@dataclass(frozen=True)
class Choice:
    """What became of a lock's entries.

    Attributes
    ----------
    carried
        Canonical name -> entry of the lock.
    left_out
        Canonical name -> why it is not carried.
    unmet
        Requirements that the host's version breaks while the lock has none.
    """

    carried: dict[str, Entry]
    left_out: dict[str, LeftOut]
    unmet: list[Need]


def choose(
    lock: Path,
    slimming: Slimming,
    roots: Sequence[str] | None,
    host: Mapping[str, str],
    wheels: Wheels,
) -> Choice:
    """Follow requirements until nothing changes; wheels are fetched for their metadata.

    Parameters
    ----------
    roots
        Requirements to start from; None takes every entry of the lock.
    host
        Canonical name -> version of what the target has.
    """
    locked = pins(lock, wheels.target)
    not_needed = {
        name: LeftOut(name, pinned_version(locked[name]), host.get(name), "not needed")
        for name in slimming.leave_out
        if name in locked
    }
    wanted = {n: e for n, e in locked.items() if n not in not_needed}
    start = [] if roots is None else [Need("the project", Requirement(text)) for text in roots]
    carried: dict[str, Entry] = {}
    while True:
        needs = start + _needs(carried, start, wheels)
        left, broken = judge_host(wanted, host, needs, slimming.accept)
        reached = wanted if roots is None else {n.name for n in needs}
        now = {n: e for n, e in wanted.items() if n in reached and n not in left}
        if now.keys() <= carried.keys():
            break
        carried |= now
        wheels.fetch(carried)
    kept = {n: each for n, each in left.items() if n not in carried}
    unmet = [need for need in broken if need.name not in carried]
    return Choice(carried, not_needed | kept, unmet)


def _needs(carried: Mapping[str, Entry], start: Sequence[Need], wheels: Wheels) -> list[Need]:
    """Return the requirements of what is carried, with the extras that these ask of each other."""
    texts = {name: wheels.requires(name, entry) for name, entry in carried.items()}
    extras = extras_asked(start)
    while True:
        found = [
            need
            for name, required in texts.items()
            for need in needs_of(name, required, sorted(extras.get(name, ())), wheels.target)
        ]
        asked = extras_asked([*start, *found])
        if asked == extras:
            return found
        extras = asked
