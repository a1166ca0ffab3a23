"""Tables of a study. Each takes a `StudyData` and returns a table, or why there is none."""

from enginebook.report.tables.claims import claims
from enginebook.report.tables.deployment import installs, launches, memory
from enginebook.report.tables.parts import (
    arms,
    conversations,
    energy,
    online,
    prefix_reuse,
    probes,
    simulations,
    starts,
    structured,
    swaps,
    trace_replay,
)
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
    "arms",
    "calibration",
    "ceilings",
    "claims",
    "comparisons",
    "conversations",
    "downloads",
    "energy",
    "failures",
    "flagged",
    "host",
    "installs",
    "launches",
    "manifest",
    "memory",
    "online",
    "parameters",
    "prefix_reuse",
    "probes",
    "repeat",
    "same_text",
    "simulations",
    "starts",
    "structured",
    "summary",
    "swaps",
    "table",
    "trace_replay",
]
