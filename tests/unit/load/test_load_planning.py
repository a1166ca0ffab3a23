"""Arrivals, lengths, traces, prompts, workloads: which requests are sent, and when."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_support import source

from enginebook.errors import InputError, LoadError
from enginebook.load.arrivals import open_loop_offsets
from enginebook.load.corpus import corpus_text, sharegpt_text
from enginebook.load.lengths import parse_lengths
from enginebook.load.plan import make_plan
from enginebook.load.prompts import exact_text
from enginebook.load.target import Target, body_of, head_template, parse_address, request_bytes
from enginebook.load.traces import read_trace
from enginebook.load.workload import Workload

S = 1_000_000_000


def open_loop(**changes):
    return Workload(**({"rate": 100.0, "requests": 20_000} | changes))


@pytest.mark.parametrize(
    ("arrival", "cv"), [("constant", 0.0), ("poisson", 1.0), ("gamma:2", 2.0), ("gamma:0.5", 0.5)]
)
def test_gaps_have_the_rate_and_the_variation_that_is_asked(arrival, cv):
    gaps = np.diff(open_loop_offsets(open_loop(arrival=arrival))) / S
    assert gaps.mean() == pytest.approx(0.01, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05, abs=1e-6)


def test_a_duration_holds_all_arrivals_inside_it():
    offsets = open_loop_offsets(open_loop(requests=None, duration_s=50.0))
    assert offsets[-1] < 50 * S
    assert len(offsets) == pytest.approx(5000, abs=5 * 71)


def test_a_ramp_ends_at_the_other_rate():
    offsets = (
        open_loop_offsets(
            open_loop(rate=10.0, ramp_to=30.0, requests=None, duration_s=100.0, arrival="constant")
        )
        / S
    )
    first, last = np.sum(offsets < 10), np.sum(offsets >= 90)
    assert len(offsets) == pytest.approx(2000, abs=3)
    assert first == pytest.approx(110, abs=2)
    assert last == pytest.approx(290, abs=3)


def test_the_same_seed_gives_the_same_plan_and_another_gives_another():
    assert (open_loop_offsets(open_loop()) == open_loop_offsets(open_loop())).all()
    assert (open_loop_offsets(open_loop()) != open_loop_offsets(open_loop(seed=2))).any()


@given(st.integers(1, 7), st.integers(0, 60), st.integers(1, 3))
def test_every_request_belongs_to_exactly_one_process(workers, requests, turns):
    load = Workload(concurrency=3, requests=requests or 1, turns=turns)
    plan = make_plan(load)
    shares = [list(plan.measured(w, workers)) for w in range(workers)]
    assert sorted(i for share in shares for i in share) == list(range(requests or 1))
    for share in shares:
        assert share == sorted(share)
    sessions = [{i // turns for i in share} for share in shares]
    assert sum(map(len, sessions)) == len(set().union(*sessions))


@pytest.mark.parametrize(
    "text", ["128", "uniform:10:20", "lognormal:200:0.5", "lognormal:200:0.5:50:400"]
)
def test_lengths_read_their_own_text(text):
    lengths = parse_lengths(text)
    assert parse_lengths(lengths.text) == lengths
    rng = np.random.default_rng(0)
    drawn = [lengths.draw(rng) for _ in range(500)]
    assert min(drawn) >= max(1, lengths.low)
    assert max(drawn) <= lengths.high


@pytest.mark.parametrize(
    "text", ["0", "-3", "x", "uniform:5", "uniform:9:3", "lognormal:1", "normal:3:4", "1.5", ""]
)
def test_lengths_that_are_none_are_refused(text):
    with pytest.raises(InputError):
        parse_lengths(text)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"concurrency": 1},
        {"concurrency": 1, "rate": 2.0, "requests": 1},
        {"concurrency": 0, "requests": 1},
        {"concurrency": 1, "requests": 1, "duration_s": 1.0},
        {"concurrency": 1, "requests": 1, "max_concurrency": 2},
        {"rate": float("nan"), "requests": 1},
        {"rate": 1.0, "requests": 1, "arrival": "uniform"},
        {"rate": 1.0, "requests": 1, "turns": 2},
        {"concurrency": 1, "requests": 1, "input_tokens": 8, "shared_prefix_tokens": 8},
        {"concurrency": 1, "requests": 1, "prompts": "poems"},
        {"concurrency": 1, "requests": 1, "prompts": "file"},
        {"concurrency": 1, "requests": 1, "warmup_requests": -1},
    ],
)
def test_impossible_workloads_are_refused_with_a_remedy(fields):
    with pytest.raises(InputError) as error:
        Workload(**fields)
    assert error.value.remedy


def test_a_workload_survives_the_way_to_a_process():
    load = Workload(rate=3.0, requests=5, input_tokens="uniform:3:9", arrival="gamma:3")
    assert Workload.from_dict(json.loads(json.dumps(load.to_dict()))) == load


# -- traces


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_azure_2023(tmp_path):
    path = write(
        tmp_path, "a.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n",
    )  # fmt: skip
    trace = read_trace(path)
    assert trace.offsets_s == pytest.approx([0, 0.052])
    assert trace.input_tokens.tolist() == [4808, 3180]
    assert trace.output_tokens.tolist() == [10, 8]


def test_azure_2024_has_another_form_of_time(tmp_path):
    path = write(
        tmp_path, "a.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,1,5\n",
    )  # fmt: skip
    assert read_trace(path).offsets_s == pytest.approx([0, 0.99007])


def test_mooncake_keeps_its_prefix_hashes(tmp_path):
    rows = [
        {"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [7, 8, 9]},
        {"timestamp": 1500, "input_length": 1500, "output_length": 6, "hash_ids": [7, 8, 11]},
    ]
    path = write(tmp_path, "m.jsonl", "\n".join(map(json.dumps, rows)))
    trace = read_trace(path)
    assert trace.offsets_s.tolist() == [0, 1.5]
    a, b = (
        source().blocks(k, n, 512)
        for k, n in zip(trace.block_keys, trace.input_tokens, strict=True)
    )
    assert (len(a), len(b)) == (1030, 1500)
    assert (a[:1024] == b[:1024]).all(), "equal hashes, equal tokens"
    assert a[1024] != b[1024]


def test_burstgpt_leaves_failed_requests_out(tmp_path):
    path = write(
        tmp_path, "b.csv",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,10,0,10,Conversation log\n50,GPT-4,3,4,7,API log\n",
    )  # fmt: skip
    trace = read_trace(path)
    assert trace.offsets_s.tolist() == [0, 45]
    assert trace.output_tokens.tolist() == [18, 4]


def test_our_own_form_in_any_order(tmp_path):
    rows = [
        {"at_s": 9.0, "input_tokens": 3, "output_tokens": 4},
        {"at_s": 8.5, "input_tokens": 0, "output_tokens": 5},
    ]
    trace = read_trace(write(tmp_path, "o.jsonl", "\n".join(map(json.dumps, rows))))
    assert trace.offsets_s.tolist() == [0, 0.5]
    assert trace.input_tokens.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("name", "text"),
    [("x.csv", "a,b\n1,2\n"), ("x.csv", ""), ("x.jsonl", "{"),
     ("x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,2\n"),
     ("x.jsonl", '{"at_s": 1, "input_tokens": -4, "output_tokens": 1}')],
)  # fmt: skip
def test_what_is_no_trace_is_refused(tmp_path, name, text):
    with pytest.raises(InputError):
        read_trace(write(tmp_path, name, text))


def test_a_trace_is_scaled_in_time_and_cut(tmp_path):
    rows = [{"at_s": t, "input_tokens": 3, "output_tokens": 4} for t in range(10)]
    path = write(tmp_path, "o.jsonl", "\n".join(map(json.dumps, rows)))
    plan = make_plan(Workload(trace=path, trace_speed=2.0, requests=4))
    assert [plan.planned(i).offset_ns for i in range(plan.count)] == [0, S // 2, S, 3 * S // 2]
    assert make_plan(Workload(trace=path, duration_s=2.5)).count == 3


# -- prompts


@given(st.integers(1, 400), st.integers(-300, 3000))
def test_prompts_have_exactly_the_length(length, index):
    assert len(source().ids(index, length)) == length


def test_no_two_prompts_of_a_run_begin_alike_and_warm_ups_are_others():
    s = source()
    openings = [int(s.ids(i, 16)[0]) for i in range(-100, 400)]
    assert len(set(openings)) == len(openings)


def test_prompts_beyond_the_vocabulary_differ_in_the_second_token():
    s = source()
    pairs = {tuple(s.ids(i, 4)[:2]) for i in range(3 * len(s.ordinary))}
    assert len(pairs) > 2.9 * len(s.ordinary)


def test_the_same_prompt_comes_again_for_the_same_index_and_seed():
    assert (source().ids(5, 50) == source().ids(5, 50)).all()
    assert (source(1).ids(5, 50) != source(2).ids(5, 50)).any()


def test_a_shared_prefix_is_shared_by_as_many_as_asked():
    s = replace(source(), shared_tokens=20, shared_share=0.3, shared_groups=2)
    heads = [tuple(s.ids(i, 40)[:20]) for i in range(400)]
    counts = sorted((heads.count(h) for h in set(heads)), reverse=True)
    assert sum(counts[:2]) / 400 == pytest.approx(0.3, abs=0.07)
    assert set(counts[2:]) == {1}
    own = [int(s.ids(i, 40)[20]) for i in range(400) if s.group_of(i) is not None]
    assert len(set(own)) == len(own), "behind the prefix, prompts differ at once"


class WordTokens:
    """Merges a pair of equal neighbours when it encodes, as byte pair encodings do."""

    source = "test"

    def encode(self, text):
        ids = []
        for word in text.split():
            if ids and ids[-1] == int(word):
                ids[-1] = -int(word)
            else:
                ids.append(int(word))
        return ids

    def decode(self, ids):
        return " ".join(str(abs(i)) for i in ids)


@given(st.integers(1, 60), st.integers(0, 1000))
def test_exact_text_has_the_length_although_tokens_merge(length, seed):
    ids = np.random.default_rng(seed).integers(1, 6, length)
    tokens = WordTokens()
    assert (
        len(tokens.encode(exact_text(tokens, np.append(ids, [7, 8, 9, 7, 8, 9]), length))) == length
    )


def test_text_that_cannot_be_made_is_refused():
    class Stubborn(WordTokens):
        def encode(self, text):
            return [1, 2, 3] if text else []

    with pytest.raises(LoadError):
        exact_text(Stubborn(), np.arange(10), 7)


@pytest.mark.parametrize("kind", ["text", "few-shot", "json"])
def test_the_corpus_is_long_varied_and_the_same_everywhere(kind):
    text = corpus_text(kind, None, 30_000, 0)
    assert len(text) >= 30_000
    assert text == corpus_text(kind, None, 30_000, 0)
    sentences = text.split(". ")
    assert len(set(sentences)) > 0.9 * len(sentences)


def test_sharegpt_files(tmp_path):
    good = write(
        tmp_path,
        "s.json",
        json.dumps([{"conversations": [{"value": "hi"}, {"from": "gpt", "value": "ho"}]}]),
    )
    assert sharegpt_text(good) == "hi\n\nho"
    with pytest.raises(InputError):
        sharegpt_text(write(tmp_path, "t.json", '{"a": 1}'))


# -- the request


def test_every_sampling_field_is_sent():
    fields = json.loads(body_of(Target("http://h", "m"), [1, 2], 7))
    assert fields["prompt"] == [1, 2]
    assert (fields["temperature"], fields["top_p"], fields["n"]) == (0, 1, 1)
    assert (fields["max_tokens"], fields["ignore_eos"], fields["stream"]) == (7, True, True)
    assert fields["stream_options"] == {"include_usage": True}


def test_an_engines_name_for_the_least_length_is_filled_and_none_removes_a_field():
    extra = {"min_tokens": 1, "frequency_penalty": None, "cache_prompt": False}
    fields = json.loads(body_of(Target("http://h", "m", extra_body=extra), "x", 9))
    assert fields["min_tokens"] == 9
    assert "frequency_penalty" not in fields
    assert fields["cache_prompt"] is False


def test_the_key_is_sent_and_never_shown():
    target = Target("https://h/v1", "m", api="chat", api_key="sesame")
    data = request_bytes(head_template(target), 3, b"{}")
    assert b"Authorization: Bearer sesame\r\n" in data
    assert data.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h:443\r\n")
    assert b"X-Request-Id: 3\r\nContent-Length: 2\r\n\r\n{}" in data
    assert "sesame" not in repr(target) + str(target.public())


@pytest.mark.parametrize(
    ("url", "prefix", "port"),
    [
        ("http://a:8000", "/v1", 8000),
        ("a:1", "/v1", 1),
        ("https://a/x/v1/", "/x/v1", 443),
        ("http://[::1]:9", "/v1", 9),
    ],
)
def test_addresses(url, prefix, port):
    address = parse_address(url)
    assert (address.prefix, address.port) == (prefix, port)


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:99999", ""])
def test_addresses_that_are_none(url):
    with pytest.raises(InputError):
        Target(url, "m")


def test_a_header_cannot_smuggle_another():
    with pytest.raises(InputError):
        head_template(Target("http://h", "m", headers={"X": "a\r\nY: b"}))
