"""One load cell: what is sent, and its measurement into a folder that appears when it is whole."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enginebook.cells import Cell
from enginebook.engines.registry import adapter
from enginebook.errors import EngineError
from enginebook.lifecycle.models import prepare_model
from enginebook.lifecycle.server import Server
from enginebook.load import Records, Sampler, Slo, Target, Workload, read_records, run_load
from enginebook.load.saturation import Probe, find_capacity
from enginebook.load.target import ConstraintField
from enginebook.metrics.gate import gate
from enginebook.pipeline.book import Book
from enginebook.pipeline.moment import Moment
from enginebook.pipeline.progress import Progress
from enginebook.store import write_json

SCHEMA = 2
WORKLOAD_FIELD = {
    "input_lengths": "input_tokens",
    "output_lengths": "output_tokens",
    "prefix_tokens": "shared_prefix_tokens",
    "prefix_share": "shared_prefix_share",
    "prefix_groups": "shared_prefix_groups",
}
"""Fields of a cell that a workload names otherwise."""

_CONSTRAINT_FIELD: Mapping[str, ConstraintField] = {"llamacpp": "json_schema"}
"""llama.cpp ignores ``response_format`` in completions without a word."""

SAME_FIELD = (
    "rate", "arrival", "max_concurrency", "turns", "think_time_s", "prompts", "answer_format",
    "schema_name", "trace_speed", "length_divisor", "max_input_tokens", "max_output_tokens",
)  # fmt: skip


def measure_cell(book: Book, cell: Cell, server: Server, progress: Progress) -> None:
    """Run one cell into a temporary folder, and move it to its place when it is whole.

    Raises
    ------
    EngineError
        When not one request was completed.
    """
    final = book.cell_folder(cell, book.engine)
    work = final.with_name(f".{final.name}.{time.time_ns()}")
    work.mkdir(parents=True)
    try:
        facts = _search(book, cell, server, progress, work) if cell.search else None
        facts = facts or _measure(book, cell, server, progress, work)
        write_json(work / "cell.json", cell_facts(book, cell) | facts)
        shutil.rmtree(final, ignore_errors=True)
        work.rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _measure(
    book: Book, cell: Cell, server: Server, progress: Progress, work: Path
) -> dict[str, Any]:
    label = cell.label
    target, load = target_of(book, server, cell), workload_of(cell)
    started = Moment()
    with Sampler(work, server_pids=server.processes, metrics_url=metrics_url(book, server)) as s:
        records = run_load(
            target,
            load,
            directory=work,
            on_progress=lambda p: progress.update(label=f"{label}, {p.done}/{p.total} requests"),
        )
    return _judged(cell, load, records, s.summary()) | _measured(server, started)


def _search(
    book: Book, cell: Cell, server: Server, progress: Progress, work: Path
) -> dict[str, Any]:
    """Find the highest rate that meets the first SLO; the records kept are those of that rate."""
    target, load, slo = target_of(book, server, cell), workload_of(cell), slos_of(cell)[0]
    started = Moment()

    def tell(probe: Probe) -> None:
        progress.update(label=f"{cell.label}, probe {probe.number + 1}: {probe.rate:.3g}/s")

    with Sampler(work, server_pids=server.processes, metrics_url=metrics_url(book, server)) as s:
        found = find_capacity(
            target,
            load,
            slo,
            name=cell.slo[0].name,
            directory=work,
            max_seconds=cell.max_seconds,
            on_probe=tell,
        )
    for file in (work / _telling(found)).iterdir():
        file.rename(work / file.name)
    judged = _judged(cell, load, read_records(work), s.summary())
    return judged | _measured(server, started) | {"search": found}


def _judged(
    cell: Cell, load: Workload, records: Records, samples: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the equal-work gate says of a cell's records."""
    verdict = gate(records, load, samples)
    if not verdict.completed:
        raise EngineError(f"no request of {cell.label} was completed: {verdict.first_error}")
    return {
        "gate_ok": verdict.ok,
        "flags": list(verdict.flags),
        "checks": verdict.checks,
        "others_cpu_share": samples.get("others_cpu_share"),
        "workload": load.to_dict(),
    }


