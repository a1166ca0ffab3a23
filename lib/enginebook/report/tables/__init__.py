"""Tables of a study. Each takes a `StudyData` and returns a table, or why there is none."""

from enginebook.report.tables.advice import decision_tree, features, ranking
from enginebook.report.tables.answers import accuracy, same_text
from enginebook.report.tables.arms import arm_comparison, arms
from enginebook.report.tables.citation import citation
from enginebook.report.tables.claims import claims
from enginebook.report.tables.crossing import crossovers
from enginebook.report.tables.deployment import installs, launches, memory
from enginebook.report.tables.economy import effort, energy
from enginebook.report.tables.efficiency import efficiency
from enginebook.report.tables.parts import (
    conversations,
    online,
    prefix_reuse,
    structured,
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
from enginebook.report.tables.service import probes, simulations, starts, swaps
from enginebook.report.tables.table import Column, Value, table
from enginebook.report.tables.trouble import failures, flagged

__all__ = [
    "Column",
    "Value",
    "accuracy",
    "arm_comparison",
    "arms",
    "calibration",
    "ceilings",
    "citation",
    "claims",
    "comparisons",
    "conversations",
    "crossovers",
    "decision_tree",
    "downloads",
    "efficiency",
    "effort",
    "energy",
    "failures",
    "features",
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
    "ranking",
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
