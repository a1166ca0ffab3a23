# ruff: noqa: E501 - the list reads better with one section a line
"""A report notebook over the sample study, as notebooks/60_report.ipynb calls the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from enginebook import report
from enginebook.report.text import catalogue

# (text cell of the catalogue or None, code cells)
SECTIONS: tuple[tuple[str | None, tuple[str, ...]], ...] = (
    (None, ("report.answer(data)", "report.charts.throughput(data)")),
    ("doubts", ("report.caveats(data)",)),
    ("summary", ("report.tables.summary(data)",)),
    ("guide", ("report.decision_guide(data)",)),
    ("tpot", ("report.charts.tpot(data)", "report.charts.pareto(data)", "report.charts.timeline(data)")),
    ("ttft", ("report.charts.ttft(data)", "report.charts.itl(data)", "report.charts.ecdf(data)")),
    ("deployment", ("report.tables.installs(data)", "report.charts.time_to_serve(data)", "report.tables.launches(data)", "report.charts.starts(data)", "report.tables.starts(data)", "report.tables.swaps(data)", "report.charts.memory(data)", "report.charts.memory_states(data)", "report.tables.memory(data)")),
    ("parts", ("report.charts.prefix_reuse(data)", "report.tables.prefix_reuse(data)", "report.charts.conversations(data)", "report.tables.conversations(data)", "report.charts.structured(data)", "report.tables.structured(data)", "report.charts.online(data)", "report.tables.online(data)", "report.tables.trace_replay(data)")),
    ("comparisons", ("report.tables.comparisons(data)", "report.tables.crossovers(data)")),
    ("claims", ("report.charts.claims_overview(data)", "report.tables.claims(data)")),
    ("host", ("report.tables.host(data)", "report.tables.ceilings(data)", "report.tables.efficiency(data)", "report.tables.calibration(data)", "report.tables.arms(data)", "report.tables.arm_comparison(data)", "report.tables.probes(data)", "report.tables.simulations(data)")),
    ("trouble", ("report.tables.failures(data)", "report.tables.flagged(data)", "report.tables.same_text(data)")),
    ("repeat", ("report.tables.repeat(data)", "report.tables.effort(data)", "report.tables.energy(data)", "report.tables.parameters(data)", "report.tables.manifest(data)", "report.tables.downloads(data)", "report.tables.citation(data)")),
)  # fmt: skip


def executed(folder: Path, *extra: Any) -> nbformat.NotebookNode:
    """Return the notebook with outputs, made in this process (a kernel would take seconds)."""
    report.enable()
    names = {"report": report, "data": report.StudyData.read(folder)}
    cells = [new_markdown_cell("# The study's report\n\nMade from the sample study.")]
    for text, codes in SECTIONS:
        if text is not None:
            cells.append(new_markdown_cell(catalogue("en")[f"section.{text}"]))
        cells += [_run(code, names) for code in codes]
    notebook = new_notebook(cells=[*cells, *extra])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    return notebook


def _run(code: str, names: dict[str, Any]) -> nbformat.NotebookNode:
    bundle = eval(code, names)._repr_mimebundle_(None, None)
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    return new_code_cell(
        code, outputs=[new_output("execute_result", data=dict(data), execution_count=1)]
    )
