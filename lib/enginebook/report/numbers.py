"""Numbers as people read them: few digits, thousands separated, units beside them."""

from __future__ import annotations

import math

MINUS = "\u2212"
NONE = "\u2013"
KIB = 1024.0
MS_PER_S = 1000.0


def figure(value: float | None) -> str:
    """Return a number with about three significant digits; a dash when it is missing.

    Integers above 1000 keep all their digits before the point, so that 1,234 stays 1,234.
    """
    if value is None or not math.isfinite(value):
        return NONE
    size = abs(value)
    if size == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(size)))
    return f"{value:,.{min(digits, 6)}f}".replace("-", MINUS)


def ratio(value: float | None) -> str:
    """Return a ratio with two decimals (three digits below ten, one decimal above)."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004


def share(value: float | None) -> str:
    """Return a fraction as a percentage."""
    return NONE if value is None else f"{figure(100 * value)}\u202f%"


def seconds(value_s: float | None) -> str:
    """Return seconds without a unit: hundredths below ten, tenths below a hundred."""
    if value_s is None or not math.isfinite(value_s):
        return NONE
    digits = 2 if abs(value_s) < 10 else 1 if abs(value_s) < 100 else 0  # noqa: PLR2004
    return f"{value_s:,.{digits}f}".replace("-", MINUS)


def duration_ms(value_ms: float | None) -> str:
    """Return a time given in ms, in ms below one second and in s above."""
    if value_ms is None:
        return NONE
    if value_ms < MS_PER_S:
        return f"{figure(value_ms)} ms"
    return f"{figure(value_ms / MS_PER_S)} s"


def data_size(value_bytes: float | None) -> str:
    """Return bytes in binary units (KiB, MiB, GiB)."""
    if value_bytes is None:
        return NONE
    size, unit = float(value_bytes), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < KIB:
            break
        size, unit = size / KIB, bigger
    return f"{figure(size)} {unit}"


def in_unit(value: float | None, unit: str) -> str:
    """Return a value with its unit; ms grow into s where that reads better."""
    if value is None:
        return NONE
    if unit == "ms":
        return duration_ms(value)
    return f"{figure(value)} {unit}".rstrip()
