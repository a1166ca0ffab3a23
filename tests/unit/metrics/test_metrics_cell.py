"""A cell's flat metrics: objectives, turns, cached tokens, energy, valid answers."""

from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest

from enginebook.load.records import CHUNK_SCHEMA, REQUEST_SCHEMA
from enginebook.load.samples import SAMPLE_SCHEMA
from enginebook.metrics import cell_metrics, summarise
from enginebook.metrics.power import energy_figures, working_gpus
from enginebook.metrics.validity import checker, validity

MS = 1_000_000
S = 1_000_000_000


def request(index=0, sent_ms=0, first_ms=20, last_ms=120, **changes):
    row = {
        "request": index,
        "phase": "measured",
        "status": "completed",
        "scheduled_ns": sent_ms * MS,
        "sent_ns": sent_ms * MS,
        "first_token_ns": (sent_ms + first_ms) * MS,
        "last_token_ns": (sent_ms + last_ms) * MS,
        "end_ns": (sent_ms + last_ms) * MS,
        "streamed": True,
        "turn": 0,
        "prompt_tokens": 100,
        "completion_tokens": 11,
    }
    return row | changes


def records(rows, chunks=(), workload=None):
    return SimpleNamespace(
        requests=pl.DataFrame(rows, schema=REQUEST_SCHEMA),
        chunks=pl.DataFrame(list(chunks), schema=CHUNK_SCHEMA, orient="row"),
        instrument={"workload": workload} if workload else {},
    )


def metrics(cell_records, cell=None, samples=None, **more):
    return cell_metrics(summarise(cell_records), cell, samples, records=cell_records, **more)


def test_without_records_only_the_summary_speaks():
    found = cell_metrics(summarise(records([request()])))
    assert found["ttft_p50_ms"] == (20.0, 1)
    assert "in_flight_max" not in found


def test_each_objective_has_its_share_and_its_goodput():
    rows = [
        request(0, first_ms=50),
        request(1, first_ms=150),
        request(2, first_ms=30, status="failed"),
        request(3, sent_ms=880, scheduled_ns=700 * MS, first_ms=20),  # waited 180 ms to be sent
    ]
    slo = [
        {"name": "chat", "ttft_ms": 100, "tpot_ms": None, "e2e_ms": None, "share": 0.9},
        {"name": "lax", "ttft_ms": None, "tpot_ms": 50, "e2e_ms": 400},
    ]
    found = metrics(records(rows), {"slo": slo, "concurrency": 4})
    assert found["slo_share.chat"] == (0.25, 4)
    assert found["goodput_per_s.chat"] == (pytest.approx(1 / 1.0), 4)
    assert found["slo_share.lax"] == (0.75, 4)


def test_what_a_search_found_is_named_after_its_objective():
    search = {"slo": "chat", "capacity_per_s": 3.5, "probes": [{}, {}, {}]}
    assert metrics(records([request()]), search=search)["capacity_per_s.chat"] == (3.5, 3)
    search["capacity_per_s"] = None
    assert metrics(records([request()]), search=search)["capacity_per_s.chat"] == (None, 3)


def test_turns_and_whole_sessions():
    rows = [
        request(0, session=0, turn=0, first_ms=10),
        request(1, sent_ms=200, session=0, turn=1, first_ms=40),
        request(2, session=1, turn=0, first_ms=30),
        request(3, sent_ms=880, session=1, turn=1, first_ms=60, status="failed"),
    ]
    found = metrics(records(rows))
    assert found["ttft_turn_first_p50_ms"] == (20.0, 2)
    assert found["ttft_turn_last_p50_ms"] == (40.0, 1)
    assert found["sessions_per_s"] == (pytest.approx(1.0), 1)
    assert "sessions_per_s" not in metrics(records([request()]))


def test_a_server_that_leaves_zeros_out_had_no_hit_there():
    rows = [
        request(0, cached_tokens=50),
        request(1, cached_tokens=0),
        request(2),
        request(3, cached_tokens=100, status="failed"),
    ]
    assert metrics(records(rows))["cached_share"] == (pytest.approx(1 / 6), 2)
    assert metrics(records([request()]))["cached_share"] == (None, 0)


def steady_records(seconds=40, streams=2):
    """Two streams that send back to back, a token each 100 ms, eleven tokens an answer."""
    rows, chunks = [], []
    for k in range(seconds):
        for stream in range(streams):
            index = k * streams + stream
            rows.append(request(index, sent_ms=1000 * k, first_ms=0, last_ms=1000))
            chunks += [
                (index, i, (1000 * k + 100 * i) * MS, "content", 1, None, None, "x")
                for i in range(11)
            ]
    return records(rows, chunks)


def samples(rows):
    return pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row")


