"""The definitions, on records made by hand; and how nine tools read one stream."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from enginebook.load.records import CHUNK_SCHEMA, REQUEST_SCHEMA
from enginebook.metrics import cell_metrics, summarise
from enginebook.metrics.peers import EXAMPLE, nine_answers
from enginebook.metrics.requests import chunk_gaps, request_metrics

MS = 1_000_000


def request_row(index=0, **changes):
    row = {
        "request": index,
        "phase": "measured",
        "status": "completed",
        "scheduled_ns": 0,
        "sent_ns": 0,
        "end_ns": 655 * MS,
        "streamed": True,
        "output_asked": 21,
        "input_asked": 10,
        "prompt_tokens": 10,
        "completion_tokens": 21,
    }
    return row | changes


def frames(requests, chunks):
    return (
        pl.DataFrame(requests, schema=REQUEST_SCHEMA),
        pl.DataFrame(chunks, schema=CHUNK_SCHEMA, orient="row"),
    )


KINDS = {"role": "empty", "done": "done", "usage": "usage", "finish": "finish"}


def example_records():
    seen = [e for e in EXAMPLE if e.kind != "eof"]
    chunks = [
        {
            "request": 0,
            "seq": i,
            "recv_ns": int(e.at_ms * MS),
            "kind": KINDS.get(e.kind, e.kind),
            "tokens": e.tokens or None,
        }
        for i, e in enumerate(seen)
    ]
    row = request_row(
        first_token_ns=200 * MS, first_output_ns=300 * MS, last_token_ns=600 * MS, chunks=5
    )
    return frames([row], chunks)


def test_the_example_stream_by_our_definitions():
    s = summarise(example_records())
    assert s["ttft_ms"]["p50"] == 200
    assert s["ttfo_ms"]["p50"] == 300
    assert s["tpot_ms"]["p50"] == 25.0
    assert s["tpot_n1_ms"]["p50"] == 20.0
    assert s["icl_ms"]["p50"] == 100
    assert s["itl_ms"]["p50"] == 25
    assert s["itl_ms"]["n"] == 16
    assert s["e2e_ms"]["p50"] == 600
    assert s["icl_ms"]["tokens_per_chunk"] == 4.0
    assert s["duration_s"] == 0.655


def test_nine_answers_to_one_stream():
    table = {r["tool"]: r for r in nine_answers().iter_rows(named=True)}
    expected = {
        "vLLM bench serve": (10, 30.5, 100, 620),
        "SGLang bench_serving": (200, 22.5, 100, 650),
        "GuideLLM": (200, 600 / 21, 20, 650),
        "AIPerf": (200, 20, 100, 600),
        "inference-perf": (200, 20, 0, 655),
        "MLCommons endpoints": (200, 450 / 16, 100, 650),
        "LLMPerf": (300, 37.5, None, 655),
        "Veeksha": (200, 100, 100, 600),
        "Enginebook": (200, 25, 25, 600),
    }
    assert list(table) == list(expected)
    for tool, values in expected.items():
        row = table[tool]
        found = (row["ttft_ms"], row["tpot_ms"], row["itl_p50_ms"], row["e2e_ms"])
        assert found == pytest.approx(values), tool


def test_our_row_of_the_table_is_what_the_product_computes():
    ours = nine_answers().filter(tool="Enginebook").row(0, named=True)
    s = summarise(example_records())
    assert ours["ttft_ms"] == s["ttft_ms"]["p50"]
    assert ours["tpot_ms"] == s["tpot_ms"]["p50"]
    assert ours["itl_p50_ms"] == s["itl_ms"]["p50"]
    assert ours["e2e_ms"] == s["e2e_ms"]["p50"]


def plain(index, sent_ms, stamps_ms, scheduled_ms=None, **changes):
    """Return a request of one token a chunk and its chunks."""
    scheduled_ms = sent_ms if scheduled_ms is None else scheduled_ms
    row = request_row(
        index,
        scheduled_ns=scheduled_ms * MS,
        sent_ns=sent_ms * MS,
        first_token_ns=stamps_ms[0] * MS,
        first_output_ns=stamps_ms[0] * MS,
        last_token_ns=stamps_ms[-1] * MS,
        end_ns=stamps_ms[-1] * MS + 1,
        completion_tokens=len(stamps_ms),
        output_asked=len(stamps_ms),
        chunks=len(stamps_ms),
        **changes,
    )
    chunks = [
        {"request": index, "seq": i, "recv_ns": t * MS, "kind": "content", "tokens": 1}
        for i, t in enumerate(stamps_ms)
    ]
    return row, chunks


def records_of(*parts):
    return frames([p[0] for p in parts], [c for p in parts for c in p[1]])


def test_response_times_count_from_the_scheduled_time():
    s = summarise(records_of(plain(0, sent_ms=500, stamps_ms=[600, 700], scheduled_ms=100)))
    assert s["ttft_ms"]["p50"] == 100
    assert s["response_ttft_ms"]["p50"] == 500
    assert s["response_e2e_ms"]["p50"] == 600
    assert s["instrument"]["schedule_lag_ms"]["max"] == 400


def test_gaps_do_not_cross_requests():
    gaps = chunk_gaps(*reversed(records_of(plain(0, 0, [10, 20]), plain(1, 0, [1000, 1007]))))
    assert gaps.gap_ms.tolist() == [10, 7]
    assert gaps.request.tolist() == [0, 1]


def test_warm_up_and_failed_requests_are_in_no_latency():
    s = summarise(
        records_of(
            plain(-1, 0, [900, 1900], phase="warmup"),
            plain(0, 0, [10, 20]),
            plain(1, 0, [500, 900], status="failed", error_kind="truncated", error="cut"),
        )
    )
    assert s["requests"] == {"completed": 1, "failed": 1, "cancelled": 0}
    assert s["ttft_ms"]["max"] == 10
    assert s["icl_ms"]["max"] == 10
    assert s["errors"] == [{"kind": "truncated", "count": 1, "example": "cut"}]


def test_a_token_without_text_before_the_first_chunk_is_part_of_it():
    row, chunks = plain(0, 0, [100, 200, 300])
    chunks[0] |= {"kind": "empty"}
    row |= {"first_token_ns": 200 * MS, "chunks": 2}
    frame = request_metrics(*frames([row], chunks))
    assert frame["first_tokens"].to_list() == [2]
    assert frame["tpot_ms"].to_list() == [100.0]


def test_nothing_completed_is_null_and_never_zero():
    row = request_row(0, status="failed", error_kind="connect", error="refused", sent_ns=None,
                      completion_tokens=None, prompt_tokens=None)  # fmt: skip
    s = summarise(frames([row], []))
    assert s["requests"] == {"completed": 0, "failed": 1, "cancelled": 0}
    for name in ("ttft_ms", "ttfo_ms", "tpot_ms", "tpot_n1_ms", "itl_ms", "icl_ms", "e2e_ms"):
        assert [s[name][p] for p in ("mean", "p50", "p90", "p95", "p99", "max")] == [None] * 6
    for name in ("duration_s", "requests_per_s", "output_tokens_per_s", "input_tokens_per_s"):
        assert s[name] is None
    assert s["output_tokens"]["source"] is None


def test_the_summary_has_the_keys_of_the_command():
    s = summarise(example_records())
    wanted = {
        "requests", "duration_s", "requests_per_s", "output_tokens_per_s", "input_tokens_per_s",
        "ttft_ms", "ttfo_ms", "tpot_ms", "tpot_n1_ms", "itl_ms", "icl_ms", "e2e_ms",
        "output_tokens", "errors", "instrument",
    }  # fmt: skip
    assert wanted <= set(s)
    assert {
        "client_cpu_s",
        "cpu_us_per_token",
        "loop_lag_ms",
        "schedule_lag_ms",
        "processes",
    } <= set(s["instrument"])


def test_throughput_is_tokens_over_the_span_from_first_sending_to_last_byte():
    s = summarise(records_of(plain(0, 1000, [1100, 1500]), plain(1, 2000, [2500, 3000])))
    assert s["duration_s"] == pytest.approx(2.0, abs=1e-6)
    assert s["output_tokens_per_s"] == pytest.approx(4 / 2.0, abs=1e-5)
    assert s["input_tokens_per_s"] == pytest.approx(20 / 2.0, abs=1e-4)


def test_cell_metrics_are_flat_and_counted():
    found = cell_metrics(summarise(example_records()))
    assert found["ttft_p50_ms"] == (200.0, 1)
    assert found["ttft_p99_ms"] == (None, 1)
    assert found["itl_p50_ms"] == (25.0, 16)
    assert found["requests_per_s"][1] == 1
    assert found["tokens_per_chunk"][0] == 4.0


def test_token_counts_that_differ_are_told():
    row, chunks = plain(0, 0, list(range(10, 30)), client_tokens=26)
    s = summarise(frames([row], chunks))
    assert s["output_tokens"]["mismatches"] == 1


def test_chunks_of_unknown_tokens_give_icl_and_no_itl():
    row, chunks = plain(0, 0, [10, 20, 40])
    s = summarise(frames([row], [c | {"tokens": None} for c in chunks]))
    assert s["icl_ms"]["mean"] == 15
    assert s["itl_ms"]["mean"] is None
    assert s["tpot_ms"]["p50"] is None
    assert s["tpot_n1_ms"]["p50"] == 15


def test_many_events_at_once_stay_cheap_in_types():
    n = 50_000
    chunks = pl.DataFrame(
        {
            "request": np.repeat(np.arange(100, dtype=np.int32), 500),
            "seq": np.tile(np.arange(500, dtype=np.int32), 100),
            "recv_ns": np.tile(np.arange(500, dtype=np.int64) * 5 * MS, 100),
            "kind": pl.Series(["content"] * n, dtype=CHUNK_SCHEMA["kind"]),
            "tokens": np.ones(n, dtype=np.int32),
        }
    )
    rows = [
        request_row(i, first_token_ns=0, last_token_ns=499 * 5 * MS, completion_tokens=500)
        for i in range(100)
    ]
    s = summarise((pl.DataFrame(rows, schema=REQUEST_SCHEMA), chunks))
    assert s["itl_ms"]["p99"] == 5.0
    assert s["tpot_ms"]["p95"] == 5.0
