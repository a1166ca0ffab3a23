"""What could make the answer wrong, from the data: few repeats, flags, noise, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

from enginebook.report.data import StudyData
from enginebook.report.numbers import share
from enginebook.report.outcome import outcomes
from enginebook.report.text import Language, count, known, listing, say
from enginebook.report.wording import reason
from enginebook.stats import PRIMARY

ENOUGH_BLOCKS = 5
BUSY_SHARE = 0.08  # CPU that other processes took: above it a cell is flagged
MOST_FLAGS = 3


def doubts(data: StudyData, language: Language | None = None) -> list[str]:
    """Return what a careful reader should hold against the findings, weightiest first."""
    tongue = language or data.language
    checks = (
        _wrong, _different_work, _failed, _flagged, _blocks, _open, _busy, _instrument, _no_limits,
        _scope,
    )  # fmt: skip
    return [text for check in checks if (text := check(data, tongue))]


def _wrong(data: StudyData, language: Language) -> str:
    lost = [str(row["engine"]) for row in data.accuracy if row["wrong"]]
    return say("doubt.wrong", language, engines=listing(lost, language)) if lost else ""


def _different_work(data: StudyData, language: Language) -> str:
    """Say which answers differ without a reason: other weights and rounding are reasons."""
    unequal = [
        row for row in data.greedy
        if not row.get("equal") and row.get("same_weights", True) and not row.get("explained")
    ]  # fmt: skip
    if not unequal:
        return ""
    named = {str(row.get("engine")) for row in unequal}
    asked = sum(str(row.get("engine")) in named for row in data.greedy)
    engines = listing(sorted(named), language)
    return say("doubt.greedy", language, n=len(unequal), of=asked, engines=engines)


def _failed(data: StudyData, language: Language) -> str:
    lost = len(data.failures) + len(data.missing)
    return say("doubt.failed", language, n=count(lost, "cell", language)) if lost else ""


def flags(data: StudyData) -> tuple[int, int, Counter[str]]:
    """Return cells that failed the equal-work gate, all cells, and the flags by frequency."""
    by_cell = data.cells.group_by("engine", "cell", "block", maintain_order=True).agg(
        ok=pl.col("gate_ok").all(), flags=pl.col("flags").explode().drop_nulls().unique()
    )
    counted = Counter(flag for found in by_cell["flags"].to_list() for flag in found)
    return by_cell.filter(~pl.col("ok")).height, by_cell.height, counted


def _flagged(data: StudyData, language: Language) -> str:
    failed, cells, counted = flags(data)
    if not failed and not counted:
        return ""
    names = [
        f"{known(f'flag.{flag}', language, flag.replace('_', ' '))} ({n})"
        for flag, n in counted.most_common(MOST_FLAGS)
    ]
    fields = {"failed": failed, "cells": count(cells, "cell", language)}
    if not names:
        return say("doubt.gate", language, **fields)
    return say("doubt.flags", language, flags=listing(names, language), **fields)


def _blocks(data: StudyData, language: Language) -> str:
    if data.blocks == 1:
        return say("doubt.one_block", language)
    if data.blocks < ENOUGH_BLOCKS:
        return say("doubt.few_blocks", language, blocks=count(data.blocks, "block", language))
    return ""


def _open(data: StudyData, language: Language) -> str:
    found = outcomes(data, PRIMARY)
    unsure = [o for o in found if o.kind in {"undecided", "no verdict"}]
    if not unsure:
        return ""
    n = count(len(found), "comparison", language)
    return say("doubt.open", language, open=len(unsure), n=n)


def _busy(data: StudyData, language: Language) -> str:
    values = data.cells.filter(pl.col("metric") == "others_cpu_share")["value"].drop_nulls()
    busy = [v for v in values.to_list() if v > BUSY_SHARE]
    if not busy:
        return ""
    cells = count(len(busy), "cell", language)
    return say("doubt.busy", language, cells=cells, worst=share(max(busy)), limit=share(BUSY_SHARE))


def _instrument(data: StudyData, language: Language) -> str:
    calibration = data.calibration
    if calibration is None:
        return say("doubt.no_calibration", language)
    verdict = _verdict(calibration, language)
    return say("doubt.calibration", language, verdict=verdict) if verdict else ""


def _verdict(calibration: Mapping[str, Any], language: Language) -> str:
    """Return what the calibration complains of, or an empty text when it is content."""
    if calibration.get("ok"):
        return ""
    return reason(str(calibration.get("verdict") or "").rstrip("."), language)


def _no_limits(data: StudyData, language: Language) -> str:
    if not data.no_limits:
        return ""
    return say("doubt.no_limits", language, reason=data.no_limits.rstrip("."))


def _scope(_data: StudyData, language: Language) -> str:
    return say("doubt.scope", language)
