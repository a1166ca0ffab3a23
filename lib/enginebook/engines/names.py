"""Help with misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"did you mean 'x'? "`` for the nearest known name, or an empty text."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? " if near else ""


def listing(known: Iterable[str]) -> str:
    """Return the names in order, for the end of an error message."""
    return ", ".join(sorted(known)) or "none"
