"""Cache utilisation, against sums step by step."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from enginebook.errors import InputError
from enginebook.physics.paging import (
    Reservation,
    kv_utilisation,
    utilisation,
)


def lognormal_lengths(count, mean, median, *, longest, seed=0):
    """Return lengths of a lognormal law, given by mean and median as traces publish them."""
    sigma = math.sqrt(2 * math.log(mean / median))
    drawn = np.random.default_rng(seed).lognormal(math.log(median), sigma, count)
    return np.clip(np.rint(drawn), 1, longest).astype(np.int64)


CONVERSATION = {
    "inputs": lognormal_lengths(2000, 1155, 1020, longest=4096, seed=1),
    "outputs": lognormal_lengths(2000, 211, 129, longest=1024, seed=2),
}
lengths = some.lists(
    some.tuples(some.integers(1, 300), some.integers(1, 80)), min_size=1, max_size=8
)


@given(lengths, some.sampled_from([1, 7, 16, 64]))
def test_paged_utilisation_is_the_sum_over_steps(requests, page):
    live = slots = 0
    for inputs, outputs in requests:
        for k in range(1, outputs + 1):
            live += inputs + k
            slots += math.ceil((inputs + k) / page) * page
    found = utilisation(*zip(*requests, strict=True), Reservation(page_tokens=page))
    assert found == pytest.approx(live / slots, rel=1e-12)


@given(lengths)
def test_a_page_of_one_token_wastes_nothing_and_larger_pages_more(requests):
    inputs, outputs = zip(*requests, strict=True)
    by_page = [utilisation(inputs, outputs, Reservation(page_tokens=p)) for p in (1, 16, 256)]
    assert by_page[0] == 1.0
    assert by_page[0] >= by_page[1] >= by_page[2]


def test_paging_lifts_utilisation_as_the_paper_says():
    """20 to 38 % before and 96 % after: the figures of the PagedAttention paper, by the law."""
    inputs, outputs = CONVERSATION["inputs"], CONVERSATION["outputs"]
    before = utilisation(inputs, outputs, Reservation(max_tokens=4096))
    after = utilisation(inputs, outputs, Reservation(page_tokens=16))
    assert 0.20 < before < 0.40
    assert after > 0.98
    # the figure before is a property of max_len, not of the engine
    assert utilisation(inputs, outputs, Reservation(max_tokens=8192)) < 0.2


@pytest.mark.parametrize(("mean", "expected"), [(128, 0.945), (512, 0.986)])
def test_the_rule_of_thumb_for_pages_of_16(mean, expected):
    inputs = np.arange(mean - 16, mean + 16)
    found = utilisation(inputs, np.full(32, 16), Reservation(page_tokens=16))
    assert found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        Reservation,
        lambda: Reservation(page_tokens=16, max_tokens=2048),
        lambda: utilisation([1], [1, 2], Reservation(page_tokens=16)),
        lambda: utilisation([], [], Reservation(page_tokens=16)),
        lambda: utilisation([0], [1], Reservation(page_tokens=16)),
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(InputError):
        wrong()


def test_doubling_by_hand():
    # 3 in, 3 out: 4, 5, 6 live tokens in 4, 8, 8 slots
    assert utilisation([3], [3], Reservation(doubling=True)) == pytest.approx(15 / 20)
    with pytest.raises(InputError, match="either"):
        Reservation(doubling=True, page_tokens=16)


def test_policies_by_name():
    lengths = CONVERSATION["inputs"], CONVERSATION["outputs"]
    found = {p: kv_utilisation(*lengths, p, 2048) for p in ("prealloc", "pow2", "paged:16")}
    assert found["prealloc"] < found["pow2"] < found["paged:16"] <= 1
    assert kv_utilisation(*lengths, "paged:1", 2048) == 1
    assert kv_utilisation([9999], [10], "prealloc", 100) == 1  # cut to the longest that fits
    with pytest.raises(InputError, match="unknown policy"):
        kv_utilisation([1], [1], "paged:0", 100)
