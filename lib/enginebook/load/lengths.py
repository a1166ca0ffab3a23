"""Lengths in tokens: fixed, or drawn from a distribution that a text names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from enginebook.errors import InputError

_HELP = "use N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA[:LOW:HIGH], in tokens"
_MOST = 10_000_000


@dataclass(frozen=True)
class Lengths:
    """A distribution of whole numbers of tokens, at least ``low``.

    ``first`` and ``second`` are (length, unused), (low, high) or (median, sigma of the logarithm).
    """

    kind: Literal["fixed", "uniform", "lognormal"]
    first: float
    second: float = 0.0
    low: int = 1
    high: int = _MOST

    def draw(self, rng: np.random.Generator) -> int:
        """Return one length."""
        if self.kind == "fixed":
            return int(self.first)
        if self.kind == "uniform":
            return int(rng.integers(int(self.first), int(self.second) + 1))
        value = round(rng.lognormal(math.log(self.first), self.second))
        return int(min(max(value, self.low), self.high))

    @property
    def text(self) -> str:
        """Return the text that parses to this object."""
        if self.kind == "fixed":
            return str(int(self.first))
        if self.kind == "uniform":
            return f"uniform:{int(self.first)}:{int(self.second)}"
        return f"lognormal:{self.first:g}:{self.second:g}:{self.low}:{self.high}"

    @property
    def fixed(self) -> int | None:
        """Return the length when there is only one, else None."""
        return int(self.first) if self.kind == "fixed" else None


def parse_lengths(value: int | str | Lengths, name: str = "length", least: int = 1) -> Lengths:
    """Read a length or a distribution of lengths.

    Raises
    ------
    InputError
        When the text is none of the known forms or gives lengths below ``least``.
    """
    if isinstance(value, Lengths):
        return value
    kind, *rest = str(value).split(":")
    try:
        lengths = _from_parts(kind, rest, least)
    except (ValueError, TypeError, IndexError):
        raise InputError(f"{name} {value!r} is no length", _HELP) from None
    if not lengths.first >= least or lengths.high < lengths.low:
        raise InputError(f"{name} {value!r} is less than {least}", _HELP)
    return lengths


def _from_parts(kind: str, rest: list[str], least: int) -> Lengths:
    if not rest:
        return Lengths("fixed", int(kind))
    if kind == "uniform":
        low, high = (int(part) for part in rest)
        if high < low:
            raise ValueError
        return Lengths("uniform", low, high)
    if kind == "lognormal" and len(rest) in {2, 4}:
        low, high = (int(rest[2]), int(rest[3])) if len(rest) == 4 else (max(1, least), _MOST)  # noqa: PLR2004
        return Lengths("lognormal", float(rest[0]), float(rest[1]), low, high)
    raise ValueError
