"""Start-up phases and memory, read from excerpts of real logs beside this file."""

from pathlib import Path

import pytest

from enginebook.engines.base import Phase
from enginebook.engines.logs import Mark, MemoryLine, memory_from_lines, phases_from_marks
from enginebook.engines.registry import adapter

LOGS = Path(__file__).parent / "logs"
GIB = 2**30


def read(name):
    lines = (LOGS / name).read_text(encoding="utf-8").splitlines()
    return [(float(at), text) for at, text in (line.split("\t", 1) for line in lines)]


def phases(engine, name):
    return [(p.name, p.start_s, p.end_s) for p in adapter(engine).phases(read(name))]


def memory(engine, name):
    parts = adapter(engine).memory([text for _, text in read(name)])
    return {p.component: p.bytes for p in parts}


def test_vllm_cpu_phases():
    assert phases("vllm", "vllm_cpu.log") == [
        ("imports", 0.0, 42.99),
        ("weights", 42.99, 43.96),
        ("cache", 43.96, 45.64),
        ("cache", 45.64, 48.53),
    ]


def test_vllm_cpu_memory():
    assert memory("vllm", "vllm_cpu.log") == {"weights": GIB // 2, "kv_cache": GIB}


def test_vllm_cuda_phases_have_compilation_and_graphs():
    found = phases("vllm", "vllm_cuda.log")
    assert [name for name, _, _ in found] == [
        "imports",
        "weights",
        "compile",
        "cache",
        "compile",
        "cache",
    ]
    assert found[2][2] - found[2][1] == pytest.approx(28)


def test_vllm_cuda_memory():
    assert memory("vllm", "vllm_cuda.log") == {
        "weights": round(15.0 * GIB),
        "kv_cache": round(112.28 * GIB),
        "graphs": round(0.98 * GIB),
        "activations": round(1.1 * GIB),
        "other": round(0.22 * GIB),
    }


def test_sglang_cpu_phases_have_no_compilation():
    assert phases("sglang", "sglang_cpu.log") == [
        ("imports", 0.0, 47.16),
        ("weights", 47.16, 48.02),
        ("cache", 48.02, 50.99),
    ]


def test_sglang_cpu_memory_counts_keys_and_values():
    assert memory("sglang", "sglang_cpu.log") == {
        "weights": round(0.49 * GIB),
        "kv_cache": 2 * round(0.35 * GIB),
    }


def test_sglang_cuda_graphs_are_added_up():
    found = memory("sglang", "sglang_cuda.log")
    assert found["graphs"] == round((1.47 + 0.20) * GIB)
    assert found["kv_cache"] == 2 * round(55.29 * GIB)
    name, start, end = phases("sglang", "sglang_cuda.log")[-1]
    assert (name, start, end) == ("compile", 27.0, 94.0)


def test_llamacpp():
    assert phases("llamacpp", "llamacpp.log") == [
        ("imports", 0.0, 0.15),
        ("weights", 0.15, 1.22),
        ("cache", 1.22, 2.44),
    ]
    assert memory("llamacpp", "llamacpp.log") == {
        "weights": round(513.13 * 2**20),
        "kv_cache": 360 * 2**20,
        "activations": round(16.64 * 2**20),
        "other": round(1.5 * 2**20),
    }


@pytest.mark.parametrize("engine", ["llamacpp", "vllm", "sglang"])
def test_a_log_without_marks_says_nothing(engine):
    log = [(0.1, "Traceback (most recent call last):"), (0.2, "OSError")]
    assert adapter(engine).phases(log) == []
    assert adapter(engine).memory([text for _, text in log]) == []


def test_a_missing_mark_gives_its_time_to_the_next_phase():
    log = [(1.0, "one"), (3.0, "three")]
    marks = (Mark("imports", "one"), Mark("weights", "two"), Mark("cache", "three"))
    assert phases_from_marks(log, marks) == [
        Phase("imports", 0.0, 1.0, "log"),
        Phase("cache", 1.0, 3.0, "log"),
    ]


def test_a_mark_before_its_predecessor_is_not_taken():
    log = [(1.0, "weights"), (2.0, "imports"), (3.0, "weights")]
    found = phases_from_marks(log, (Mark("imports", "imports"), Mark("weights", "weights")))
    assert [p.end_s for p in found] == [2.0, 3.0]


def test_the_first_pattern_of_a_component_wins():
    lines = (
        MemoryLine("weights", r"exact (\d+)", "B", "exact"),
        MemoryLine("weights", r"about (\d+)", "B", "about"),
    )
    assert [(p.bytes, p.source) for p in memory_from_lines(["about 9", "exact 7"], lines)] == [
        (7, "exact")
    ]
    assert memory_from_lines(["about 9"], lines)[0].source == "about"
