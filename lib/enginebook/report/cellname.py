"""A load in words that say what tells it from its neighbours, instead of a series' name."""

from __future__ import annotations

from typing import Any

import polars as pl

from enginebook.report.data import StudyData
from enginebook.report.numbers import NONE
from enginebook.report.outcome import LOAD, Load
from enginebook.report.text import Language, count, known, say
from enginebook.report.wording import Place, capital, place

Row = dict[str, Any]
TEXT = "text"


def series_name(data: StudyData, scenario: str) -> str:
    """Return a series in words: its title and the axes that its name stands for, no streams."""
    rows = data.loads.filter(pl.col("scenario") == scenario)
    if rows.is_empty():
        return scenario
    load = rows.row(0, named=True)
    parts = axis_names(load, data.language)
    if load["search"] or load["rate"] is not None or load["kind"] == "trace":
        parts.append(_how_much(load, data.language))
    return ": ".join(
        [load["title"], say("list.comma", data.language).join(parts)] if parts else [load["title"]]
    )


def load_place(data: StudyData, load: Load, what: Place = "full") -> str:
    """Return where on the load axes we are; a load without a number of streams is named."""
    if load.concurrency > 0:
        return place(load, data.language, what)
    return say("place.named", data.language, name=load_name(data, load))


def load_name(data: StudyData, load: Load) -> str:
    """Return a load in words: title, axes and how much load; without the frame, its series."""
    row = row_of(data, load)
    if row is None:
        return f"{load.scenario}: {axes(data, load)}"
    return f"{row['title']}: {axes(data, load)}"


def short_name(data: StudyData, load: Load) -> str:
    """Return what tells a load from the others of its family, without the family's title."""
    return capital(axes(data, load))


def axes(data: StudyData, load: Load) -> str:
    """Return the axes of a load and how much of it there is, for use within a sentence."""
    row = row_of(data, load)
    words = _amounts(load, data.language) if row is None else _words(data, row)
    return say("list.comma", data.language).join(words)


def _words(data: StudyData, row: Row) -> list[str]:
    words = [*axis_names(row, data.language), _how_much(row, data.language)]
    same = data.loads.filter(pl.col("scenario") == row["scenario"])
    if same.select("input_tokens", "output_tokens").n_unique() > 1:
        words.append(_lengths(row["input_tokens"], row["output_tokens"], data.language))
    return words


def amounts(load: Load, language: Language) -> str:
    """Return a load's streams and lengths in few words, for a column of a table."""
    fields = {"input": f"{load.input_tokens:,}", "output": f"{load.output_tokens:,}"}
    words = [say("place.brief", language, **fields)]
    if load.concurrency > 0:  # an open load has no number of streams
        words.insert(0, count(load.concurrency, "stream", language))
    return say("list.comma", language).join(words)


def _amounts(load: Load, language: Language) -> list[str]:
    lengths = _lengths(load.input_tokens, load.output_tokens, language)
    if load.concurrency == 0:
        return [lengths]
    return [count(load.concurrency, "stream", language), lengths]


def _lengths(inputs: int, outputs: int, language: Language) -> str:
    return say("place.lengths", language, input=f"{inputs:,}", output=f"{outputs:,}")


def row_of(data: StudyData, load: Load) -> Row | None:
    """Return a load's row of the frame `loads`, or None where a run has not kept it."""
    found = data.loads.filter([pl.col(name) == getattr(load, name) for name in LOAD])
    return None if found.is_empty() else found.row(0, named=True)


def streams(concurrency: int) -> str:
    """Return a number of streams; a dash for load that is not bound by streams."""
    return f"{concurrency:,}" if concurrency > 0 else NONE


def _how_much(load: Row, language: Language) -> str:
    if load["search"]:
        return say("cellname.search", language)
    if load["rate"] is not None:
        return say("cellname.rate", language, rate=f"{load['rate']:g}")
    if load["kind"] == "trace":
        return say("cellname.speed", language, speed=f"{load['trace_speed']:g}")
    kind = "session" if load["kind"] == "sessions" else "stream"
    return count(load["concurrency"], kind, language)


def axis_names(load: Row, language: Language) -> list[str]:
    """Return the axes beyond streams and lengths that a load uses, in words."""
    found = []
    if load["kind"] == "sessions":
        found.append(count(load["turns"], "turn", language))
    if load["cache"] == "warm" and load["kind"] == "closed_loop":
        found.append(_prefix(load, language))
    if load["think_time_s"]:
        found.append(say("cellname.think", language, seconds=f"{load['think_time_s']:g}"))
    if load["answer_format"] != TEXT or TEXT in load["scenario"].split(".")[1:]:
        name = known(f"format.{load['answer_format']}", language, load["answer_format"])
        found.append(" ".join(filter(None, [name, load["schema_name"]])))
    if load["kind"] == "trace":
        found.append(str(load["trace"]).rsplit("/", 1)[-1].removeprefix("builtin:"))
    return found


def _prefix(load: Row, language: Language) -> str:
    if not load["prefix_tokens"]:
        return say("cellname.no_prefix", language)
    part = f"{100 * load['prefix_share']:g}\u202f%"
    return say("cellname.prefix", language, tokens=load["prefix_tokens"], share=part)
