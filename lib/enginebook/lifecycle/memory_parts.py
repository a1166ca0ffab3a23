"""Whether an engine's parts of memory add up to what the system says it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from enginebook.engines.base import MemoryPart

GIB = 1 << 30
MUCH = 5 * GIB


def with_context(parts: Sequence[MemoryPart], context: MemoryPart | None) -> list[MemoryPart]:
    """Return the parts with the context as one of its own.

    Engines that report memory outside of PyTorch as ``other`` count the context in it, so that it
    is taken from there.
    """
    if context is None:
        return list(parts)
    made = []
    for part in parts:
        if part.component == "other":
            source = f"{part.source}, less the context"
            made.append(replace(part, bytes=max(0, part.bytes - context.bytes), source=source))
        else:
            made.append(part)
    at = next((i for i, p in enumerate(made) if p.component == "total"), len(made))
    return [*made[:at], context, *made[at:]]


def remainder(parts: Sequence[MemoryPart]) -> int | None:
    """Return what the total holds beyond all parts (negative when they exceed it)."""
    total = next((p.bytes for p in parts if p.component == "total"), None)
    named = [p.bytes for p in parts if p.component != "total"]
    return total - sum(named) if total is not None and named else None


def checked(parts: Sequence[MemoryPart]) -> list[MemoryPart]:
    """Return the parts, with a word at the total when they do not add up to it."""
    left = remainder(parts)
    if left is None or 0 <= left <= MUCH:
        return list(parts)
    word = "in no part" if left > 0 else "more in its parts: they overlap, or are mapped and unused"
    note = f"; {abs(left) / GIB:.1f} GiB {word}"
    return [replace(p, source=p.source + note) if p.component == "total" else p for p in parts]
