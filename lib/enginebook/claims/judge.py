"""The judge: every claim against physics, the public record, and a run where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from enginebook.claims.conditions import Conditions, conditions_of
from enginebook.claims.limits import Ruling, rule_physics
from enginebook.claims.model import Claim, Register
from enginebook.claims.observed import (
    Frames,
    memory_figure,
    probed,
    rows_of,
    seen,
    simulated,
    simulated_labels,
    swapped,
)
from enginebook.claims.rules import (
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_TESTED,
    RULES,
    SUPPORTED,
    Outcome,
)
from enginebook.claims.selection import Selection, codes_by_series, select

CLAIM_SCHEMA: Final[dict[str, Any]] = {
    "claim_id": pl.String, "topic": pl.String, "statement": pl.String, "claimed": pl.String,
    "rule": pl.String, "scenario": pl.String, "physics_verdict": pl.String, "verdict": pl.String,
    "measured": pl.String, "low": pl.Float64, "high": pl.Float64, "n": pl.Int64,
    "reason": pl.String, "physics_reason": pl.String, "efficiency": pl.Float64,
    "evidence": pl.String, "sources": pl.List(pl.String), "hardware": pl.String,
    "versions": pl.String, "study_digest": pl.String, "basis": pl.String,
}  # fmt: skip
_RECORDED: Final = ("META", "EXIT0")
# Statements on GPU engines that a CPU run cannot carry, however well it measures.
_MACHINE_BOUND: Final = ("RATIO", "ORDER", "CROSS", "RANGE", "REGRET")


@dataclass(frozen=True)
class Run:
    """What is known of a run; all None: physics and public record only."""

    cells: pl.DataFrame | None
    refused: Sequence[str]
    frames: Frames
    conditions: Conditions
    codes: Mapping[str, str]


def judge(
    register: Register,
    *,
    cells: pl.DataFrame | None = None,
    points: pl.DataFrame | None = None,
    comparisons: pl.DataFrame | None = None,
    host: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
    installs: pl.DataFrame | None = None,
    memory: pl.DataFrame | None = None,
    simulated_engines: Sequence[str] = (),
    frames: Frames | None = None,
) -> pl.DataFrame:
    """Return one row a claim.

    Without a run the verdicts rest on physics and on the public record; what only a run can tell
    is `not tested here`.

    Parameters
    ----------
    points
        Stand in for `cells` where a run kept nothing else: as one block each, so that they carry
        no interval.
    comparisons
        Engines that it refuses to rank because they are simulated are not judged.
    host, manifest
        Say whether a figure is comparable with a claim's hardware, model and precision.
    frames
        Whatever else the run has: `loads` says which scenario a series stands for, `arms` which
        engines are simulated, `probes`, `starts`, `swaps` and `simulations` are evidence of their
        own. Column `basis` says which evidence a verdict rests on.
    """
    more = {**(frames or {})}
    more |= {k: v for k, v in (("installs", installs), ("memory", memory)) if v is not None}
    run = Run(
        cells=cells if cells is not None else _as_cells(points),
        refused=[*simulated_engines, *_simulated(comparisons), *simulated_labels(more)],
        frames=more,
        codes=codes_by_series(more.get("loads")),
        conditions=conditions_of(host, manifest, installs),
    )
    return pl.DataFrame([_row(c, run) for c in register.claims], schema=CLAIM_SCHEMA)


def _as_cells(points: pl.DataFrame | None) -> pl.DataFrame | None:
    if points is None:
        return None
    return points.with_columns(block=pl.lit(0, pl.Int64), gate_ok=pl.lit(value=True))


def _simulated(comparisons: pl.DataFrame | None) -> list[str]:
    if comparisons is None:
        return []
    said = comparisons.filter(pl.col("reason").str.contains(" is simulated"))["reason"]
    return sorted({reason.split(" is simulated")[0] for reason in said.to_list()})


def _row(claim: Claim, run: Run) -> dict[str, Any]:
    ruling = rule_physics(claim)
    outcome = _decide(claim, ruling, run)
    evidence = claim.evidence
    return {
        "claim_id": claim.id,
        "topic": claim.topic,
        "statement": claim.statement,
        "claimed": claim.claimed or claim.statement,
        "rule": claim.test.rule,
        "scenario": claim.test.scenario,
        "physics_verdict": ruling.verdict,
        "verdict": outcome.verdict,
        "measured": outcome.measured,
        "low": outcome.low,
        "high": outcome.high,
        "n": outcome.n,
        "reason": outcome.reason,
        "physics_reason": ruling.why or None,
        "efficiency": ruling.efficiency,
        "evidence": evidence.status if evidence else None,
        "sources": list(evidence.sources) if evidence else [],
        "hardware": run.conditions.hardware,
        "versions": ", ".join(f"{k} {v}" for k, v in run.conditions.versions.items()) or None,
        "study_digest": run.conditions.digest,
        "basis": outcome.basis or "none",
    }


def _decide(claim: Claim, ruling: Ruling, run: Run) -> Outcome:
    outcome = _verdict(claim, ruling, run)
    text, source = seen(claim, run.frames)
    if not text or outcome.basis == source:
        return outcome
    basis = f"{outcome.basis}, {source}" if outcome.basis else f"none; shown: {source}"
    return replace(outcome, reason=f"{outcome.reason}; {text}", basis=basis)


def _verdict(claim: Claim, ruling: Ruling, run: Run) -> Outcome:
    rule = claim.test.rule
    measured = _measure(claim, run)
    if ruling.verdict == "impossible" or ruling.loads is False:
        return _refuted(ruling, measured)
    if rule == "PHYS":
        return Outcome(SUPPORTED, ruling.why, basis="physics")
    if rule in _RECORDED:
        return probed(claim, run.frames) or _installed(claim, run) or _recorded(claim)
    if measured is None or measured.verdict == NOT_TESTED:
        why = f"{measured.reason}; " if measured else ""
        return Outcome(NOT_TESTED, f"{why}{_what_it_takes(claim)}")
    if measured.basis == "simulated":  # no machine took part in it
        return measured
    return _in_scope(claim, measured, run.conditions)


def _refuted(ruling: Ruling, measured: Outcome | None) -> Outcome:
    """Return the verdict by physics, beside what a run shows."""
    shown = measured or Outcome("", "")
    basis = f"physics, {shown.basis}" if shown.basis else "physics"
    reason = f"physics: {ruling.why}"
    return replace(shown, verdict=CONTRADICTED, reason=reason, basis=basis)


def _measure(claim: Claim, run: Run) -> Outcome | None:
    """Return what the run says, or None where it has nothing to say."""
    rule, test = RULES.get(claim.test.rule), claim.test
    if test.metric == "memory_bytes":
        return memory_figure(claim, run.frames, run.conditions)
    found = simulated(claim, run.frames) or swapped(claim, run.frames, run.conditions)
    if found is not None:
        return found
    if rule is None or run.cells is None or test.metric is None or not test.engines:
        return None
    selection: Selection = select(run.cells, test, run.conditions, run.refused, codes=run.codes)
    outcome = rule(claim, selection)
    # what found no cell to judge rests on none
    return outcome if outcome.verdict == NOT_TESTED else replace(outcome, basis="load cells")


def _in_scope(claim: Claim, found: Outcome, conditions: Conditions) -> Outcome:
    """Return the outcome as far as this machine can carry it."""
    if claim.test.rule == "ABS":
        differences = conditions.differences(claim.setting)
        if not differences:
            return found
        return replace(found, verdict=NOT_COMPARABLE, reason="; ".join(differences))
    where = f"measured with {conditions.label}"
    if claim.test.rule in _MACHINE_BOUND and conditions.has_gpu is False:
        text = f"{where}: a CPU says nothing of GPU engines; by the rule: {found.verdict}"
        return replace(found, verdict=NOT_COMPARABLE, reason=f"{text} ({found.reason})")
    return replace(found, reason=f"{found.reason}; {where}")


def _installed(claim: Claim, run: Run) -> Outcome | None:
    """Return what the install stage saw of an engine that is said to install by pip."""
    installs = rows_of(run.frames, "installs")
    if claim.test.rule != "EXIT0" or not claim.test.engines or installs is None:
        return None
    for row in installs.filter(pl.col("kind") == "venv").iter_rows(named=True):
        if run.conditions.family(row["engine"]) == claim.test.engines[0]:
            size = "" if row["bytes"] is None else f", {row['bytes'] / 1e9:.2f} GB"
            text = f"{row['version']}: {row['packages']} packages{size}"
            reason = f"installed by pip from its lock and imported as {row['engine']}: {text}"
            return Outcome(SUPPORTED, reason, text, n=1, basis="install stage")
    return None


def _recorded(claim: Claim) -> Outcome:
    """Return the verdict of the public record, where a fact rather than a figure is claimed."""
    evidence = claim.evidence
    if evidence is None or evidence.status == "unverifiable":
        return Outcome(NOT_TESTED, _what_it_takes(claim))
    note = evidence.note or "as the sources say"
    reason = f"recorded: {note} [{', '.join(evidence.sources)}]"
    return Outcome(evidence.status, reason, basis="public record")


def _what_it_takes(claim: Claim) -> str:
    """Return which measurement would decide, and what public evidence says meanwhile."""
    test, evidence = claim.test, claim.evidence
    text = f"takes {test.scenario or 'a run'}: {test.measure or test.metric or test.rule}"
    if claim.needs not in {"", "any", "none"}:
        text += f" (needs {claim.needs})"
    if evidence is None:
        return text
    cited = f" [{', '.join(evidence.sources)}]" if evidence.sources else ""
    note = f": {evidence.note}" if evidence.note else ""
    return f"{text}; public evidence {evidence.status}{cited}{note}"
