"""Whether engines compute the same model: greedy answers token by token, and questions answered.

An engine that answers nonsense can be fast. Two checks guard against it. Greedy answers to the same
prompts are compared with those of a reference engine, token by token: where they part, the
reference's own margin between the two tokens says whether rounding explains it. And short
questions with known answers are counted, so that an engine that answers significantly fewer of
them than the reference is known to compute something else. The reference is the engine that answers
most of them, so that an engine cannot pass by standing first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from scipy import stats

# Nats between the two best tokens that arithmetic in these precisions is assumed to turn round. The
# figures are estimates, not measurements and from no source: logits are sums of thousands of
# products, about 10 to 30 in size, which float32 keeps to about 1e-4 and sixteen bits to a few
# hundredths; the limits stand some ten times above, and eight-bit products err more again.
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


def references(peers: Sequence[Peer], scores: Mapping[str, float]) -> dict[str, tuple[str, bool]]:
    """Return for each engine its reference, and whether that reads the same weights.

    The reference is the engine with the highest score among those with the same weights, the first
    of equals. Where an engine is that itself and its weights are not those of the first engine (a
    quantised copy), it is held against the best of the first engine's.

    Parameters
    ----------
    scores
        Of the engines that have answers; others are no references and have none.
    """
    able = [p for p in peers if p.comparable and p.engine in scores]
    found = {}
    for peer in able:
        same = _best(able, peer.weights, scores)
        reference = same if same is not peer else _best(able, able[0].weights, scores)
        if reference is not peer:
            found[peer.engine] = (reference.engine, reference.weights == peer.weights)
    return found


def _best(peers: Sequence[Peer], weights: str, scores: Mapping[str, float]) -> Peer:
    return max((p for p in peers if p.weights == weights), key=lambda p: scores[p.engine])


def agreement(
    texts: Mapping[str, Sequence[Answer]],
    peers: Sequence[Peer],
    scores: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Compare every engine's greedy answers with its reference's.

    Parameters
    ----------
    texts
        Engine to answers: ``prompt``, ``text``, and ``tokens`` where the engine tells them (each
        with ``token``, ``logprob`` and ``top``, a list of token and log-probability).
    scores
        Engine to questions answered rightly: the best is the reference. None: the first is.

    Returns
    -------
    list of dict
        ``engine``, ``reference``, ``same_weights``, ``prompt``, ``equal``, ``first_difference``
        (characters from the start, None when equal), ``same_tokens`` (tokens before the texts
        part, None where unknown), ``gap_nats`` (by how much the reference preferred its own token
        there, None where unknown), ``gap_exact`` (False: it preferred it by at least that much)
        and ``explained`` (whether rounding is assumed to turn that round, None where unknown; see
        `ROUNDING_NATS`, whose limits are assumptions).
    """
    bits = {p.engine: p.bits for p in peers}
    known = {engine: (scores or {}).get(engine, 0.0) for engine, told in texts.items() if told}
    rows = []
    for engine, (reference, same) in references(peers, known).items():
        limit = ROUNDING_NATS[min(bits[engine], bits[reference])]
        for ours, theirs in zip(texts[engine], texts[reference], strict=True):
            key = {"engine": engine, "reference": reference, "same_weights": same}
            rows.append(key | {"prompt": ours["prompt"]} | _parted(ours, theirs, limit))
    return rows


def _parted(ours: Answer, theirs: Answer, limit: float) -> dict[str, Any]:
    place = first_difference(ours["text"], theirs["text"])
    row: dict[str, Any] = {"equal": place is None, "first_difference": place}
    at = None if place is None else _same_tokens(ours, theirs)
    found = None if at is None else _gap(ours, theirs, at)
    gap, exact = (None, None) if found is None else found
    row |= {"same_tokens": at, "gap_nats": gap, "gap_exact": exact}
    return row | {"explained": _explained(gap, limit, exact=bool(exact))}


def _explained(gap: float | None, limit: float, *, exact: bool) -> bool | None:
    """Return whether rounding explains a gap; a bound from below can only rule it out."""
    if gap is None:
        return None
    if gap > limit:
        return False
    return True if exact else None


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


def _gap(ours: Answer, theirs: Answer, at: int) -> tuple[float, bool] | None:
    """Return by how many nats the reference preferred its token to ours, and whether exactly.

    Where ours is not among the tokens that it told, the last of them is a bound from below.
    """
    left, right = ours.get("tokens") or [], theirs.get("tokens") or []
    if at >= len(left) or at >= len(right) or not right[at].get("top"):
        return None
    told = dict(right[at]["top"])
    best, token = float(right[at]["logprob"]), left[at]["token"]
    gap = best - float(told.get(token, min(told.values())))
    return (gap, token in told) if math.isfinite(gap) else None


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
        ``reference`` (None where there is no other), ``same_weights``, ``lost`` and ``gained``
        (questions that only the reference, or only this engine answers), ``p`` (exact McNemar test
        of losing more than gaining, corrected for the choice of the reference among all engines
        that answered) and ``wrong`` (same weights and ``p`` below 1 %).
    """
    able = [p for p in peers if p.comparable and answers.get(p.engine)]
    right = {p.engine: [bool(a["right"]) for a in answers[p.engine]] for p in able}
    refer = references(able, {engine: sum(told) for engine, told in right.items()})
    rows = []
    for peer in able:
        mine = right[peer.engine]
        share = stats.binomtest(sum(mine), len(mine)).proportion_ci(method="wilson")
        row = {"engine": peer.engine, "right": sum(mine), "of": len(mine)}
        row |= {"low": float(share.low), "high": float(share.high)}
        reference, same = refer.get(peer.engine, (None, None))
        row |= {"reference": reference, "same_weights": same}
        base = None if reference is None else right[reference]
        rows.append(row | _against(mine, base, same=bool(same), engines=len(able)))
    return rows


def _against(
    right: Sequence[bool], base: Sequence[bool] | None, *, same: bool, engines: int
) -> dict[str, Any]:
    if base is None:
        return {"lost": None, "gained": None, "p": None, "wrong": False}
    pairs = list(zip(right, base, strict=True))
    lost = sum(theirs and not ours for ours, theirs in pairs)
    gained = sum(ours and not theirs for ours, theirs in pairs)
    # under equal ability each discordant question is lost or gained with equal chance
    discordant = lost + gained
    test = stats.binomtest(lost, discordant, alternative="greater") if discordant else None
    # any engine may be the reference, and any may lose to it: that many tests share the error
    p = 1.0 if test is None else min(1.0, float(test.pvalue) * engines * (engines - 1))
    return {"lost": lost, "gained": gained, "p": p, "wrong": same and p < WRONG_P}
