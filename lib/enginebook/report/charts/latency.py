"""Times that a user feels: to the first token, and between tokens."""

from __future__ import annotations

from enginebook.report.charts.base import Drawing
from enginebook.report.charts.curves import Curve, draw
from enginebook.report.data import StudyData


def ttft(data: StudyData, metric: str = "ttft_p50_ms") -> Drawing:
    """Return the time to the first token by prompt length, with its physical floor if known."""
    return draw(data, Curve(metric, "input_tokens"))


def tpot(data: StudyData, metric: str = "tpot_p50_ms") -> Drawing:
    """Return the time per output token by number of streams."""
    return draw(data, Curve(metric, "concurrency"))


def itl(data: StudyData, metric: str = "itl_p99_ms") -> Drawing:
    """Return the time between tokens (the slow tail) by number of streams."""
    return draw(data, Curve(metric, "concurrency"))
