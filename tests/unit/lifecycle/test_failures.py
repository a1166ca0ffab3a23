"""Known failures are told in words. The texts are those that engines print."""

from __future__ import annotations

import pytest

from enginebook.lifecycle.failures import KNOWN, ending, recognise

LINES = [
    ("ValueError: No available memory for the cache blocks. Try increasing", "KV cache"),
    ("ValueError: Loaded weights leave no GPU memory for the KV cache under", "KV cache"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB.", "GPU's memory"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "machine's memory"),
    ("OSError: [Errno 98] Address already in use", "holds the port"),
    ("OSError: [Errno 28] No space left on device", "disk is full"),
    ("RuntimeError: CUDA error: no kernel image is available for execution", "architecture"),
    ("RuntimeError: sgl_kernel.x is not there on this CPU, but was called", "lacks a kernel"),
    ("The NVIDIA driver on your system is too old", "driver is too old"),
    ("CUDA driver version is insufficient for CUDA runtime version", "driver is too old"),
    ("RuntimeError: Failed to infer device type", "finds no GPU"),
    ("RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'", "dtype"),
    ("GatedRepoError: 401 Client Error. Cannot access gated repo for url", "gated"),
    ("requests.exceptions.ConnectionError: outgoing traffic has been disabled", "local cache"),
    ("OSError: Can't load tokenizer for '/models/x'", "no tokenizer"),
    ("vllm: error: unrecognized arguments: --max-seqs", "does not know an option"),
    ("ImportError: libnvrtc.so.12: cannot open shared object file", "shared library"),
    ("ModuleNotFoundError: No module named 'triton'", "Python package"),
    ("ValueError: User-specified max_model_len (9000) is greater than the derived", "longer than"),
]


@pytest.mark.parametrize(("line", "meaning"), LINES)
def test_known_failures_are_recognised(line, meaning):
    known = recognise(["INFO starting", line, "Traceback (most recent call last):"])
    assert known is not None
    assert meaning in known.meaning
    assert known.remedy


def test_every_known_failure_has_an_example():
    seen = {recognise([line]) for line, _ in LINES}
    assert seen == set(KNOWN)


def test_an_ordinary_log_is_not_explained_away():
    log = [
        "INFO Model loading took 0.51 GiB memory and 1.2 seconds",
        "INFO CPU KV cache size: 21,760 tokens, Maximum concurrency for 2,048 tokens: 10.6x",
        "INFO Application startup complete.",
        "WARNING max_num_batched_tokens is smaller than the model allows",
    ]
    assert recognise(log) is None


def test_ends_in_words():
    assert ending(None) == "its end was not seen"
    assert ending(3) == "exit status 3"
    assert "SIGTERM" in ending(-15)
    assert "out-of-memory" in ending(-9)
    assert "instruction" in ending(-4)
