"""The article against its own tables."""

import pytest

from enginebook.claims import load_register, read_claims
from enginebook.claims.consistency import against_own_tables

FOUND = {r["claim_id"]: r for r in against_own_tables(load_register()).to_dicts()}


@pytest.mark.parametrize(
    ("claim", "agrees", "says"),
    [
        ("RAT-01", True, "1.26x over 3 points"),  # not 1.29 either, but within 10 %
        ("RAT-02", False, "crosses at 52.2"),  # said to be above 64
        ("RAT-04", True, None),
        ("RAT-05", True, None),
        ("RAT-06", False, "50.6%"),  # at 8192 tokens, outside 40 to 50 %
        ("RAT-13", False, None),  # 30 to 50 % wasted: true of concurrency 128 alone
        ("RAT-14", True, None),
        ("RAT-20", True, None),
        ("DEC-01", True, None),
        ("DEC-03", True, None),
    ],
)
def test_statements_against_the_tables(claim, agrees, says):
    assert FOUND[claim]["agrees"] is agrees
    assert says is None or says in FOUND[claim]["tables_say"]


def test_what_the_tables_cannot_check_is_left_out():
    assert not {"RAT-12", "RAT-19", "DEC-05", "CMP-01", "THR-vllm-c001"} & set(FOUND)


def test_a_source_that_agrees_with_itself():
    text = """
    tables:
      - {test: {metric: output_tokens_per_s}, by: concurrency, engines: [a, b],
         rows: {1: [10, 13], 8: [80, 104]}}
    claims:
      - {id: x, statement: b is 1.3 times as fast,
         test: {rule: RATIO, metric: output_tokens_per_s, engines: [b, a], value: 1.3}}
    """
    frame = against_own_tables(read_claims(text, "mine"))
    assert frame.select("claim_id", "agrees").rows() == [("x", True)]
