"""What recipes know of bundles: what one may leave out, and where ready ones lie."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from enginebook.errors import InputError
from enginebook.store import sha256_of_file
from enginebook.study import Frozen
from enginebook.study_file import parse_yaml

BUNDLES = "ENGINEBOOK_BUNDLES"
FACTS = "bundle.json"


class Slimming(Frozen):
    """What a bundle for one kind of GPU need not carry: params/bundles/<lock>.yaml.

    Attributes
    ----------
    leave_out
        Packages that the engine imports for other hardware or other models alone.
    drop
        Globs of files, relative to the package folder.
    kernels
        Glob of libraries -> regular expression over demangled kernel names; machine code of
        kernels that all match is zeroed where GPU code is trimmed.
    accept
        Package -> why a host's version works though a requirement says otherwise.
    env
        Variables of a server that runs from such a bundle.
    """

    leave_out: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    kernels: dict[str, str] = Field(default_factory=dict)
    accept: dict[str, str] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)


def load_slimming(path: Path) -> Slimming:
    """Return the contents of such a file; nothing is left out where there is none.

    Raises
    ------
    InputError
        For broken YAML or a wrong key.
    """
    if not path.is_file():
        return Slimming()
    try:
        return Slimming.model_validate(parse_yaml(path.read_text(encoding="utf-8")) or {})
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise InputError(f"{path}: {error}", "correct the file") from error


def find_bundle(lock: Path) -> Path | None:
    """Return the bundle that ``ENGINEBOOK_BUNDLES`` offers for a lock, or None.

    The variable names one bundle or a folder of bundles. Those of other locks are passed over.
    """
    given = os.environ.get(BUNDLES)
    if not given:
        return None
    place, digest = Path(given).expanduser(), sha256_of_file(lock)
    candidates = [place, *sorted(p for p in place.glob("*") if p.is_dir())]
    return next((p for p in candidates if digest in _locks(p / FACTS)), None)


def _locks(facts: Path) -> set[str]:
    """Return the digests of the locks that a bundle was made from; none for what is no bundle."""
    try:
        read: Any = json.loads(facts.read_text(encoding="utf-8"))
        return {str(recipe["lock_sha256"]) for recipe in read["recipes"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
