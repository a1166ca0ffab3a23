"""Outcomes and loads as sentences, the same in titles, findings and tables."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from enginebook.report.numbers import in_unit, ratio
from enginebook.report.outcome import Load, Outcome, Pair, higher_is_better
from enginebook.report.text import Language, catalogue, count, known, say

Place = Literal["concurrency", "input_tokens", "full"]


def metric_name(metric: str, language: Language) -> str:
    """Return a metric in words, without its unit; an unknown one keeps its own name.

    Metrics of one objective carry its name after a dot: ``slo_share.chat``.
    """
    family, _, objective = metric.partition(".")
    words = known(f"metric.{family}", language, family.replace("_", " "))
    if not objective:
        return words
    return say("metric.of_objective", language, metric=words, name=objective)


def unit(metric: str, language: Language) -> str:
    """Return a metric's unit: ms, or a rate such as tokens/s."""
    if metric.endswith("_ms"):
        return "ms"
    if metric.endswith("_tokens_per_s"):
        return say("unit.tokens_per_s", language)
    return say("unit.per_s", language) if metric.endswith("_per_s") else ""


def capital(sentence: str) -> str:
    """Return a sentence with its first letter large (engine names at the start keep theirs)."""
    return sentence[:1].upper() + sentence[1:]


def place(load: Load, language: Language, what: Place = "full") -> str:
    """Return where on the load axes we are: "at 16 streams".

    Loads that are not bound by streams have a name instead: see `cellname.load_place`.
    """
    streams = count(load.concurrency, "stream", language)
    tokens = f"{load.input_tokens:,}"
    if what == "concurrency":
        return say("place.concurrency", language, streams=streams)
    if what == "input_tokens":
        return say("place.input_tokens", language, tokens=tokens)
    out = f"{load.output_tokens:,}"
    return say("place.full", language, streams=streams, input=tokens, output=out)


def interval(pair: Pair, language: Language) -> str:
    """Return the 95 % interval of an advantage in brackets, or what stands for it."""
    if pair.low is None or pair.high is None:
        return say("interval.none", language)
    return say("interval.given", language, low=ratio(pair.low), high=ratio(pair.high))


def sentence(outcome: Outcome, language: Language, what: Place = "full", *, where: str = "") -> str:
    """Return what an outcome says: a lead with its interval, or plainly that there is none.

    ``where`` stands for the place on the load axes, when the load has a better name.
    """
    subject = capital(metric_name(outcome.metric, language))
    where = where or place(outcome.load, language, what)
    fields: dict[str, object] = {"subject": subject, "place": where, "leader": outcome.leader}
    fields["value"] = in_unit(outcome.value, unit(outcome.metric, language))
    pair = outcome.pair
    if pair is None:
        return say("outcome.alone", language, **fields)
    fields["other"] = pair.second
    fields["ratio"], fields["interval"] = ratio(pair.advantage), interval(pair, language)
    if outcome.kind == "wins":
        kind = "rate" if higher_is_better(outcome.metric) else "time"
        return say(f"outcome.wins.{kind}", language, **fields)
    if outcome.kind == "tie":
        return say("outcome.tie", language, **fields)
    if outcome.kind == "undecided":
        return say("outcome.undecided", language, **fields) + _why_open(pair, language)
    return say("outcome.none", language, reason=reason(pair.reason, language), **fields)


def _why_open(pair: Pair, language: Language) -> str:
    """Return why an interval that leaves no doubt alone does not decide, and what would."""
    text = say("outcome.family", language) if "significant alone" in pair.reason else ""
    if pair.blocks_needed is None:
        return text
    blocks = count(pair.blocks_needed, "block", language)
    return text + say("outcome.more", language, blocks=blocks)


def reason(text: str, language: Language) -> str:
    """Return the reason of a missing verdict in the report's language; never empty.

    The statistics give reasons in English. Those that the catalogue knows (``because.*``) are
    translated with their figures; others are left as they are.
    """
    if not text:
        return say("outcome.no_reason", language)
    for key, pattern in _reasons():
        found = pattern.fullmatch(text)
        if found:
            fields = {name: _word(value, language) for name, value in found.groupdict().items()}
            return say(key, language, **fields)
    return text


def brief_reason(text: str, language: Language) -> str:
    """Return a reason for a table that shows ratio, interval and margin beside it."""
    for key, pattern in _reasons():
        short = key.replace("because.", "brief.")
        found = pattern.fullmatch(text) if short in catalogue(language) else None
        if found:
            return say(short, language, **found.groupdict())
    return reason(text, language)


@cache
def _reasons() -> list[tuple[str, re.Pattern[str]]]:
    """Return each known reason's key with a pattern made from its English text."""
    known_reasons = [(k, v) for k, v in catalogue("en").items() if k.startswith("because.")]
    return [
        (key, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(text))))
        for key, text in known_reasons
    ]


def _word(value: str, language: Language) -> str:
    return known(f"word.{value}", language, value)
