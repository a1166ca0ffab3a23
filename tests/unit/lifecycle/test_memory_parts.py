"""Parts of memory against the whole."""

from __future__ import annotations

import pytest

from enginebook.engines.base import MemoryPart
from enginebook.lifecycle.memory_parts import checked, remainder, with_context

GIB = 1 << 30
WEIGHTS = MemoryPart("weights", 10 * GIB, "log")
OTHER = MemoryPart("other", 2 * GIB, "log: non-torch memory")
CONTEXT = MemoryPart("context", GIB, "NVML")


def total(gib: float) -> MemoryPart:
    return MemoryPart("total", int(gib * GIB), "NVML, summed")


def test_the_context_is_taken_from_what_held_it() -> None:
    made = with_context([WEIGHTS, OTHER, total(14)], CONTEXT)
    assert [p.component for p in made] == ["weights", "other", "context", "total"]
    assert made[1].bytes == GIB
    assert made[1].source == "log: non-torch memory, less the context"
    assert sum(p.bytes for p in made[:-1]) == WEIGHTS.bytes + OTHER.bytes


def test_without_a_context_nothing_changes() -> None:
    assert with_context([WEIGHTS, OTHER], None) == [WEIGHTS, OTHER]
    small = MemoryPart("other", 5, "log")
    assert with_context([small], CONTEXT)[0].bytes == 0
    assert with_context([], CONTEXT) == [CONTEXT]


@pytest.mark.parametrize(
    ("whole", "left", "note"),
    [
        (12, 2, ""),
        (10, 0, ""),
        (15, 5, ""),
        (15.5, 5.5, "; 5.5 GiB in no part"),
        (9, -1, "; 1.0 GiB more in its parts: they overlap, or are mapped and unused"),
    ],
)
def test_a_remainder_that_is_odd_is_told(whole: float, left: float, note: str) -> None:
    parts = [WEIGHTS, total(whole)]
    assert remainder(parts) == left * GIB
    made = checked(parts)
    assert made[0] == WEIGHTS
    assert made[1].source == "NVML, summed" + note


def test_parts_without_a_whole_and_a_whole_without_parts_tell_nothing() -> None:
    assert remainder([WEIGHTS]) is None
    assert remainder([total(3)]) is None
    assert checked([WEIGHTS]) == [WEIGHTS]
    assert checked([]) == []