def _telling(found: Mapping[str, Any]) -> str:
    """Return the folder of the highest rate that passed; where none did, the lowest tells why."""
    passed = [p for p in found["probes"] if p["ok"]]
    probe = max(passed, key=_rate) if passed else min(found["probes"], key=_rate)
    return str(probe["directory"])


def _rate(probe: Mapping[str, Any]) -> float:
    return float(probe["rate"])


def _measured(server: Server, started: Moment) -> dict[str, Any]:
    return {
        "status": "ok",
        "error": None,
        "started_unix": started.unix_s,
        "seconds": started.seconds(),
        "engine_version": server.version,
        "options": dict(server.options),
    }


def target_of(book: Book, server: Server, cell: Cell) -> Target:
    """Return a running server as the load generator's target.

    Extra fields force the length of answers, unless a grammar decides where an answer ends.
    """
    fields = adapter(book.recipe.engine).sampling_fields(cell.output_tokens)
    if workload_of(cell).free_length:
        fields = {}
    elif cell.output_lengths or cell.trace:
        # the length differs by request; max_tokens says it
        fields = {k: v for k, v in fields.items() if v != cell.output_tokens}
    model = prepare_model(book.model, book.recipe.model_format)
    return Target(
        base_url=server.base_url,
        model=server.model_id,
        tokenizer=model.tokenizer_dir,
        extra_body=fields,
        constraint_field=_CONSTRAINT_FIELD.get(book.recipe.engine, "response_format"),
    )


def workload_of(cell: Cell) -> Workload:
    """Return a cell as the load generator's workload."""
    given = cell.identity()
    fields: dict[str, Any] = {
        "concurrency": cell.concurrency or None,
        "requests": cell.requests,
        "warmup_requests": cell.warmup_requests,
        "input_tokens": cell.input_tokens,
        "output_tokens": cell.output_tokens,
        "max_seconds": cell.max_seconds,
        "seed": cell.seed,
        "cache": cell.cache,
    }
    fields |= {name: given[name] for name in SAME_FIELD if name in given}
    fields |= {theirs: given[ours] for ours, theirs in WORKLOAD_FIELD.items() if ours in given}
    if cell.trace is not None:
        fields["trace"] = cell.trace if cell.trace.startswith("builtin:") else Path(cell.trace)
    if cell.precision is not None:
        fields["precision"] = cell.precision.model_dump()
    return Workload(**fields)


def slos_of(cell: Cell) -> list[Slo]:
    """Return the cell's objectives as the load generator's."""
    return [Slo(s.ttft_ms, s.tpot_ms, s.e2e_ms, share=s.share) for s in cell.slo]


def metrics_url(book: Book, server: Server) -> str | None:
    """Return where the engine exports its figures, or None when it exports none."""
    engine = adapter(book.recipe.engine)
    return server.base_url.rstrip("/") + engine.metrics_path if engine.metrics else None


def cell_facts(book: Book, cell: Cell) -> dict[str, Any]:
    """Return what identifies a cell of this notebook's engine, measured or failed."""
    return {
        "schema": SCHEMA,
        "engine": book.engine.name,
        "label": cell.label,
        "cell": cell.model_dump(),
        "recipe": book.recipe.name,
        "host_id": book.plan.host_id,
    }


def store_failure(book: Book, cell: Cell, reason: str) -> None:
    """Record that a cell failed, and why: that is a result, too."""
    folder = book.cell_folder(cell, book.engine)
    failed = {"status": "failed", "error": reason, "gate_ok": False, "flags": ["failed"]}
    write_json(folder / "cell.json", cell_facts(book, cell) | failed)
