"""What was found, in plain sentences: the answer and three findings."""

from __future__ import annotations

from collections import Counter

import polars as pl

from enginebook.report.charts.launch import totals
from enginebook.report.data import StudyData
from enginebook.report.doubts import doubts
from enginebook.report.numbers import seconds
from enginebook.report.outcome import (
    Outcome,
    comparable,
    compare,
    outcome,
    outcomes,
    shared,
    sweep,
)
from enginebook.report.text import Language, count, listing, say
from enginebook.report.wording import Place, capital, metric_name, sentence
from enginebook.stats import PRIMARY

__all__ = ["doubts", "findings", "headline"]

MOST_NAMED = 4  # engines in one sentence
THROUGHPUT, TTFT, TPOT = "output_tokens_per_s", "ttft_p50_ms", "tpot_p50_ms"


def findings(data: StudyData, language: Language | None = None) -> list[str]:
    """Return exactly three sentences: throughput, time to first token, time to serve.

    Each names its numbers and intervals, and says plainly where nothing can be said.
    """
    tongue = language or data.language
    return [_throughput(data, tongue), _ttft(data, tongue), _serve(data, tongue)]


def headline(data: StudyData, language: Language | None = None) -> str:
    """Return the answer to the study's question in one or two sentences."""
    tongue = language or data.language
    found = outcomes(data, PRIMARY)
    if not found:
        names = listing(data.engines, tongue) or say("headline.nobody", tongue)
        return say("headline.alone", tongue, engines=names)
    winners: Counter[str | None] = Counter(o.winner for o in found if o.winner)
    if not winners:
        return _nobody_leads(found, tongue)
    if len(winners) == 1:
        return _one_leads(data, found, str(next(iter(winners))), tongue)
    return _it_depends(found, winners, tongue)


def _nobody_leads(found: list[Outcome], language: Language) -> str:
    n = count(len(found), "comparison", language)
    if all(o.kind == "tie" for o in found):
        return say("headline.level", language, n=n)
    return say("headline.open", language, n=n, rest=_rest(found, language))


def _one_leads(data: StudyData, found: list[Outcome], winner: str, language: Language) -> str:
    won = [o for o in found if o.winner == winner]
    fields = {"winner": winner, "n": count(len(found), "comparison", language)}
    if len(won) == len(found):
        return say("headline.clear", language, **fields)
    rest = _rest(found, language)
    behind = sum(_is_behind(data, o, winner) for o in found)
    key = "headline.partly" if behind else "headline.ahead"
    return say(key, language, won=len(won), behind=behind, rest=rest, **fields)


def _is_behind(data: StudyData, found: Outcome, engine: str) -> bool:
    """Return whether any other engine is surely better than this one at an outcome's load."""
    pairs = (
        compare(data, found.load, found.metric, engine, other)
        for other in data.engines
        if other != engine
    )
    return any(pair is not None and pair.verdict == "worse" for pair in pairs)


def _it_depends(found: list[Outcome], winners: Counter[str | None], language: Language) -> str:
    """Say who leads in what, for each engine that leads somewhere."""
    parts = []
    for winner, won in winners.most_common():
        metrics = [m for m in PRIMARY if any(o.winner == winner and o.metric == m for o in found)]
        names = listing([say(f"short.{m}", language) for m in metrics], language)
        parts.append(say("headline.part", language, winner=winner, won=won, metrics=names))
    n = count(len(found), "comparison", language)
    text = say("headline.depends", language, parts=listing(parts, language), n=n)
    rest = _rest(found, language)
    return text + (say("headline.rest", language, rest=capital(rest)) if rest else "")


def _rest(found: list[Outcome], language: Language) -> str:
    """Return what the comparisons without a winner are, as in "2 ties and 3 undecided"."""
    kinds = Counter(o.kind for o in found)
    order = {"tie": "tie", "undecided": "undecided", "no verdict": "no_verdict"}
    parts = [count(kinds[k], noun, language) for k, noun in order.items() if kinds[k]]  # type: ignore[index]
    return listing(parts, language)


def _throughput(data: StudyData, language: Language) -> str:
    loads = shared(data, sweep(data, THROUGHPUT, "concurrency"), THROUGHPUT)
    if not loads:
        return _nothing(THROUGHPUT, language)
    heavy, light = outcome(data, loads[-1], THROUGHPUT), outcome(data, loads[0], THROUGHPUT)
    if heavy is None:
        return _nothing(THROUGHPUT, language)
    text = sentence(heavy, language, "concurrency")
    turned = light is not None and light.winner is not None and light.winner != heavy.leader
    if turned and heavy.winner is not None and light is not None:
        text += say("finding.turned", language, light=sentence(light, language, "concurrency"))
    return text + say("sentence.end", language)


def _ttft(data: StudyData, language: Language) -> str:
    what: Place = "input_tokens"
    loads = sweep(data, TTFT, "input_tokens")
    if len(loads) < 2:  # noqa: PLR2004 - one length is no sweep: take the lightest load instead
        what, loads = "concurrency", sweep(data, TTFT, "concurrency")[:1]
    loads = shared(data, loads, TTFT)
    found = outcome(data, loads[-1], TTFT) if loads else None
    if found is None:
        return _nothing(TTFT, language)
    return sentence(found, language, what) + say("sentence.end", language)


def _serve(data: StudyData, language: Language) -> str:
    total = totals(data)
    if total.is_empty():
        return say("finding.no_launch", language)
    if total.height > MOST_NAMED:  # the other arms stand in the chart
        total = total.filter(pl.col("engine").is_in(comparable(data, data.engines)))
    parts = []
    for row in total.iter_rows(named=True):
        spread = say("finding.once", language)
        if row["starts"] > 1:
            fields = {"low": seconds(row["least_s"]), "high": seconds(row["most_s"])}
            starts = count(row["starts"], "start", language)
            spread = say("finding.range", language, starts=starts, **fields)
        middle = seconds(row["median_s"])
        parts.append(say("finding.start", language, engine=row["engine"], s=middle, spread=spread))
    return say("finding.serve", language, parts=listing(parts, language))


def _nothing(metric: str, language: Language) -> str:
    name = capital(metric_name(metric, language))
    return say("finding.nothing", language, metric=name)
