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


def test_the_reference_is_the_first_with_the_same_weights_else_the_first_of_all():
    other = Peer("q4-too", "model-q4", 16)
    assert references([NOISE, A, Q4, B, other]) == {
        "q4": ("a", False), "b": ("a", True), "q4-too": ("q4", True),
    }  # fmt: skip
    assert references([NOISE]) == {}


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
    assert row["explained"] is False


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
    assert row["p"] == pytest.approx(2.0**-20)


def test_a_few_questions_less_are_chance():
    good = answers(*[True] * 20, *[False] * 20)
    close = answers(*[False] * 4, *[True] * 18, *[False] * 18)
    _, row = accuracy({"a": good, "b": close}, [A, B])
    assert (row["lost"], row["gained"], row["wrong"]) == (4, 2, False)
    assert row["p"] > 0.3


def test_other_weights_may_lose_without_being_wrong():
    good = answers(*[True] * 20, *[False] * 20)
    _, row = accuracy({"a": good, "q4": answers(*[False] * 40)}, [A, Q4])
    assert row["p"] < 1e-5
    assert row["same_weights"] is False
    assert row["wrong"] is False


def test_without_the_reference_s_answers_nothing_is_tested():
    (row,) = accuracy({"b": answers(True)}, [A, B])
    assert (row["reference"], row["p"], row["wrong"]) == (None, None, False)
