"""The search for the highest rate that meets an objective, in a time that is given."""

from __future__ import annotations

import time

import numpy as np
import pytest

from enginebook.errors import InputError
from enginebook.load import Slo, Target, Workload, find_capacity, read_records, reference_server
from enginebook.load.arrivals import open_loop_offsets
from enginebook.load.prompts import PromptSource
from enginebook.load.saturation import LEAST_REQUESTS, Trial, probe_of, search

OPEN = Workload(
    rate=20.0, requests=10, input_tokens=8, output_tokens=4, arrival="constant", max_seconds=5.0
)


def passing_up_to(limit):
    return lambda rate: Trial(rate, 1.0, rate, stable=True, ok=rate <= limit)


def test_a_search_ends_when_its_bracket_is_narrow():
    found = search(passing_up_to(37), 1.0, None)
    assert found["ended_by"] == "tolerance"
    assert found["failed_at"] - found["rate"] <= 0.05 * found["failed_at"]


def test_a_given_upper_rate_is_tried_second():
    tried = [t["rate"] for t in search(passing_up_to(37), 4.0, 64.0)["trials"]]
    assert tried[:2] == [4.0, 64.0]
    assert tried[2] == 34.0


def test_a_rate_far_below_the_first_is_not_looked_for():
    found = search(passing_up_to(0), 8.0, None)
    assert found["rate"] is None
    assert found["ended_by"] == "out of reach"
    assert len(found["trials"]) == 7


def test_a_search_ends_when_its_time_is_over():
    left = iter([True, True, False])
    found = search(passing_up_to(1e9), 1.0, None, lambda: next(left))
    assert found["ended_by"] == "seconds"
    assert (found["rate"], found["failed_at"]) == (4.0, None)
    assert search(passing_up_to(1e9), 1.0, None)["ended_by"] == "probes"


def test_a_probe_fits_into_the_time_that_is_left():
    slow = probe_of(0, 0.5, left_s=100.0, max_seconds=100.0)
    assert slow.requests == LEAST_REQUESTS
    assert slow.max_seconds == 100.0
    fast = probe_of(3, 50.0, left_s=60.0, max_seconds=100.0)
    assert fast.requests == 500
    assert fast.max_seconds == 30.0
    assert probe_of(9, 50.0, left_s=7.0, max_seconds=100.0).max_seconds == 7.0


def test_probes_differ_in_words_and_in_nothing_else():
    one, two = (OPEN.but(rate=r, prompt_seed=p) for r, p in ((10.0, 1), (20.0, 2)))
    slow, fast = (open_loop_offsets(w.but(arrival="poisson")) for w in (one, two))
    assert np.allclose(slow, 2 * fast, atol=2)
    corpus = np.arange(3, 900)
    prompts = [PromptSource(corpus, corpus, w.words_seed).ids(0, 16) for w in (one, two)]
    assert (prompts[0] != prompts[1]).any()
    assert OPEN.words_seed == OPEN.seed


def test_it_finds_where_the_objective_breaks_and_leaves_the_records(tmp_path):
    # one place at a time and 5 + 3 ms an answer: 125 a second at the most
    load = OPEN.but(max_concurrency=1)
    seen = []
    with reference_server(ttft_ms=5.0, itl_ms=1.0) as server:
        found = find_capacity(
            Target(server.base_url, "reference"),
            load,
            Slo(ttft_ms=100.0, share=0.9),
            name="quick",
            directory=tmp_path,
            max_seconds=7.0,
            on_probe=seen.append,
        )
    assert found["slo"] == "quick"
    assert found["capacity_per_s"] >= 20
    kept = [p["rate"] for p in found["probes"] if p["ok"]]
    broken = [p["rate"] for p in found["probes"] if not p["ok"]]
    assert found["capacity_per_s"] == max(kept)
    assert found["failed_at_per_s"] == min(broken, default=None)
    assert found["probes"][0]["rate"] == 20.0
    assert found["probes"][0]["ok"] is True
    assert found["probes"][0]["slo_share"] >= 0.9
    assert len(found["probes"]) == len(seen)
    for probe in found["probes"]:
        assert read_records(tmp_path / probe["directory"]).requests.height == probe["requests"]


def test_an_overloaded_server_does_not_hold_it_up():
    with reference_server(ttft_ms=3000.0, itl_ms=1.0) as server:
        begun = time.monotonic()
        found = find_capacity(
            Target(server.base_url, "reference"),
            OPEN.but(max_concurrency=1),
            Slo(ttft_ms=10.0),
            name="never",
            max_seconds=4.0,
        )
        assert time.monotonic() - begun < 40.0
    assert found["capacity_per_s"] is None
    assert found["ended_by"] == "seconds"


def test_only_an_open_loop_has_a_rate_to_find():
    with pytest.raises(InputError, match="open loop"):
        find_capacity(
            Target("http://127.0.0.1:1", "m"),
            Workload(concurrency=1, requests=1),
            Slo(ttft_ms=1.0),
            name="x",
        )
