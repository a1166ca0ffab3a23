from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from enginebook.load.records import CHUNK_SCHEMA, REQUEST_SCHEMA
from enginebook.metrics.sampling import energy_j, summarise_samples
from enginebook.metrics.window import grows, in_flight, little_error, mser5, steady_state

S = 1_000_000_000
MS = 1_000_000


def closed_loop(streams=4, seconds=40.0, e2e=0.5, token_ms=50):
    """Return records of a perfect closed loop: one answer after another on each stream."""
    rows, chunks, index = [], [], 0
    for stream in range(streams):
        start = stream * 0.1
        while start + e2e <= seconds:
            sent, end = int(start * S), int((start + e2e) * S)
            stamps = list(range(sent + token_ms * MS, end + 1, token_ms * MS))
            rows.append(
                {
                    "request": index,
                    "phase": "measured",
                    "status": "completed",
                    "scheduled_ns": sent,
                    "sent_ns": sent,
                    "end_ns": end,
                    "streamed": True,
                    "first_token_ns": stamps[0],
                    "last_token_ns": stamps[-1],
                    "completion_tokens": len(stamps),
                }
            )
            chunks += [
                {"request": index, "seq": i, "recv_ns": t, "kind": "content", "tokens": 1}
                for i, t in enumerate(stamps)
            ]
            index += 1
            start += e2e
    return (
        pl.DataFrame(rows, schema=REQUEST_SCHEMA),
        pl.DataFrame(chunks, schema=CHUNK_SCHEMA),
    )


def test_a_perfect_closed_loop_is_steady():
    requests, chunks = closed_loop()
    state = steady_state(requests, chunks, concurrency=4)
    assert state["ok"], state["reasons"]
    assert state["output_tokens_per_s"] == pytest.approx(4 / 0.05, rel=0.02)
    assert state["in_flight_mean"] == pytest.approx(4, rel=0.03)
    assert state["little_error"] < 0.05


def test_a_short_run_is_told_to_be_short():
    state = steady_state(*closed_loop(seconds=5.0), concurrency=4)
    assert not state["ok"]
    assert "30 s are needed" in state["reasons"][0]
    assert state["output_tokens_per_s"] is not None, "a label, not a dropped point"


def test_a_load_that_never_was_full_has_no_window():
    state = steady_state(*closed_loop(), concurrency=40)
    assert state["seconds"] is None
    assert "95 %" in state["reasons"][0]


def test_no_requests_have_no_window():
    empty = pl.DataFrame(schema=REQUEST_SCHEMA), pl.DataFrame(schema=CHUNK_SCHEMA)
    assert steady_state(*empty, concurrency=1)["ok"] is False


def test_mser5_drops_a_ramp_and_nothing_else():
    rng = np.random.default_rng(1)
    level = 100 + rng.normal(size=400)
    ramp = np.linspace(0, 100, 60)
    assert mser5(level) <= 40
    assert 45 <= mser5(np.concatenate([ramp, level])) <= 90
    assert mser5(np.arange(10.0)) == 0


def test_in_flight_counts_and_averages():
    requests, _ = closed_loop(streams=2, seconds=10)
    flying = in_flight(requests)
    assert flying.count.max() == 2
    assert flying.count[-1] == 0
    assert flying.mean(int(1 * S), int(8 * S)) == pytest.approx(2, rel=0.01)


def test_growth_is_found_in_an_overload_and_not_in_a_level_load():
    sent = np.arange(0, 20, 0.1)
    level = pl.DataFrame(
        {
            "sent_ns": (sent * S).astype(int),
            "end_ns": ((sent + 1 + 0.1 * np.sin(sent * 7)) * S).astype(int),
        }
    )
    worse = pl.DataFrame(
        {"sent_ns": (sent * S).astype(int), "end_ns": ((1.5 * sent + 1) * S).astype(int)}
    )
    assert grows(in_flight(worse), 0, 20 * S)
    assert not grows(in_flight(level), 2 * S, 20 * S)


def test_little_error_is_large_when_requests_vanish():
    requests, _ = closed_loop()
    flying = in_flight(requests)
    kept = requests.filter(pl.col("request") % 2 == 0)
    assert little_error(requests, flying, 5 * S, 35 * S) < 0.05
    assert little_error(kept, flying, 5 * S, 35 * S) > 0.4


def test_energy_is_the_trapezoid_inside_the_window():
    t = np.arange(0, 11) * S
    power = np.arange(0, 11) * 10.0
    assert energy_j(t, power) == pytest.approx(500)
    assert energy_j(t, power, (int(2.5 * S), int(3.5 * S))) == pytest.approx(30)
    assert energy_j(t, power, (int(5 * S), int(12 * S))) is None
    assert energy_j(t[:1], power[:1]) is None


def samples(*rows):
    return pl.DataFrame(rows, schema=["t_ns", "source", "name", "value"], orient="row")


def test_others_are_what_neither_the_engine_nor_we_used():
    s = summarise_samples(
        samples(
            (0, "cpu", "busy_s", 100.0),
            (10, "cpu", "busy_s", 110.0),
            (0, "cpu", "total_s", 500.0),
            (10, "cpu", "total_s", 520.0),
            (0, "engine", "cpu_s", 0.0),
            (10, "engine", "cpu_s", 6.0),
            (0, "client", "cpu_s", 1.0),
            (10, "client", "cpu_s", 2.0),
            (0, "server", "prefix_hits", 5.0),
            (10, "server", "prefix_hits", 5.0),
            (0, "server", "prefix_queries", 0.0),
            (10, "server", "prefix_queries", 64.0),
            (0, "server", "running", 3.0),
            (10, "server", "running", 8.0),
        )
    )
    assert s["busy_cpu_share"] == 0.5
    assert s["others_cpu_share"] == pytest.approx(0.15)
    assert s["server"]["prefix_hits"] == 0
    assert s["server"]["prefix_hit_share"] == 0
    assert s["server"]["running_max"] == 8
    assert s["gpus"] == []


def test_gpu_energy_comes_from_the_counter_and_throttling_is_named():
    s = summarise_samples(
        samples(
            (0, "gpu0", "energy_j", 1000.0),
            (2 * S, "gpu0", "energy_j", 2400.0),
            (0, "gpu0", "power_w", 690.0),
            (2 * S, "gpu0", "power_w", 710.0),
            (0, "gpu0", "throttle_mask", 1.0),
            (2 * S, "gpu0", "throttle_mask", 4.0),
        )
    )
    gpu = s["gpus"][0]
    assert (gpu["energy_j"], gpu["energy_source"]) == (1400.0, "counter")
    assert gpu["held_back_by"] == ["software power cap"]
    assert s["others_cpu_share"] is None
