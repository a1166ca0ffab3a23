"""Licences of the locked packages, from what each installed package says of itself.

The order of trust: an SPDX expression in the metadata; a licence field or classifier that means one
licence; the licence text that the package ships; a dated line of licences.toml. What none of them
answers is unknown, and a test refuses it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass, field
from datetime import date
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from license_expression import ExpressionError, get_spdx_licensing
from locked import ROOT, Locked, read_lock
from packaging.utils import canonicalize_name

RULES = ROOT / "tools" / "licences.toml"
PAGE = ROOT / "docs" / "licences.md"
SPDX = get_spdx_licensing()
TEXT_FILE = re.compile(r"(^|/)(licen[cs]e|copying)[^/]*$", re.IGNORECASE)
# A sentence that only one licence has; the first that matches counts.
TEXTS = (
    ("Apache-2.0", r"Apache License\s+Version 2\.0"),
    ("MPL-2.0", r"Mozilla Public License,? (v\. |Version )2\.0"),
    ("BSD-3-Clause", r"Redistribution and use in source and binary forms[\s\S]*Neither the name"),
    ("BSD-2-Clause", r"Redistribution and use in source and binary forms"),
    ("MIT", r"Permission is hereby granted, free of charge, to any person"),
    ("ISC", r"Permission to use, copy, modify, and(/or)? distribute this software"),
)


@dataclass(frozen=True)
class Rules:
    """The file licences.toml."""

    accepted: frozenset[str] = frozenset()
    spelling: dict[str, str] = field(default_factory=dict)
    known: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Licence:
    """What a locked package is licensed under (SPDX, or None) and how that is known."""

    package: Locked
    spdx: str | None
    source: str


def read_rules(path: Path = RULES) -> Rules:
    """Return the rules of a TOML file."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    return Rules(frozenset(raw["accepted"]), raw["spelling"], raw["known"])


def installed() -> dict[str, Distribution]:
    """Return the packages of this environment by their normal name."""
    return {canonicalize_name(d.metadata["Name"]): d for d in distributions()}


def licences(entries: list[Locked], rules: Rules) -> list[Licence]:
    """Return the licence of every entry of a lock."""
    here = installed()
    return [_licence(entry, here.get(entry.name), rules) for entry in entries]


def _licence(entry: Locked, package: Distribution | None, rules: Rules) -> Licence:
    known = rules.known.get(entry.name)
    if known is not None:
        day: date = known["read"]
        return Licence(entry, known["spdx"], f"its wheel, read {day}")
    if package is None:
        return Licence(entry, None, "not installed here")
    about: Message = package.metadata  # type: ignore[assignment]
    said = from_metadata(about, rules)
    if said is not None:
        return Licence(entry, said, "its metadata")
    return Licence(entry, from_files(package), "the text that it ships")


def from_metadata(about: Message, rules: Rules) -> str | None:
    """Return the SPDX expression that metadata states without doubt, or None."""
    for text in (about["License-Expression"], about["License"]):
        found = spdx(text or "", rules)
        if found is not None:
            return found
    names = [c.split("::")[-1].strip() for c in about.get_all("Classifier") or () if _licensing(c)]
    found_all = {spdx(name, rules) for name in names}
    return found_all.pop() if len(found_all) == 1 else None


def _licensing(classifier: str) -> bool:
    return classifier.startswith("License ::") and "DFSG" not in classifier


def spdx(text: str, rules: Rules) -> str | None:
    """Return a text as an SPDX expression, or None when it is none."""
    known = rules.spelling.get(text.strip().lower(), text.strip())
    if not known or len(known.splitlines()) > 1 or known == "UNKNOWN":
        return None
    try:
        return str(SPDX.parse(known, validate=True))
    except (ExpressionError, AttributeError):
        return None


def from_files(package: Distribution) -> str | None:
    """Return what the licence texts of a package are; several different ones are joined by AND."""
    files = [f for f in package.files or () if TEXT_FILE.search(str(f)) and ".dist-info" in str(f)]
    texts = [f.read_text(encoding="utf-8") for f in files if f.suffix not in {".py", ".pyc"}]
    found = dict.fromkeys(f for t in texts if t is not None and (f := from_text(t)) is not None)
    return " AND ".join(found) or None


def from_text(text: str) -> str | None:
    """Return the licence whose words a text has."""
    return next((name for name, words in TEXTS if re.search(words, text)), None)


def refused(licence: Licence, rules: Rules) -> str | None:
    """Return why a licence is not accepted, or None."""
    if licence.spdx is None:
        return f"{licence.package.name}: licence unknown ({licence.source})"
    parts = {p for p in re.split(r"[\s()]+", licence.spdx) if p and p not in {"AND", "OR", "WITH"}}
    strange = sorted(parts - rules.accepted)
    return f"{licence.package.name}: {', '.join(strange)} is not accepted" if strange else None


def page(found: list[Licence], day: date) -> str:
    """Return the list of licences as a Markdown page."""
    rows = [
        f"| {v.package.name} | {v.package.version} | {v.spdx or 'unknown'} | {v.source} |"
        for v in found
    ]
    return "\n".join(
        [
            "# Licences of the workbook's packages",
            "",
            f"Every package of requirements.lock, {day}, written by `make sbom`. Engines live in",
            "environments of their own and are not part of this list. Where the lock has two",
            "versions, hosts of different kinds or Python versions install one each.",
            "",
            "| package | version | licence (SPDX) | known from |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    """Write the page; exit 1 when a licence is unknown or not accepted."""
    rules = read_rules()
    found = licences(read_lock(), rules)
    trouble = [t for v in found if (t := refused(v, rules)) is not None]
    for line in trouble:
        print(f"licences: {line}; see tools/licences.toml", file=sys.stderr)
    if trouble:
        return 1
    PAGE.write_text(page(found, date.today()), encoding="utf-8")  # noqa: DTZ011 - a day for people
    print(f"{PAGE.relative_to(ROOT)}: {len(found)} packages, every licence known and accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
