"""The first screen: the answer in a few sentences, and what could make it wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from enginebook.report.data import StudyData
from enginebook.report.doubts import doubts
from enginebook.report.findings import MOST_NAMED, findings, headline
from enginebook.report.fragment import Fragment, safe
from enginebook.report.text import count, listing, say


def answer(data: StudyData) -> Fragment:
    """Return the answer: headline, three findings, and on what, for which model, how often."""
    language = data.language
    lead, found, facts = headline(data), findings(data), _facts(data)
    items = "".join(f"<li>{safe(sentence)}</li>" for sentence in found)
    html = (
        f'<section class="eb-answer" aria-label="{safe(say("page.answer", language))}">'
        f'<p class="eb-facts">{safe(facts)}</p>'
        f'<p class="eb-headline">{safe(lead)}</p><ul class="eb-found">{items}</ul></section>'
    )
    return Fragment(html, "\n".join([facts, lead, *(f"- {s}" for s in found)]))


def caveats(data: StudyData) -> Fragment:
    """Return what could make the answer wrong, weightiest first."""
    language = data.language
    title, found = say("page.doubts", language), doubts(data)
    items = "".join(f"<li>{safe(sentence)}</li>" for sentence in found)
    html = f'<aside class="eb-doubts" aria-label="{safe(title)}"><ul>{items}</ul></aside>'
    return Fragment(html, "\n".join([f"{title}:", *(f"- {s}" for s in found)]))


def _facts(data: StudyData) -> str:
    """Return one line: engines with versions, model, machine, blocks."""
    language = data.language
    engines = listing(_engines(data), language)
    return say(
        "page.facts",
        language,
        engines=engines,
        model=model_name(data) or say("page.unnamed_model", language),
        machine=machine_name(data.host) or say("page.unnamed_machine", language),
        blocks=count(data.blocks, "block", language),
    )


def _engines(data: StudyData) -> list[str]:
    """Return engines with their versions; many set-ups of the same engines count once each."""
    versions = dict(data.installs.select("engine", "version").iter_rows())
    kinds = dict(data.arms.select("engine", "engine_id").iter_rows())
    if len(data.engines) <= MOST_NAMED:
        return [f"{e} {versions.get(e) or ''}".strip() for e in data.engines]
    named = [f"{kinds.get(e) or e} {versions.get(e) or ''}".strip() for e in data.engines]
    return [
        text if n == 1 else say("page.setups", data.language, engine=text, n=n)
        for text, n in Counter(named).items()
    ]


def model_name(data: StudyData) -> str:
    """Return the model's short name, or an empty text."""
    model = data.study.get("model")
    if not isinstance(model, Mapping):
        return str(model or "")
    source = next((model[k] for k in ("name", "hub", "dummy", "path") if model.get(k)), "")
    return str(source).rstrip("/").rsplit("/", 1)[-1]


def machine_name(host: Mapping[str, Any]) -> str:
    """Return the GPU's name, else the CPU's; an empty text when the host tells neither."""
    gpus = host.get("gpus")
    if isinstance(gpus, list) and gpus and isinstance(gpus[0], Mapping):
        name = str(gpus[0].get("name", ""))
        return f"{len(gpus)} × {name}" if len(gpus) > 1 else name
    cpu = host.get("cpu")
    if isinstance(cpu, Mapping):
        return str(cpu.get("model") or cpu.get("name") or "")
    return str(cpu or "")
