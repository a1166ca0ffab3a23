"""Throughput by concurrency, with intervals and the roofline band."""

from __future__ import annotations

from enginebook.report.charts.base import Drawing
from enginebook.report.charts.curves import Curve, draw
from enginebook.report.data import StudyData


def throughput(data: StudyData, metric: str = "output_tokens_per_s") -> Drawing:
    """Return throughput by number of streams, one line an engine.

    Parameters
    ----------
    data
        The study.
    metric
        A rate (``*_per_s``) of frame `points`.
    """
    return draw(data, Curve(metric, "concurrency"))
