"""Charts of a study. Each takes a `StudyData` and returns a chart, or why there is none."""

from enginebook.report.charts.base import Drawing
from enginebook.report.charts.claims import claims_overview
from enginebook.report.charts.ecdf import ecdf
from enginebook.report.charts.latency import itl, tpot, ttft
from enginebook.report.charts.launch import time_to_serve
from enginebook.report.charts.memory import memory
from enginebook.report.charts.pareto import pareto
from enginebook.report.charts.throughput import throughput
from enginebook.report.charts.timeline import timeline

__all__ = [
    "Drawing",
    "claims_overview",
    "ecdf",
    "itl",
    "memory",
    "pareto",
    "throughput",
    "time_to_serve",
    "timeline",
    "tpot",
    "ttft",
]
