"""Whether engines compute the same model: greedy answers token by token, and questions answered.

An engine that answers nonsense can be fast. Two checks guard against it. Greedy answers to the same
prompts are compared with those of a reference engine, token by token: where they part, the
reference's own margin between the two tokens says whether rounding explains it. And short
questions with known answers are counted, so that an engine that answers significantly fewer of
them than the reference is known to compute something else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from scipy import stats

# Nats between the two best tokens that arithmetic in these precisions can turn round. Logits are
# sums of thousands of products, about 10 to 30 in size: float32 keeps them to about 1e-4, sixteen
# bits to a few hundredths, of which a tail is allowed for; eight-bit products err ten times more.
ROUNDING_NATS: Final[Mapping[int, float]] = {32: 0.02, 16: 0.25, 8: 1.0}
WRONG_P: Final = 0.01  # chance of calling a faithful engine wrong

Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Peer:
    """An engine whose answers are compared.

    Attributes
    ----------
    weights
        What it computes: engines of equal text read the same model.
    bits
        Of its arithmetic: 32, 16 or 8.
    comparable
        False for invented weights, whose answers say nothing.
    """

    engine: str
    weights: str
    bits: int
    comparable: bool = True


def references(peers: Sequence[Peer]) -> dict[str, tuple[str, bool]]:
    """Return for each engine its reference, and whether that reads the same weights.

    The first engine with the same weights is the reference; where there is none (a quantised copy),
    the first engine of all.
    """
    able = [p for p in peers if p.comparable]
    found = {}
    for peer in able[1:]:
        same = next(p for p in able if p.weights == peer.weights)
        reference = same if same is not peer else able[0]
        found[peer.engine] = (reference.engine, reference.weights == peer.weights)
    return found


def agreement(texts: Mapping[str, Sequence[Answer]], peers: Sequence[Peer]) -> list[dict[str, Any]]:
    """Compare every engine's greedy answers with its reference's.

    Parameters
    ----------
    texts
        Engine to answers: ``prompt``, ``text``, and ``tokens`` where the engine tells them (each
        with ``token``, ``logprob`` and ``top``, a list of token and log-probability).

    Returns
    -------
    list of dict
        ``engine``, ``reference``, ``same_weights``, ``prompt``, ``equal``, ``first_difference``
        (characters from the start, None when equal), ``same_tokens`` (tokens before the texts
        part, None where unknown), ``gap_nats`` (by how much the reference preferred its own token
        there, None where unknown) and ``explained`` (whether rounding can turn that round).
    """
    bits = {p.engine: p.bits for p in peers}
    rows = []
    for engine, (reference, same) in references(peers).items():
        if engine not in texts or reference not in texts:
            continue
        limit = ROUNDING_NATS[min(bits[engine], bits[reference])]
        for ours, theirs in zip(texts[engine], texts[reference], strict=True):
            key = {"engine": engine, "reference": reference, "same_weights": same}
            rows.append(key | {"prompt": ours["prompt"]} | _parted(ours, theirs, limit))
    return rows


def _parted(ours: Answer, theirs: Answer, limit: float) -> dict[str, Any]:
    place = first_difference(ours["text"], theirs["text"])
    row: dict[str, Any] = {"equal": place is None, "first_difference": place}
    at = None if place is None else _same_tokens(ours, theirs)
    gap = None if at is None else _gap(ours, theirs, at)
    explained = None if gap is None else gap <= limit
    return row | {"same_tokens": at, "gap_nats": gap, "explained": explained}


def first_difference(left: str, right: str) -> int | None:
    """Return the index of the first differing character, or None when the texts are equal."""
    pairs = enumerate(zip_longest(left, right))
    return next((place for place, (a, b) in pairs if a != b), None)


def _same_tokens(ours: Answer, theirs: Answer) -> int | None:
    """Return how many tokens are the same before the first that differs."""
    left, right = ours.get("tokens") or [], theirs.get("tokens") or []
    if not left or not right:
        return None
    pairs = zip(left, right, strict=False)
    differs = (i for i, (a, b) in enumerate(pairs) if a["token"] != b["token"])
    return next(differs, min(len(left), len(right)))


def _gap(ours: Answer, theirs: Answer, at: int) -> float | None:
    """Return by how many nats the reference preferred its token to ours at a place.

    Where ours is not among the tokens that it told, the last of them is a bound from below.
    """
    left, right = ours.get("tokens") or [], theirs.get("tokens") or []
    if at >= len(left) or at >= len(right) or not right[at].get("top"):
        return None
    told = dict(right[at]["top"])
    best = float(right[at]["logprob"])
    gap = best - float(told.get(left[at]["token"], min(told.values())))
    return gap if math.isfinite(gap) else None


def accuracy(
    answers: Mapping[str, Sequence[Answer]], peers: Sequence[Peer]
) -> list[dict[str, Any]]:
    """Count the questions that each engine answers, and compare with its reference's.

    Parameters
    ----------
    answers
        Engine to answered questions: ``prompt`` and ``right``; the same questions everywhere.

    Returns
    -------
    list of dict
        ``engine``, ``right``, ``of``, ``low`` and ``high`` (95 % Wilson interval of the share),
        ``reference`` (None for the first), ``same_weights``, ``lost`` and ``gained`` (questions
        that only the reference, or only this engine answers), ``p`` (exact one-sided McNemar test
        of losing more than gaining) and ``wrong`` (same weights and ``p`` below 1 %).
    """
    refer = references(peers)
    rows = []
    for peer in peers:
        if not peer.comparable or not answers.get(peer.engine):
            continue
        right = [bool(a["right"]) for a in answers[peer.engine]]
        share = stats.binomtest(sum(right), len(right)).proportion_ci(method="wilson")
        row = {"engine": peer.engine, "right": sum(right), "of": len(right)}
        row |= {"low": float(share.low), "high": float(share.high)}
        reference, same = refer.get(peer.engine, (None, None))
        base = None if reference is None else answers.get(reference)
        row |= {"reference": reference if base else None, "same_weights": same}
        rows.append(row | _against(right, base, same=bool(same)))
    return rows


def _against(right: Sequence[bool], base: Sequence[Answer] | None, *, same: bool) -> dict[str, Any]:
    if not base:
        return {"lost": None, "gained": None, "p": None, "wrong": False}
    pairs = [(ours, bool(theirs["right"])) for ours, theirs in zip(right, base, strict=True)]
    lost = sum(theirs and not ours for ours, theirs in pairs)
    gained = sum(ours and not theirs for ours, theirs in pairs)
    # under equal ability each discordant question is lost or gained with equal chance
    discordant = lost + gained
    test = stats.binomtest(lost, discordant, alternative="greater") if discordant else None
    p = 1.0 if test is None else float(test.pvalue)
    return {"lost": lost, "gained": gained, "p": p, "wrong": same and p < WRONG_P}
