"""Reading start-up phases and memory figures from an engine's log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from enginebook.engines.base import MemoryPart, Phase

PhaseName = Literal["process", "imports", "weights", "compile", "cache", "ready", "first_token"]
Component = Literal["weights", "kv_cache", "graphs", "activations", "other", "total"]
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "GB(2^30)": 2**30}


@dataclass(frozen=True)
class Mark:
    """A log line that ends a phase; phases follow one another, the first begins at 0 s.

    ``last`` takes the last line that matches, not the first, for steps that come several times.
    """

    phase: PhaseName
    pattern: str
    last: bool = False


@dataclass(frozen=True)
class MemoryLine:
    """A log line that states bytes: group 1 of the pattern is a number in ``unit``."""

    component: Component
    pattern: str
    unit: str
    source: str


def phases_from_marks(log: Sequence[tuple[float, str]], marks: Sequence[Mark]) -> list[Phase]:
    """Return one phase for each mark that the log has, in the order of the marks.

    A mark is looked for only after the line of the mark before it; one that is missing is left
    out and its time falls to the next phase. Seconds count from the start of the process.
    """
    phases: list[Phase] = []
    begin, position = 0.0, 0
    for mark in marks:
        found = _match(log, mark, position)
        if found is not None:
            end = log[found][0]
            phases.append(Phase(mark.phase, begin, end, "log"))
            begin, position = end, found + 1
    return phases


def _match(log: Sequence[tuple[float, str]], mark: Mark, start: int) -> int | None:
    places = range(start, len(log))
    pattern = re.compile(mark.pattern)
    return next(
        (i for i in (reversed(places) if mark.last else places) if pattern.search(log[i][1])), None
    )


def memory_from_lines(log: Sequence[str], lines: Sequence[MemoryLine]) -> list[MemoryPart]:
    """Return the bytes that the log states; several lines of one component are added up.

    Where one component is stated by several patterns, the first pattern that matches is used.
    """
    parts: dict[str, MemoryPart] = {}
    for line in lines:
        values = [float(m.group(1)) for text in log for m in re.finditer(line.pattern, text)]
        if values and line.component not in parts:
            held = round(sum(values) * UNITS[line.unit])
            parts[line.component] = MemoryPart(line.component, held, line.source)
    return list(parts.values())
