"""The scheduler model of the simulated engine."""

import random
import sys

import pytest

from enginebook.engines import simulated

sys.path.insert(0, str(simulated.LAUNCHER.parent))
from simulated_scheduler import Costs, Limits, Scheduler, Sequence

FREE = Costs(0, 0, 0, 0)


def prompt(length, start=0):
    return tuple(range(start, start + length))


def run(scheduler, limit=10_000):
    """Step until nothing is left; return (seconds, sequences with a new token) of each step."""
    steps = []
    while scheduler.waiting or scheduler.running:
        steps.append(scheduler.step())
        assert len(steps) < limit, "it does not come to an end"
    return steps


def test_one_request_costs_its_prompt_once_and_then_a_step_a_token():
    s = Scheduler(Costs(1000, 10, 100, 0))
    s.add(Sequence(prompt(50), 3))
    assert [round(seconds * 1e6) for seconds, _ in run(s)] == [1600, 1100, 1100]
    assert s.counters.prompt_tokens == 50
    assert s.counters.generation_tokens == 3


def test_reading_the_kv_costs_by_its_length():
    s = Scheduler(Costs(0, 0, 0, 1000))
    s.add(Sequence(prompt(500), 2))
    assert [round(seconds * 1e6) for seconds, _ in run(s)] == [500, 501]


def test_long_prompts_are_computed_in_chunks():
    s = Scheduler(FREE, Limits(prefill_budget=100))
    s.add(Sequence(prompt(250), 1))
    assert [len(grown) for _, grown in run(s)] == [0, 0, 1]


def test_decoding_goes_on_while_another_prompt_is_computed():
    s = Scheduler(FREE, Limits(prefill_budget=10))
    first = Sequence(prompt(10), 5)
    s.add(first)
    s.step()
    s.add(Sequence(prompt(30, 1000), 1))
    assert [first in grown for _, grown in (s.step() for _ in range(3))] == [True, True, True]


def test_no_more_run_than_allowed():
    s = Scheduler(FREE, Limits(max_num_seqs=2))
    for i in range(5):
        s.add(Sequence(prompt(4, 100 * i), 2))
    s.step()
    assert (len(s.running), len(s.waiting)) == (2, 3)
    run(s)
    assert s.counters.generation_tokens == 10


def test_prefixes_are_reused_in_whole_blocks():
    s = Scheduler(FREE, Limits(block_size=16))
    first, second, third = (Sequence(prompt(50), 1) for _ in range(3))
    other = Sequence(prompt(50, 7), 1)
    for sequence in (first, second, other, third):
        s.add(sequence)
        run(s)
    assert [x.cached for x in (first, second, other, third)] == [0, 48, 0, 48]
    assert s.counters.cached_tokens == 96


def test_the_last_token_of_a_prompt_is_always_computed():
    s = Scheduler(FREE, Limits(block_size=16))
    for expected in (0, 32):
        sequence = Sequence(prompt(48), 1)
        s.add(sequence)
        run(s)
        assert sequence.cached == expected


def test_no_reuse_when_it_is_off():
    s = Scheduler(FREE, Limits(prefix_cache=False))
    for _ in range(2):
        sequence = Sequence(prompt(64), 1)
        s.add(sequence)
        run(s)
        assert sequence.cached == 0


def test_a_full_pool_sends_the_youngest_back_and_it_still_ends():
    s = Scheduler(FREE, Limits(kv_tokens=100, prefix_cache=False))
    both = [Sequence(prompt(40, 100 * i), 40) for i in range(2)]
    for sequence in both:
        s.add(sequence)
    run(s)
    assert s.counters.preemptions >= 1
    assert [x.produced for x in both] == [40, 40]
    assert s.counters.generation_tokens == 80


def test_what_never_fits_is_refused():
    s = Scheduler(FREE, Limits(kv_tokens=100))
    with pytest.raises(ValueError, match="longer than the KV pool"):
        s.add(Sequence(prompt(90), 20))


@pytest.mark.parametrize("seed", range(25))
def test_any_load_ends_with_every_token_made_and_the_pool_kept(seed):
    draw = random.Random(seed)
    limits = Limits(
        kv_tokens=draw.choice([64, 200, 1000]),
        max_num_seqs=draw.choice([1, 3, 16]),
        prefill_budget=draw.choice([1, 7, 64]),
        block_size=draw.choice([1, 4, 16]),
        prefix_cache=draw.random() < 0.7,
    )
    s = Scheduler(Costs(), limits)
    wanted = []
    for _ in range(20):
        length, output = draw.randint(1, 40), draw.randint(1, 20)
        wanted.append(Sequence(prompt(length, draw.choice([0, 0, 500])), output))
        s.add(wanted[-1])
    given = dict.fromkeys(wanted, 0)
    while s.waiting or s.running:
        seconds, grown = s.step()
        assert seconds > 0
        assert s.used <= limits.kv_tokens
        assert len(s.running) <= limits.max_num_seqs
        for sequence in grown:
            given[sequence] += 1
        assert s.counters.steps < 20_000
    assert [given[x] for x in wanted] == [x.output_tokens for x in wanted]
    assert s.used == 0


def test_a_client_that_goes_away_frees_its_place():
    s = Scheduler(FREE)
    running, waiting = Sequence(prompt(10), 50), Sequence(prompt(10, 99), 50)
    s.add(running)
    s.step()
    s.add(waiting)
    for sequence in (running, waiting, running):
        s.remove(sequence)
    assert (s.used, len(s.waiting), len(s.running)) == (0, 0, 0)