def test_energy_is_the_counter_s_difference_over_the_steady_window():
    rows = [(t * S, "gpu0", "energy_j", 300.0 * t) for t in range(-1, 43)]
    rows += [(t * S, "gpu1", "energy_j", 50.0 * t) for t in range(-1, 43)]
    rows += [(t * S, "gpu0", "utilisation_percent", 90.0) for t in range(-1, 43)]
    rows += [(t * S, "gpu1", "utilisation_percent", 0.0) for t in range(-1, 43)]
    found = metrics(steady_records(), {"concurrency": 2}, samples(rows))
    power, _ = found["power_w"]
    assert power == pytest.approx(300.0), "the idle GPU is not ours"
    energy, tokens = found["energy_j_per_output_token"]
    assert energy == pytest.approx(300.0 / 22, rel=0.02)
    assert tokens == pytest.approx(22 * 40, rel=0.06)
    assert found["in_flight_max"][0] == 2
    assert found["window_share"][0] == pytest.approx(1.0, abs=0.05)


def test_power_samples_stand_in_for_a_counter_that_is_not_there():
    steady = {"begin_ns": 0, "end_ns": 10 * S, "seconds": 10.0, "output_tokens_per_s": 5.0}
    rows = [(t * S, "gpu0", "power_w", 200.0) for t in range(-1, 12)]
    found = energy_figures(samples(rows), steady)
    assert found["power_w"] == pytest.approx(200.0)
    assert found["j_per_output_token"] == pytest.approx(40.0)
    short = energy_figures(samples(rows[:5]), steady)
    assert short["power_w"] is None, "samples that end before the window do not tell"


def test_a_host_without_gpus_has_no_energy_and_no_zero():
    rows = [(t * S, "cpu", "busy_s", float(t)) for t in range(43)]
    found = metrics(steady_records(), {"concurrency": 2}, samples(rows))
    assert found["power_w"] == (None, 0)
    assert found["energy_j_per_output_token"][0] is None
    assert energy_figures(samples(rows), {"begin_ns": None, "end_ns": None})["tokens"] == 0


def test_gpus_that_hold_the_engine_s_memory_are_the_ones():
    rows = [
        (S, "gpu0", "engine_memory_bytes", 1e9),
        (S, "gpu1", "utilisation_percent", 50.0),
        (S, "gpu0", "utilisation_percent", 0.0),
    ]
    assert working_gpus(samples(rows), (0, 2 * S)) == ["gpu0"]
    assert working_gpus(samples(rows[1:]), (0, 2 * S)) == ["gpu1"]
    assert working_gpus(samples(rows[2:]), (0, 2 * S)) == ["gpu0"]


# -- valid answers


def json_records(*texts, workload):
    rows = [request(i, completion_tokens=1) for i in range(len(texts))]
    chunks = [(i, 0, MS, "reasoning", 1, None, None, "thinking {") for i in range(len(texts))]
    chunks += [(i, 1, 2 * MS, "content", 1, None, None, t) for i, t in enumerate(texts)]
    return records(rows, sorted(chunks), workload)


def test_validity_is_that_of_the_schema_of_each_request():
    each = {"answer_format": "json_schema_each", "schema_name": "enum200", "seed": 1}
    mine = '{"colour_10": "pale red", "certain_10": true}'
    found = validity(json_records(mine, mine, workload=each), {})
    assert (found["sent"], found["completed"], found["valid"]) == (2, 2, 1)
    assert found["share"] == 0.5
    assert found["time_per_valid_ms"] == pytest.approx(240.0)


def test_reasoning_is_not_the_answer_and_any_object_will_do_without_a_schema():
    free = {"answer_format": "text", "prompts": "json"}
    found = validity(json_records("{}", '["a"]', "Sure: {}", workload=free), {})
    assert found["valid"] == 1
    assert validity(json_records("x", workload={"answer_format": "text"}), {}) is None


def test_none_valid_costs_no_finite_time():
    found = metrics(json_records("no", workload={"answer_format": "json_object"}))
    assert found["valid_json_share"] == (0.0, 1)
    assert found["time_per_valid_answer_ms"] == (None, 0)


def test_deep_answers_are_checked_to_their_end():
    def nested(depth, last):
        return '{"whole":' + '{"part":"a","inside":' * depth + last + "}" * depth + "}"

    load = {"answer_format": "json_schema", "schema_name": "recursive"}
    texts = [nested(300, "null"), nested(300, "7")]
    assert validity(json_records(*texts, workload=load), {})["valid"] == 1


@pytest.mark.parametrize("text", ["", "{", "nul", '{"a":1} {"b":2}', "[1]", '"text"'])
def test_what_is_no_json_object_is_not_valid(text):
    assert not checker({"answer_format": "json_object"})(0, text)
