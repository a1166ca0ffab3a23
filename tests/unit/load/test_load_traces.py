"""Synthetic traces, and traces made to fit: divided, cut, counted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from load_support import source

from enginebook.errors import InputError
from enginebook.load import Target, Workload, reference_server, run_load
from enginebook.load.plan import make_plan
from enginebook.load.synthetic import SHAPES, arrivals, builtin_trace
from enginebook.metrics.gate import gate

CONVERSATION = "builtin:synthetic-conversation"
PREFIX = "builtin:synthetic-prefix"


def test_conversation_lengths_have_the_published_means_and_medians():
    trace = builtin_trace(CONVERSATION, 1, 40_000, None)
    assert trace.input_tokens.mean() == pytest.approx(1155, rel=0.02)
    assert np.median(trace.input_tokens) == pytest.approx(1020, rel=0.02)
    assert trace.output_tokens.mean() == pytest.approx(211, rel=0.03)
    assert np.median(trace.output_tokens) == pytest.approx(129, rel=0.03)


def test_arrivals_have_the_rate_and_swing_with_the_day():
    shape = SHAPES["synthetic-conversation"]
    times = arrivals(shape, 60_000, np.random.default_rng(2))
    assert len(times) / times[-1] == pytest.approx(shape.rate, rel=0.03)
    assert (np.diff(times) >= 0).all()
    phase = times % shape.period_s / shape.period_s
    counts, _ = np.histogram(phase, bins=4, range=(0, 1))
    mean = len(times) / 4
    swing = shape.swing * 2 / np.pi
    assert counts[0] / mean == pytest.approx(1 + swing, rel=0.05)
    assert counts[3] / mean == pytest.approx(1 - swing, rel=0.05)


def test_a_seed_gives_the_same_trace_and_another_gives_another():
    one, again, other = (builtin_trace(PREFIX, seed, 50, None) for seed in (1, 1, 2))
    assert (one.offsets_s == again.offsets_s).all()
    assert one.block_keys == again.block_keys
    assert (one.input_tokens != other.input_tokens).any()


def prefix_ceiling(trace):
    """Return the share of blocks that an endless cache would have seen as a prefix before."""
    seen, hits, blocks = set(), 0, 0
    for keys in trace.block_keys:
        blocks += len(keys)
        for key in keys:
            if key not in seen:
                break
            hits += 1
        seen |= set(keys)
    return hits / blocks


def test_prefixes_are_shared_as_much_as_in_real_conversations():
    trace = builtin_trace(PREFIX, 1, 4000, None)
    assert 0.30 < prefix_ceiling(trace) < 0.45
    for keys, length in zip(trace.block_keys, trace.input_tokens, strict=True):
        assert len(keys) == -(-length // trace.block_tokens)
    assert len({keys[0] for keys in trace.block_keys}) <= SHAPES["synthetic-prefix"].groups


def load(trace=CONVERSATION, **changes):
    return Workload(**{"trace": trace, "requests": 200} | changes)


def test_lengths_are_divided_then_cut_and_the_cuts_are_counted():
    whole = make_plan(load())
    plan = make_plan(load(length_divisor=16, max_input_tokens=64, max_output_tokens=8))
    asked = [plan.planned(i) for i in range(200)]
    before = [whole.planned(i) for i in range(200)]
    for a, b in zip(asked, before, strict=True):
        assert a.input_tokens == min(64, max(1, round(b.input_tokens / 16)))
        assert a.output_tokens == min(8, max(1, round(b.output_tokens / 16)))
        assert a.offset_ns == b.offset_ns
    cut = plan.trace_cut
    assert cut["requests"] == 200
    assert cut["input_tokens"] == sum(round(b.input_tokens / 16) > 64 for b in before)
    assert 0 < cut["output_tokens"] < 200
    assert whole.trace_cut == {"requests": 200, "input_tokens": 0, "output_tokens": 0}


def test_blocks_shrink_with_the_lengths_so_that_sharing_stays():
    plan = make_plan(load(PREFIX, requests=120, length_divisor=16))
    prompts = source()
    first: dict[int, list[int]] = {}
    repeated = 0
    for i in range(120):
        planned = plan.planned(i)
        assert planned.block_tokens == 32
        ids = prompts.blocks(planned.block_keys, planned.input_tokens, planned.block_tokens)
        assert len(ids) == planned.input_tokens
        key, opening = planned.block_keys[0], ids[:32].tolist()
        if len(opening) == 32 and key in first:
            assert first[key] == opening
            repeated += 1
        first.setdefault(key, opening)
    assert repeated > 50


def test_a_trace_of_a_file_is_cut_in_the_same_way(tmp_path):
    rows = [{"at_s": i / 10, "input_tokens": 100 * i, "output_tokens": 10} for i in range(1, 11)]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows))
    plan = make_plan(load(path, requests=5, max_input_tokens=300))
    assert plan.count == 5
    assert [plan.planned(i).input_tokens for i in range(5)] == [100, 200, 300, 300, 300]
    assert plan.trace_cut == {"requests": 5, "input_tokens": 2, "output_tokens": 0}
    timed = make_plan(load(str(path), requests=None, duration_s=0.2, trace_speed=2.0))
    assert timed.count == 4, "0.4 s of the trace in 0.2 s"


def test_speed_and_duration_of_a_built_in_trace():
    plan = make_plan(load(requests=None, duration_s=20.0, trace_speed=2.0))
    assert plan.planned(plan.count - 1).offset_ns < 20e9
    slow = builtin_trace(CONVERSATION, 1, None, 40.0)
    assert plan.count == int(np.sum(slow.offsets_s < 40.0))


def test_what_a_trace_cannot_be():
    with pytest.raises(InputError, match="no built-in trace"):
        make_plan(load("builtin:moon"))
    with pytest.raises(InputError, match="no end"):
        make_plan(load(requests=None))
    with pytest.raises(InputError, match="no trace file"):
        load("nowhere.csv")
    with pytest.raises(InputError, match="length_divisor"):
        load(length_divisor=0)


def test_a_built_in_trace_survives_json():
    workload = load(max_input_tokens=9)
    assert Workload.from_dict(workload.to_dict()) == workload


def test_a_run_records_what_was_cut_and_passes_the_gate():
    workload = load(
        requests=20, trace_speed=20.0, length_divisor=16, max_input_tokens=64, max_output_tokens=8
    )
    with reference_server(ttft_ms=2.0, itl_ms=1.0) as server:
        records = run_load(Target(server.base_url, "reference"), workload)
    assert records.instrument["trace_cut"]["requests"] == 20
    assert records.instrument["trace_cut"] == make_plan(workload).trace_cut
    checks = gate(records, workload).checks
    assert checks["output_length"]["ok"] is True
    assert checks["input_length"]["ok"] is True
    assert set(records.requests["status"]) == {"completed"}
