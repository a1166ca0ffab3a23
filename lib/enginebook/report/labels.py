"""Labels of engines: a simulated engine carries the word wherever it is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from enginebook.report.text import Language, say

ENGINE_COLUMNS = ("engine", "engine_a", "engine_b")
ENGINE_KEYS = ("engine", "reference")
SIMULATED = "simulated"


def labels_of(
    arms: pl.DataFrame, manifest: Mapping[str, Any], language: Language
) -> dict[str, str]:
    """Return label with the word by label without it, for each simulated engine.

    Known from the frame `arms` and, before the comparison has written it, from the recipes that
    the manifest keeps.
    """
    mark = say("engine.simulated", language, engine="")
    names = {str(e) for e in arms.filter(pl.col(SIMULATED))["engine"].to_list()}
    for name, facts in (manifest.get("engines") or {}).items():
        if SIMULATED in ((facts.get("recipe") or {}).get("labels") or ()):
            names.add(str(name))
    plain = {name.removesuffix(mark) for name in names}
    return {name: say("engine.simulated", language, engine=name) for name in sorted(plain)}


def labelled(fields: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the frames and lists among a study's fields with their engines labelled anew.

    Engines that carry the word already keep it, so this may be done twice.
    """
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, pl.DataFrame):
            columns = [c for c in ENGINE_COLUMNS if c in value.columns]
            changed[name] = value.with_columns(pl.col(c).replace(labels) for c in columns)
        elif name in {"failures", "greedy", "accuracy"}:
            changed[name] = tuple(_row(row, labels) for row in value)
    return changed


def _row(row: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    named = {k: labels.get(str(row[k]), row[k]) for k in ENGINE_KEYS if k in row}
    return {**row, **named}
