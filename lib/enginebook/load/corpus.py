"""A small English corpus made from our own sentence patterns, the same on every host.

Real prose matters: a repeated filler token flatters speculative decoding and sends every token of
a mixture-of-experts model to the same experts; uniformly random ids do the opposite. The text is
nonsense in the large and grammatical in the small, with the usual spread of common and rare words.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from enginebook.errors import InputError

_WORDS = {
    "person": "the harbour master|a retired teacher|our neighbour|the night nurse|a surveyor|"
    "the head gardener|two apprentices|the ferry captain|an old clockmaker|the county engineer|"
    "a visiting botanist|the baker's daughter|the stationmaster|a tired courier|the librarian",
    "thing": "the copper kettle|a bundle of letters|the western gate|a broken compass|the ledger|"
    "the irrigation pump|a map of the valley|the tide table|a crate of lemons|the spare generator|"
    "a pair of binoculars|the seed catalogue|the old signal lamp|a weather balloon|the violin",
    "place": "beside the mill pond|on the terrace|in the railway workshop|near the lighthouse|"
    "under the stone bridge|at the edge of the orchard|behind the town hall|along the canal|"
    "inside the observatory|by the fish market|above the tree line|across the salt marsh",
    "verb": "repaired|measured|forgot|sketched|borrowed|carried|described|sold|polished|weighed|"
    "examined|painted|returned|misplaced|numbered|photographed|dismantled|catalogued",
    "adverb": "carefully|without hurry|twice|for the first time|at great expense|in silence|"
    "before breakfast|almost by accident|with evident pride|against all advice|every spring",
    "reason": "because the rain went on since Tuesday|although nobody had asked for it|"
    "since the budget allowed nothing better|while the others argued about the price|"
    "so that the survey could go on|until the light failed|as the instructions required",
    "fact": "the water stood {n} centimetres above the mark|{n} of the {m} lamps were burning|"
    "the road was closed for {n} days|each crate weighed {n} kilograms|"
    "the temperature fell to {n} degrees|the repair took {n} hours and cost {m} crowns",
    "opening": "In the autumn of that year|According to the minutes|Some weeks later|"
    "As far as anyone remembers|On the following morning|To be precise|Against expectation",
}
_PATTERNS = (
    "{opening}, {person} {verb} {thing} {place}.",
    "{person} {verb} {thing} {adverb}, {reason}.",
    "{opening}, {fact}, and {person} {verb} {thing}.",
    "{person} said that {fact}; {person} {verb} {thing} {place} {adverb}.",
    "Nobody knew why {person} {verb} {thing}, but {fact}.",
    "{thing} stood {place}, where {person} {verb} {thing} {adverb}.",
)
_CHOICES = {kind: words.split("|") for kind, words in _WORDS.items()}


def _sentence(rng: np.random.Generator) -> str:
    text = _PATTERNS[rng.integers(len(_PATTERNS))]
    for kind, words in _CHOICES.items():
        while f"{{{kind}}}" in text:
            text = text.replace(f"{{{kind}}}", words[rng.integers(len(words))], 1)
    text = text.replace("{n}", str(rng.integers(3, 90))).replace("{m}", str(rng.integers(90, 900)))
    return text[0].upper() + text[1:]


def prose(characters: int, seed: int = 0) -> str:
    """Return at least this many characters of paragraphs."""
    rng = np.random.default_rng([seed, 11])
    parts: list[str] = []
    length = 0
    while length < characters:
        paragraph = " ".join(_sentence(rng) for _ in range(rng.integers(3, 7))) + "\n\n"
        parts.append(paragraph)
        length += len(paragraph)
    return "".join(parts)


def few_shot(characters: int, seed: int = 0) -> str:
    """Return at least this many characters of worked question-and-answer examples."""
    rng = np.random.default_rng([seed, 12])
    parts: list[str] = []
    length = 0
    while length < characters:
        a, b = rng.integers(2, 99, size=2)
        parts.append(
            f"Question: {_sentence(rng)} If {a} crates hold {b} jars each, "
            f"how many jars are there?\n"
            f"Answer: {a} times {b} is {a * b}, so there are {a * b} jars.\n\n"
        )
        length += len(parts[-1])
    return "".join(parts)


def sharegpt_text(path: Path) -> str:
    """Return the turns of a ShareGPT-format file as one text.

    Raises
    ------
    InputError
        When the file is no JSON list of objects with ``conversations`` of ``value`` texts.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        turns = [str(t["value"]) for talk in data for t in talk["conversations"] if t.get("value")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is not in ShareGPT format ({type(error).__name__}: {error})",
            'it must be a JSON list of {"conversations": [{"from": ..., "value": ...}]}',
        ) from error
    if not turns:
        raise InputError(f"{path} holds no turns", "give a file with conversations")
    return "\n\n".join(turns)


_MAKERS: dict[str, Callable[[int, int], str]] = {
    "text": prose,
    "few-shot": few_shot,
    "json": prose,
}


def corpus_text(kind: str, file: Path | None, characters: int, seed: int) -> str:
    """Return the text that prompts are cut from."""
    if kind in _MAKERS:
        return _MAKERS[kind](characters, seed)
    if file is None:
        raise InputError(f"prompts of kind {kind!r} need a file", "give a prompt file")
    if kind == "sharegpt":
        return sharegpt_text(file)
    return file.read_text(encoding="utf-8", errors="replace")
