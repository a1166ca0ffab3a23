"""Ending early: the interval within a run, and runs that stop sending when it is tight enough."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from load_support import DONE, END, STREAM_HEAD, sse, text, usage
from tokenizers import Tokenizer, models, pre_tokenizers

from enginebook.errors import InputError
from enginebook.load import Precision, Target, Workload, reference_server, run_load
from enginebook.load.clock import NS_PER_S
from enginebook.load.control import Control, Progress
from enginebook.load.precision import Watch, correlated, half_width, known_of
from enginebook.metrics import summarise
from enginebook.metrics.gate import gate

LOOSE = {"half_width": 0.5, "min_requests": 8, "min_seconds": 1.2}
TIGHT = {"half_width": 0.0001, "min_requests": 8, "min_seconds": 0.5}


# -- the interval


def test_the_half_width_is_student_s_over_equal_batches():
    parts = np.array([9.0, 11, 10, 12, 8, 10, 11, 9, 10, 10])
    expected = 2.2622 * parts.std(ddof=1) / np.sqrt(10) / 10
    assert half_width(parts, np.ones(10)) == pytest.approx(expected, rel=1e-3)
    assert half_width(parts[:9], np.ones(9)) is None
    assert half_width(np.zeros(10), np.ones(10)) is None


def test_the_interval_of_a_ratio_covers_as_often_as_it_says():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        sizes = rng.integers(5, 40, size=15).astype(float)
        parts = np.array([rng.gamma(4, 25.0, int(n)).sum() for n in sizes])
        width = half_width(parts, sizes)
        ratio = parts.sum() / sizes.sum()
        hits += abs(ratio - 100.0) <= width * ratio
    assert 0.92 <= hits / 400 <= 0.98


def test_batches_grow_until_neighbours_do_not_resemble_each_other():
    rng = np.random.default_rng(3)
    assert not correlated(rng.normal(size=200))
    assert correlated(np.repeat(rng.normal(size=40), 5))
    assert not correlated(np.ones(10))


def history(rates, noise=0.0, step_s=0.1):
    rng = np.random.default_rng(1)
    n = len(rates)
    begun = np.full(n, 4)
    waits = begun * 20e6 * (1 + noise * rng.normal(size=n))
    columns = (np.full(n, step_s * NS_PER_S), np.asarray(rates) * step_s, begun, waits)
    return np.vstack([np.zeros(4), np.stack([np.cumsum(c) for c in columns], axis=1)])


def test_a_short_history_says_nothing():
    assert known_of(history([100.0] * 9)).widest is None


def test_a_noisier_run_is_known_less_well():
    rng = np.random.default_rng(5)
    widths = [
        known_of(history(1000 * (1 + s * rng.normal(size=300)), noise=s)).widest
        for s in (0.01, 0.1, 0.5)
    ]
    assert widths[0] < widths[1] < widths[2]
    assert widths[0] < 0.005


def test_slow_waves_are_not_taken_for_many_independent_batches():
    rng = np.random.default_rng(11)
    shocks = rng.normal(size=400)
    wave = np.zeros(400)
    for i in range(1, 400):
        wave[i] = 0.95 * wave[i - 1] + shocks[i]
    shuffled = rng.permutation(wave)
    slow = known_of(history(1000 + 50 * wave)).throughput
    fast = known_of(history(1000 + 50 * shuffled)).throughput
    assert slow > 1.8 * fast, "the same values in another order: what differs is the correlation"


def test_the_ramp_is_left_out():
    rates = np.concatenate([np.linspace(0, 1000, 40), np.full(260, 1000.0)])
    assert known_of(history(rates)).throughput < 0.001


# -- the watch


def test_the_watch_waits_for_its_minima_and_ignores_the_end():
    watch = Watch(Precision(half_width=0.5, min_requests=20, min_seconds=3.0), total=60)

    def total(i, done):
        return Progress(done, 0, 100 * i, i, 20_000_000 * i, 4)

    says = [watch.add(int(i * 0.1 * NS_PER_S), total(i, i)) for i in range(1, 80)]
    first = says.index(True) + 1
    assert first == 30, "three seconds, at 0.1 s a look"
    assert not any(says[55:]), "with the last request sent there is nothing left to decide"
    report = watch.report()
    assert report["met"] is True
    assert report["achieved_half_width"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "fields",
    [{"half_width": 0}, {"half_width": 1.0}, {"half_width": 0.1, "min_requests": 0}, {"width": 1}],
)
def test_impossible_rules_are_refused(fields):
    with pytest.raises(InputError):
        Workload(concurrency=1, requests=1, precision=fields)


def test_a_rule_survives_json():
    load = Workload(concurrency=1, requests=9, precision=LOOSE)
    assert load.stop_rule == Precision(0.5, 8, 1.2)
    assert Workload.from_dict(load.to_dict()) == load


# -- runs


@pytest.fixture(scope="module")
def server():
    with reference_server(ttft_ms=5.0, itl_ms=1.0) as running:
        yield running


MANY = Workload(
    concurrency=4, requests=5000, input_tokens=8, output_tokens=6, warmup_requests=4,
    precision=LOOSE,
)  # fmt: skip


def test_a_run_that_is_known_well_enough_stops_sending_and_misses_nothing(server, tmp_path):
    records = run_load(Target(server.base_url, "reference"), MANY, tmp_path / "raw")
    measured = records.requests.filter(phase="measured")
    assert 50 < len(measured) < 5000
    assert measured["request"].to_list() == list(range(len(measured))), "a prefix of the sequence"
    assert set(measured["status"]) == {"completed"}
    about = records.instrument
    assert about["stopped_by"] == "precision"
    assert 1.2 <= about["stopped_after_s"] < 30
    assert about["precision"]["achieved_half_width"] <= 0.5
    assert about["precision"]["batches"] >= 10
    verdict = gate(records, MANY)
    assert verdict.checks["failures"]["ok"] is True
    assert verdict.checks["precision"]["ok"] is True
    assert summarise(records)["instrument"]["stopped_by"] == "precision"


def test_two_processes_end_together(server):
    records = run_load(Target(server.base_url, "reference"), MANY.but(processes=2))
    measured = records.requests.filter(phase="measured")
    assert set(measured["status"]) == {"completed"}
    assert measured["worker"].n_unique() == 2
    assert measured["request"].n_unique() == len(measured) < 5000


def test_a_rule_that_is_not_met_ends_with_the_requests_and_says_so(server):
    load = MANY.but(requests=40, precision=TIGHT)
    records = run_load(Target(server.base_url, "reference"), load)
    assert len(records.requests.filter(phase="measured")) == 40
    assert records.instrument["stopped_by"] == "requests"
    check = gate(records, load).checks["precision"]
    assert check["ok"] is False
    assert check["blocks"] is False
    assert "ended by requests" in check["detail"]


def test_a_rule_that_is_not_met_ends_with_the_seconds_and_finishes_what_it_began(server):
    load = MANY.but(precision=TIGHT, max_seconds=1.0, output_tokens=150)
    records = run_load(Target(server.base_url, "reference"), load)
    measured = records.requests.filter(phase="measured")
    assert set(measured["status"]) == {"completed"}
    assert records.instrument["stopped_by"] == "seconds"
    assert measured["end_ns"].max() - records.instrument["start_ns"] > 1.0 * NS_PER_S


def test_an_open_loop_counts_only_what_had_arrived(server):
    load = MANY.but(concurrency=None, rate=200.0, precision=LOOSE)
    records = run_load(Target(server.base_url, "reference"), load)
    measured = records.requests.filter(phase="measured")
    assert set(measured["status"]) == {"completed"}
    arrived_s = records.instrument["stopped_after_s"]
    assert len(measured) == pytest.approx(200 * arrived_s, rel=0.25)


def test_without_a_rule_the_time_limit_still_names_what_is_missing(server):
    load = MANY.but(precision=None, requests=3000, max_seconds=0.5)
    records = run_load(Target(server.base_url, "reference"), load)
    assert len(records.requests.filter(phase="measured")) == 3000
    assert "cancelled" in set(records.requests["status"])
    assert records.instrument["stopped_by"] == "seconds"
    assert records.instrument["precision"] is None


ANSWER = [
    STREAM_HEAD, sse(text("a")), 0.1, sse(text("b")), sse(usage(2)), DONE, END,
]  # fmt: skip


def finish_at(folder, server, requests):
    """Ask the run to finish as soon as the server has seen so many requests."""

    def press():
        while len(server.requests) < requests:
            time.sleep(0.01)
        Control(next(folder.glob("run*/control-0"))).finish()

    threading.Thread(target=press, daemon=True).start()


def test_requests_that_wait_for_a_place_are_sent_after_the_finish(serve_script, drive, tmp_path):
    server = serve_script(ANSWER)
    load = Workload(
        rate=40.0, arrival="constant", requests=400, max_concurrency=1, input_tokens=8,
        output_tokens=2, precision=LOOSE, warmup_requests=0,
    )  # fmt: skip
    finish_at(tmp_path, server, 3)
    records = drive(Target(server.url, "m"), load)
    assert set(records.requests["status"]) == {"completed"}
    assert 6 <= len(records.requests) < 400, "all that had arrived, although one at a time"
    assert records.requests["request"].to_list() == list(range(len(records.requests)))


def test_conversations_under_way_are_held_to_their_end(serve_script, drive, tmp_path):
    server = serve_script(ANSWER)
    load = Workload(
        concurrency=2, requests=400, turns=4, input_tokens=4, output_tokens=2, precision=LOOSE,
        prompt_as="text",
    )  # fmt: skip
    finish_at(tmp_path, server, 3)
    records = drive(Target(server.url, "m", tokenizer=words(tmp_path)), load)
    by_session = records.requests.group_by("session").len()
    assert set(by_session["len"]) == {4}
    assert 2 <= len(by_session) < 100
    assert set(records.requests["status"]) == {"completed"}


def words(folder):
    vocabulary = {"?": 0} | {f"w{i}": i for i in range(1, 700)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path
