"""Charts of a study. Each takes a `StudyData` and returns a chart, or why there is none."""

from enginebook.report.charts.base import Drawing
from enginebook.report.charts.claims import claims_overview
from enginebook.report.charts.ecdf import ecdf
from enginebook.report.charts.hypotheses import hypotheses
from enginebook.report.charts.latency import itl, tpot, ttft
from enginebook.report.charts.launch import time_to_serve
from enginebook.report.charts.memory import memory
from enginebook.report.charts.pareto import pareto
from enginebook.report.charts.parts import (
    conversations,
    memory_states,
    online,
    prefix_reuse,
    starts,
    structured,
)
from enginebook.report.charts.throughput import throughput
from enginebook.report.charts.timeline import timeline

__all__ = [
    "Drawing",
    "claims_overview",
    "conversations",
    "ecdf",
    "hypotheses",
    "itl",
    "memory",
    "memory_states",
    "online",
    "pareto",
    "prefix_reuse",
    "starts",
    "structured",
    "throughput",
    "time_to_serve",
    "timeline",
    "tpot",
    "ttft",
]
