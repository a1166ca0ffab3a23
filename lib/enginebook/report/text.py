"""Every sentence of the report, in English and Chinese, through one catalogue.

The sentences live in catalogue/<language>.yaml as nested keys; code names them by dotted keys
(``say("chart.throughput.x", "zh")``). Both files hold the same keys with the same fields, which
a test proves, so a missing translation cannot reach a reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
FOLDER = Path(__file__).parent / "catalogue"


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    leaves: dict[str, str] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            leaves.update(_flat(value, f"{key}."))
        else:
            leaves[key] = str(value)
    return leaves


@cache
def catalogue(language: Language) -> Mapping[str, str]:
    """Return all texts of one language by dotted key."""
    source = (FOLDER / f"{language}.yaml").read_text(encoding="utf-8")
    return _flat(yaml.safe_load(source))


def say(key: str, language: Language, **values: object) -> str:
    """Return one text with its fields filled in.

    Raises
    ------
    KeyError
        When the catalogue lacks the key or the call lacks a field: a fault of the program.
    """
    return catalogue(language)[key].format_map({k: str(v) for k, v in values.items()})


def known(key: str, language: Language, otherwise: str) -> str:
    """Return a text for a key that data may hold (a metric, a phase), or the data's own word."""
    return catalogue(language).get(key, otherwise)


def count(number: int, noun: str, language: Language) -> str:
    """Return a number with its noun in the right form, as in "1 block" and "3 blocks"."""
    form = "one" if number == 1 else "many"
    return say(f"count.{noun}.{form}", language, n=f"{number:,}")


def listing(items: Iterable[str], language: Language) -> str:
    """Return items as a list within a sentence: "a, b and c"."""
    words = list(items)
    if len(words) < 2:  # noqa: PLR2004
        return "".join(words)
    comma, last = say("list.comma", language), say("list.and", language)
    return f"{comma.join(words[:-1])}{last}{words[-1]}"
