"""Tables of a study. Each takes a `StudyData` and returns a table, or why there is none."""

from enginebook.report.tables.claims import claims
from enginebook.report.tables.deployment import installs, launches, memory
from enginebook.report.tables.provenance import (
    calibration,
    ceilings,
    downloads,
    host,
    manifest,
    parameters,
    repeat,
)
from enginebook.report.tables.results import comparisons, summary
from enginebook.report.tables.table import Column, Value, table
from enginebook.report.tables.trouble import failures, flagged, same_text

__all__ = [
    "Column",
    "Value",
    "calibration",
    "ceilings",
    "claims",
    "comparisons",
    "downloads",
    "failures",
    "flagged",
    "host",
    "installs",
    "launches",
    "manifest",
    "memory",
    "parameters",
    "repeat",
    "same_text",
    "summary",
    "table",
]
