"""Metrics: pure functions from wire records and samples to figures."""

from enginebook.metrics.summary import cell_metrics, summarise

__all__ = ["cell_metrics", "summarise"]
