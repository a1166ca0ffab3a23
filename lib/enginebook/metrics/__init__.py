"""Metrics: pure functions from wire records and samples to figures."""

from enginebook.metrics.cell import cell_metrics
from enginebook.metrics.summary import summarise

__all__ = ["cell_metrics", "summarise"]
