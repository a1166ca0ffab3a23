"""What an engine settled on: every choice that it made itself, read from its log."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def number(text: str) -> int | float:
    """Return a number, thousands separated by commas or not."""
    plain = text.replace(",", "")
    return int(plain) if plain.lstrip("-").isdigit() else float(plain)


def text(value: str) -> str | None:
    """Return a text; what Python calls None is nothing."""
    bare = value.strip("'\"")
    return None if bare in {"None", ""} else bare.removeprefix("torch.")


def flag(value: str) -> bool:
    """Return a switch."""
    return value.strip("'\"").lower() == "true"


def inverse(value: str) -> bool:
    """Return a switch whose name says the opposite."""
    return not flag(value)


def off_if(word: str) -> Callable[[str], bool]:
    """Return a reader of a switch that is off at one value."""
    return lambda value: value.strip("'\"") != word


@dataclass(frozen=True)
class Setting:
    """Where an engine's log tells an option, by the option's common name.

    Group 1 of the pattern is the value; the last line that matches counts, since engines correct
    their first choice.
    """

    option: str
    pattern: str
    read: Callable[[str], Any] = number


def settled(log: Sequence[str], settings: Sequence[Setting]) -> dict[str, Any]:
    """Return options by common name as the log tells them; what it does not tell is absent."""
    found: dict[str, Any] = {}
    for setting in settings:
        pattern = re.compile(setting.pattern)
        values = [m[1] for m in map(pattern.search, log) if m]
        if values:
            found[setting.option] = setting.read(values[-1])
    return found


def differences(by_engine: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return, by option, each engine's value where two engines that tell it differ.

    Parameters
    ----------
    by_engine
        What each engine settled on. None is what an engine says is off; an engine that does not
        tell an option has no part in it.
    """
    options = dict.fromkeys(option for values in by_engine.values() for option in values)
    told = {o: {e: v[o] for e, v in by_engine.items() if o in v} for o in options}
    return {o: values for o, values in told.items() if len(set(map(repr, values.values()))) > 1}
