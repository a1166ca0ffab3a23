"""A load in words that say what tells it from its neighbours, instead of a series' name."""

from __future__ import annotations

from typing import Any

from enginebook.report.text import Language, say

Row = dict[str, Any]


def cell_name(load: Row, language: Language) -> str:
    """Return a row of the frame `loads` in words: title, how much load, and the further axes."""
    parts = [_how_much(load, language), *_axes(load, language)]
    return f"{load['title']}: {', '.join(p for p in parts if p)}"


def _how_much(load: Row, language: Language) -> str:
    if load["search"]:
        return say("cellname.search", language)
    if load["rate"] is not None:
        return say("cellname.rate", language, rate=f"{load['rate']:g}")
    if load["kind"] == "trace":
        return say("cellname.speed", language, speed=f"{load['trace_speed']:g}")
    kind = "sessions" if load["kind"] == "sessions" else "streams"
    return say(f"cellname.{kind}", language, n=load["concurrency"])


def _axes(load: Row, language: Language) -> list[str]:
    found = []
    if load["cache"] == "warm":
        found.append(_prefix(load, language))
    if load["think_time_s"]:
        found.append(say("cellname.think", language, seconds=f"{load['think_time_s']:g}"))
    if load["answer_format"] != "text":
        found.append(" ".join(filter(None, [load["answer_format"], load["schema_name"]])))
    if load["kind"] == "trace":
        found.append(str(load["trace"]).rsplit("/", 1)[-1].removeprefix("builtin:"))
    return found


def _prefix(load: Row, language: Language) -> str:
    if not load["prefix_tokens"]:
        return say("cellname.no_prefix", language)
    part = f"{100 * load['prefix_share']:g}\u202f%"
    return say("cellname.prefix", language, tokens=load["prefix_tokens"], share=part)
