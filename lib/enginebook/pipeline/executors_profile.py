"""A run's Snakemake settings as a profile, for those who go on with Snakemake itself.

``snakemake --profile outputs/runs/<run>/snakemake/profile`` does what the run did: the same rules,
the same executor, the same resources.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

HEAD = "# Snakemake's settings of this run. To go on without enginebook, from any folder:\n"


def profile_of(words: Sequence[str]) -> dict[str, Any]:
    """Return options of Snakemake's command line as a profile: numbers, texts, lists, or True.

    Parameters
    ----------
    words
        Options and their values; targets, which a profile cannot hold, come before the first
        option and are left out.
    """
    found: dict[str, list[Any]] = {}
    values: list[Any] = []
    for word in words:
        if word.startswith("--"):
            values = found.setdefault(word.removeprefix("--"), [])
        else:
            values.append(int(word) if word.isascii() and word.isdigit() else word)
    return {name: _value(values) for name, values in found.items()}


def _value(values: list[Any]) -> Any:
    if not values:
        return True
    return values[0] if len(values) == 1 else values


def profile_text(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> str:
    """Return the profile's file, which names the variables that a profile cannot hold."""
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in environment.items())
    command = f"#   {before}snakemake --profile {shlex.quote(folder)}\n"
    return HEAD + command + yaml.safe_dump(profile_of(words), sort_keys=False)
