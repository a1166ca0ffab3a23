"""The queue of two devices, against laws that are known exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from enginebook.errors import InputError
from enginebook.physics.queueing import (
    CHUNK_TOKENS,
    StepTimes,
    colocated,
    disaggregated,
    poisson_arrivals,
)

FLAT = StepTimes(0.1, (1, 64), (0.01, 0.01))
REAL = StepTimes(0.12, (1, 8, 32, 128), (0.007, 0.0085, 0.012, 0.030))


def test_a_request_alone_takes_its_prompt_and_its_steps():
    far = np.arange(20) * 100.0
    for served in (colocated(FLAT, far, 1024, 51), disaggregated(FLAT, far, 51)):
        assert served.ttft_s == pytest.approx(0.1)
        assert served.tpot_s == pytest.approx(0.01)
    moved = disaggregated(FLAT, far, 51, transfer_s=0.5)
    assert moved.ttft_s == pytest.approx(0.1)  # the first token does not wait for the cache
    assert moved.tpot_s == pytest.approx(0.01 + 0.5 / 50)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_prompts_wait_as_in_a_queue_with_one_fixed_service_time(load):
    """M/D/1: the mean wait is rho / (2 (1 - rho)) services (Pollaczek and Khinchine)."""
    waits = [
        disaggregated(FLAT, poisson_arrivals(20_000, load / 0.1, seed), 2).ttft_s.mean() - 0.1
        for seed in range(6)
    ]
    assert np.mean(waits) == pytest.approx(0.1 * load / (2 * (1 - load)), rel=0.06)


def test_a_prompt_delays_the_tokens_of_others_only_where_both_share_a_device():
    arrivals = np.asarray([0.0, 50.0, 0.2, 60.0])  # the first and the third meet on one device
    shared = colocated(FLAT, arrivals, 1024, 101)
    apart = disaggregated(FLAT, np.sort(arrivals), 101)
    assert shared.tpot_s[0] == pytest.approx(0.01 + 0.1 / 100)
    assert apart.tpot_s == pytest.approx(0.01, abs=1.01e-4)  # a step in progress is waited for


def test_long_prompts_are_computed_in_chunks_between_which_others_go_on():
    # three chunks; the other request's steps ride along, and the prompt takes three steps more
    arrivals = np.asarray([0.0, 500.0, 0.5, 600.0])
    served = colocated(FLAT, arrivals, 3 * CHUNK_TOKENS, 201)
    assert served.ttft_s[2] == pytest.approx(0.1 + 3 * 0.01, abs=0.011)


def test_batches_share_a_step_and_wait_when_the_largest_is_full():
    together = np.zeros(8) + np.arange(8) * 1e-9
    full = StepTimes(1e-6, (1, 2), (0.01, 0.01))
    served = colocated(full, together, 10, 101)  # four on each device, two at a time
    assert sorted(np.round(served.ttft_s, 1)) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_the_reference_load_is_what_two_devices_carry():
    """Below it the queue is stable, above it grows with the number of requests."""
    rate = 2 * REAL.requests_per_s(256)
    calm = colocated(REAL, poisson_arrivals(3000, 0.8 * rate, 1), 4096, 256)
    late = colocated(REAL, poisson_arrivals(3000, 1.3 * rate, 1), 4096, 256)
    third = calm.ttft_s.size // 3
    assert calm.ttft_s[-third:].mean() < 3 * calm.ttft_s[:third].mean() + 1
    assert late.ttft_s[-third:].mean() > 3 * late.ttft_s[:third].mean()


@given(load=some.floats(0.2, 0.9), seed=some.integers(0, 99))
def test_nobody_is_faster_than_alone(load, seed):
    rate = load * 2 * REAL.requests_per_s(64)
    arrivals = poisson_arrivals(150, rate, seed)
    for served in (colocated(REAL, arrivals, 4096, 64), disaggregated(REAL, arrivals, 64)):
        assert served.ttft_s.min() >= 0.12 - 1e-9
        assert served.tpot_s.min() >= 0.007 - 1e-9
        assert served.share((None, None, None), 64) == 1.0
        assert served.share((0.0, None, None), 64) == 0.0


def test_step_times_that_are_none_are_refused():
    for wrong in ((0.0, (1,), (0.1,)), (0.1, (2, 1), (0.1, 0.1)), (0.1, (1,), (0.1, 0.2))):
        with pytest.raises(InputError, match="step times"):
            StepTimes(*wrong)
    assert REAL.table()[4] == pytest.approx(np.interp(4, [1, 8], [0.007, 0.0085]))
