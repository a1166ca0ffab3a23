"""How long an engine stays after a notebook's cell, for an analyst who tries things out."""

from __future__ import annotations

import os
import re

from enginebook.errors import InputError
from enginebook.pipeline.book import Book

_SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
LONGEST_S = 24 * 3600.0


def seconds_of(text: float | str) -> float:
    """Return a time like ``"15min"``, ``"90s"``, ``"2h"`` or ``90`` in seconds.

    Raises
    ------
    InputError
        For anything else, and for more than a day.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|)", str(text).strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else -1.0
    if not 0 <= seconds <= LONGEST_S:
        raise InputError(f"{text!r} is no time up to a day", 'write it like "15min", "90s" or "2h"')
    return seconds


def warm_for(book: Book, keep_warm: float | str) -> tuple[float, dict[str, str]]:
    """Return for how long the engine stays, and what keeps other notebooks from taking it over.

    In a batch run it is 0 s: the next stage needs the engine's memory. A block is one start of
    the engine, so a server that was kept warm serves cells of its own study and block alone.
    """
    seconds = seconds_of(keep_warm)
    if not seconds or os.environ.get("ENGINEBOOK_PLAN"):
        return 0.0, {}
    return seconds, {"ENGINEBOOK_WARM_FOR": f"{book.study.study} {book.stage.name}"}
