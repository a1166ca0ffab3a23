"""Texts of the claims' register in the report's language.

The register and its judge speak English. Statements are translated by the claim they belong to,
and only as long as they are still the register's own: a claim from a user's file keeps its words.
Sentences that are made from figures are translated piece by piece; notes of evidence, which quote
sources, stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import yaml

from enginebook.claims import load_register
from enginebook.report.text import FOLDER, Language

Pattern = tuple[re.Pattern[str], str]


@dataclass(frozen=True)
class Texts:
    """The translations of one language.

    Attributes
    ----------
    statements
        Statements, and what was claimed, by their English text.
    made, reasons
        Patterns with their translations: of whole statements, and of parts of reasons.
    """

    statements: Mapping[str, str]
    made: Sequence[Pattern]
    reasons: Sequence[Pattern]


@cache
def texts(language: Language) -> Texts | None:
    """Return a language's translations; None for English, which needs none."""
    path = FOLDER / f"claims.{language}.yaml"
    if not path.is_file():
        return None
    stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    english = {claim.id: claim.statement for claim in load_register().claims}
    statements = {english[k]: v for k, v in stored["statements"].items() if k in english}
    return Texts(
        {**stored["claimed"], **statements}, _compiled(stored["made"]), _compiled(stored["reasons"])
    )


def _compiled(pairs: Sequence[Sequence[str]]) -> list[Pattern]:
    return [(re.compile(pattern), text) for pattern, text in pairs]


def statement(text: str, language: Language) -> str:
    """Return a claim's statement, or what it claimed, in a language; unknown ones as they are."""
    known = texts(language)
    if known is None or text in known.statements:
        return text if known is None else known.statements[text]
    for pattern, translated in known.made:
        found = pattern.fullmatch(text)
        if found:
            return found.expand(translated)
    return text


def reason(text: str, language: Language) -> str:
    """Return why a verdict was given, its known parts in a language."""
    known = texts(language)
    if known is None:
        return text
    for pattern, translated in known.reasons:
        text = pattern.sub(translated, text)
    return text
