"""Whether engines compute the same model: planted differences are found, rounding is told apart."""

from __future__ import annotations

import pytest

from enginebook.metrics.correctness import Peer, accuracy, agreement, references

A = Peer("a", "model", 32)
B = Peer("b", "model", 32)
HALF = Peer("half", "model", 16)
Q4 = Peer("q4", "model-q4", 32)
NOISE = Peer("noise", "model", 32, comparable=False)


def said(text, *tokens):
    """Return an answer whose tokens are (token, its runner-up, margin in nats)."""
    told = [
        {"token": t, "logprob": -0.1, "top": [[t, -0.1], [other, -0.1 - gap]]}
        for t, other, gap in tokens
    ]
    return {"prompt": "p", "text": text, "tokens": told}


def answers(*right):
    return [{"prompt": str(i), "right": r} for i, r in enumerate(right)]


def test_the_reference_is_the_best_with_the_same_weights_else_the_best_of_the_first():
    other = Peer("q4-too", "model-q4", 16)
    peers = [NOISE, A, Q4, B, other]
    assert references(peers, dict.fromkeys(["a", "b", "q4", "q4-too", "noise"], 1)) == {
        "q4": ("a", False), "b": ("a", True), "q4-too": ("q4", True),
    }  # fmt: skip
    assert references(peers, {"a": 1, "b": 2, "q4": 1, "q4-too": 3}) == {
        "a": ("b", True), "q4": ("q4-too", True), "q4-too": ("b", False),
    }  # fmt: skip
    assert references(peers, {"b": 1, "q4": 5}) == {"b": ("q4", False)}
    assert references([NOISE], {"noise": 1}) == {}


def test_the_texts_of_the_best_engine_are_the_reference():
    texts = {"a": [said("?")], "b": [said("x")], "c": [said("x")]}
    peers = [A, B, Peer("c", "model", 32)]
    rows = agreement(texts, peers, {"a": 0, "b": 30, "c": 30})
    assert [(r["engine"], r["reference"], r["equal"]) for r in rows] == [
        ("a", "b", False), ("c", "b", True),
    ]  # fmt: skip
    # without the first engine's texts the others are still compared
    rows = agreement({"a": [], "b": [said("x")], "c": [said("y")]}, peers)
    assert [(r["engine"], r["reference"]) for r in rows] == [("c", "b")]


def test_equal_texts_need_no_explanation():
    (row,) = agreement({"a": [said("x y")], "b": [said("x y")]}, [A, B])
    assert (row["equal"], row["first_difference"], row["explained"]) == (True, None, None)


@pytest.mark.parametrize(
    ("gap", "peer", "explained"),
    [(0.001, B, True), (0.1, B, False), (0.1, HALF, True), (2.0, HALF, False)],
)
def test_a_difference_is_explained_by_the_margin_at_its_place(gap, peer, explained):
    reference = said("x y", ("x", "w", 5.0), ("y", "z", gap))
    other = said("x z", ("x", "w", 5.0), ("z", "y", 0.3))
    (row,) = agreement({"a": [reference], peer.engine: [other]}, [A, peer])
    assert (row["same_tokens"], row["first_difference"]) == (1, 2)
    assert row["gap_nats"] == pytest.approx(gap)
    assert row["explained"] is explained


def test_a_token_that_the_reference_did_not_tell_is_further_than_the_last_it_told():
    reference = said("x", ("x", "w", 3.0))
    (row,) = agreement({"a": [reference], "b": [said("q", ("q", "x", 1.0))]}, [A, B])
    assert row["gap_nats"] == pytest.approx(3.0)
    assert (row["explained"], row["gap_exact"]) == (False, False)
    # at least 0.001 nats may be any number: that is no explanation
    close = said("x", ("x", "w", 0.001))
    (row,) = agreement({"a": [close], "b": [said("q", ("q", "x", 1.0))]}, [A, B])
    assert row["gap_nats"] == pytest.approx(0.001)
    assert (row["explained"], row["gap_exact"]) == (None, False)


def test_engines_that_tell_no_tokens_are_compared_by_characters():
    (row,) = agreement({"a": [said("abc")], "b": [said("abd", ("abd", "x", 1.0))]}, [A, B])
    assert (row["first_difference"], row["same_tokens"], row["gap_nats"]) == (2, None, None)
    assert row["explained"] is None


def test_invented_weights_are_compared_with_nothing():
    texts = {"a": [said("x")], "noise": [said("y")]}
    assert agreement(texts, [A, NOISE]) == []
    asked = {"a": answers(True), "noise": answers(False)}
    assert [row["engine"] for row in accuracy(asked, [A, NOISE])] == ["a"]


def test_an_engine_that_answers_nonsense_is_wrong():
    good = answers(*[True] * 20, *[False] * 20)
    first, row = accuracy({"a": good, "b": answers(*[False] * 40)}, [A, B])
    assert (first["right"], first["of"], first["reference"], first["wrong"]) == (
        20,
        40,
        None,
        False,
    )
    assert first["low"] < 0.5 < first["high"]
    assert (row["lost"], row["gained"], row["wrong"]) == (20, 0, True)
    assert row["p"] == pytest.approx(2.0**-19)


def test_an_engine_that_answers_nonsense_does_not_pass_by_standing_first():
    good = answers(*[True] * 30, *[False] * 10)
    rows = accuracy(
        {"a": answers(*[False] * 40), "b": good, "c": good}, [A, B, Peer("c", "model", 32)]
    )
    assert [(r["engine"], r["reference"], r["wrong"]) for r in rows] == [
        ("a", "b", True), ("b", None, False), ("c", "b", False),
    ]  # fmt: skip


def test_the_choice_of_the_reference_is_paid_for():
    """The worst of six is behind the best by more than the worst of two."""
    base, few = answers(*[True] * 40), answers(*[False] * 8, *[True] * 32)
    two = accuracy({"a": base, "b": few}, [A, B])[1]
    six = [Peer(str(i), "model", 32) for i in range(6)]
    many = accuracy({p.engine: few if p is six[5] else base for p in six}, six)[5]
    assert two["wrong"]
    assert many["p"] == pytest.approx(15 * two["p"])
    assert not many["wrong"]


def test_a_few_questions_less_are_chance():
    good = answers(*[True] * 20, *[False] * 20)
    close = answers(*[False] * 4, *[True] * 18, *[False] * 18)
    _, row = accuracy({"a": good, "b": close}, [A, B])
    assert (row["lost"], row["gained"], row["wrong"]) == (4, 2, False)
    assert row["p"] > 0.6


def test_other_weights_may_lose_without_being_wrong():
    good = answers(*[True] * 20, *[False] * 20)
    _, row = accuracy({"a": good, "q4": answers(*[False] * 40)}, [A, Q4])
    assert row["p"] < 1e-5
    assert row["same_weights"] is False
    assert row["wrong"] is False


def test_without_the_first_engine_s_answers_the_others_are_tested():
    (row,) = accuracy({"b": answers(True)}, [A, B])
    assert (row["reference"], row["p"], row["wrong"]) == (None, None, False)
    good, bad = answers(*[True] * 40), answers(*[False] * 40)
    rows = accuracy({"b": bad, "c": good, "a": []}, [A, B, Peer("c", "model", 32)])
    assert [(r["engine"], r["reference"], r["wrong"]) for r in rows] == [
        ("b", "c", True), ("c", None, False),
    ]  # fmt: skip
