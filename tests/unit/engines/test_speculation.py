"""Speculative decoding and the choice of GPUs: one option each, and every engine's words for it."""

import json
from pathlib import Path

import pytest

from enginebook.engines.base import LaunchPlan, ModelFiles
from enginebook.engines.registry import adapter
from enginebook.errors import InputError

NGRAM = {"method": "ngram", "tokens": 3, "lookup": 2}
EAGLE3 = {"method": "eagle3", "tokens": 5, "model": "org/head"}
DRAFT = {"method": "draft", "tokens": 2, "model": "/m/small"}
MTP = {"method": "mtp", "tokens": 1}


def command(engine, **options):
    form = adapter(engine).model_format
    model = ModelFiles("smol", Path("/m/x"), form, Path("/m"))
    plan = LaunchPlan(Path("/venv/bin/python"), model, "127.0.0.1", 4711, options, Path("/x"))
    return adapter(engine).command(plan)


def value(argv, flag):
    assert argv.count(flag) == 1, argv
    return argv[argv.index(flag) + 1]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "tensorrt-llm", "lmdeploy"])
def test_nothing_is_said_when_nothing_is_asked(engine):
    made = command(engine)
    assert not [word for word in made.argv if "specul" in word]
    assert "CUDA_VISIBLE_DEVICES" not in made.env


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (NGRAM, {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2}),
        (EAGLE3, {"method": "eagle3", "num_speculative_tokens": 5, "model": "org/head"}),
        (DRAFT, {"method": "draft_model", "num_speculative_tokens": 2, "model": "/m/small"}),
        (MTP, {"method": "mtp", "num_speculative_tokens": 1}),
    ],
)
def test_vllm(asked, given):
    argv = command("vllm", speculative=asked).argv
    assert json.loads(value(argv, "--speculative-config")) == given


@pytest.mark.parametrize(
    ("asked", "algorithm"),
    [(NGRAM, "NGRAM"), (EAGLE3, "EAGLE3"), (DRAFT, "STANDALONE"), (MTP, "NEXTN")],
)
def test_sglang_counts_the_sure_token_too(asked, algorithm):
    argv = command("sglang", speculative=asked).argv
    assert value(argv, "--speculative-algorithm") == algorithm
    assert value(argv, "--speculative-num-draft-tokens") == str(asked["tokens"] + 1)
    if asked is NGRAM:
        assert "--speculative-num-steps" not in argv
        assert value(argv, "--speculative-ngram-max-bfs-breadth") == "1"
    else:
        assert value(argv, "--speculative-num-steps") == str(asked["tokens"])
        assert value(argv, "--speculative-eagle-topk") == "1"
    if asked.get("model"):
        assert value(argv, "--speculative-draft-model-path") == asked["model"]
    else:
        assert "--speculative-draft-model-path" not in argv


def test_llamacpp():
    argv = command("llamacpp", speculative={"method": "ngram"}).argv
    asked = json.loads(value(argv, "--speculative"))
    assert asked == {"method": "ngram", "tokens": 4, "lookup": 4, "model": None}


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (NGRAM, {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 2}),
        (MTP, {"decoding_type": "MTP", "num_nextn_predict_layers": 1}),
        (
            EAGLE3,
            {"decoding_type": "Eagle", "max_draft_len": 5, "speculative_model_dir": "org/head"},
        ),
    ],
)
def test_tensorrt_llm(asked, given):
    argv = command("tensorrt-llm", speculative=asked).argv
    (config,) = [w.split("=", 1)[1] for w in argv if w.startswith("config.yaml:=")]
    assert json.loads(config)["speculative_config"] == given


def test_lmdeploy():
    argv = command("lmdeploy", speculative=EAGLE3, backend="pytorch").argv
    assert value(argv, "--speculative-algorithm") == "eagle3"
    assert value(argv, "--speculative-draft-model") == "org/head"
    assert value(argv, "--speculative-num-draft-tokens") == "5"


@pytest.mark.parametrize(
    ("engine", "asked", "problem"),
    [
        ("vllm", {"method": "magic"}, "options|speculative.method"),
        ("vllm", {"method": "draft"}, "method draft needs a model"),
        ("vllm", {"method": "ngram", "model": "x"}, "ngram has no model"),
        ("sglang", {"method": "mtp", "lookup": 3}, "lookup belongs to method ngram"),
        ("sglang", {"method": "ngram", "tokens": 0}, "greater than or equal to 1"),
        ("sglang", {"method": "ngram", "device": "cpu"}, "SGLang's own CPU kernels"),
        ("llamacpp", {"method": "eagle", "model": "x"}, "eagle is not offered by llama.cpp"),
        ("tensorrt-llm", DRAFT, "draft is not offered"),
        ("lmdeploy", EAGLE3, "speculative needs backend: pytorch"),
        ("mlx", NGRAM, "no counterpart"),
        ("simulated", NGRAM, "no counterpart"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(engine, asked, problem):
    method = {k: v for k, v in asked.items() if k != "device"}
    more = {k: v for k, v in asked.items() if k == "device"}
    with pytest.raises(InputError, match=problem):
        adapter(engine).check_options({"speculative": method, **more})


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "lmdeploy"])
def test_gpus_are_chosen_by_index_or_name(engine):
    env = command(engine, devices=[2, "GPU-77"], tensor_parallel=2).env
    assert env["CUDA_VISIBLE_DEVICES"] == "2,GPU-77"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"devices": [0], "tensor_parallel": 2}, "needs as many devices; there are 1"),
        ({"devices": []}, "at least 1"),
        ({"devices": [0], "device": "cpu"}, "devices are GPUs"),
        ({"devices": [-1]}, "devices"),
    ],
)
def test_gpus_that_cannot_be_are_refused(options, problem):
    with pytest.raises(InputError, match=problem):
        adapter("vllm").check_options(options)
