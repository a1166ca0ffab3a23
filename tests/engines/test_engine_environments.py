"""Installed environments: complete, and their argument parsers take what our adapters write."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import RECIPES

from enginebook.engines.base import LaunchPlan, ModelFiles
from enginebook.engines.recipes import load_recipe
from enginebook.engines.registry import adapter
from enginebook.lifecycle.environments import install

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

LIST = """
import importlib.metadata as m, json
print(json.dumps({d.name: [d.version, d.requires or []] for d in m.distributions()}))
"""
# Each takes command lines as JSON lists and prints what the engine's own parser makes of them.
VLLM = """
import json, runpy, sys
launcher, *lines = sys.argv[1:]
runpy.run_path(launcher, run_name="launcher")  # as vLLM's spawned children read it
from vllm.config import SpeculativeConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
exact = {name for action in parser._actions for name in action.option_strings}
for line in lines:
    args = parser.parse_args(json.loads(line))
    assert not [w for w in json.loads(line) if w.startswith("--") and w not in exact]
    wrong = set(args.speculative_config or ()) - set(SpeculativeConfig.__dataclass_fields__)
    assert not wrong, wrong
    print("PARSED" + json.dumps({k: str(v) for k, v in vars(args).items()}))
"""
SGLANG = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(allow_abbrev=False)
ServerArgs.add_cli_args(parser)
for line in sys.argv[1:]:
    args = parser.parse_args(json.loads(line))
    print("PARSED" + json.dumps({k: str(v) for k, v in vars(args).items()}))
"""
ALL_OPTIONS = {
    "vllm": {
        "dtype": "bfloat16",
        "kv_tokens": 4096,
        "block_size": 128,
        "max_num_seqs": 4,
        "prefill_budget": 512,
        "prefix_cache": False,
        "graphs": False,
        "tensor_parallel": 2,
        "quantization": "fp8",
        "kv_cache_dtype": "auto",
        "memory_fraction": 0.5,
        "kv_space": 2,
        "seed": 3,
        "speculative": {"method": "ngram", "tokens": 3},
        "devices": [1, 3],
    },
    "sglang": {
        "device": "cpu",
        "dtype": "float32",
        "kv_tokens": 4096,
        "page_size": 1,
        "max_num_seqs": 4,
        "prefill_budget": 512,
        "prefix_cache": False,
        "graphs": False,
        "tensor_parallel": 2,
        "quantization": "fp8",
        "kv_cache_dtype": "auto",
        "memory_fraction": 0.5,
        "seed": 3,
        "skip_warmup": True,
    },
}


def run(python, code, argv, env):
    done = subprocess.run(
        [str(python), "-c", code, *argv],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def parsed(engine, *given, **model):
    """Return what the engine's parser makes of the command line for each of the options."""
    recipe = load_recipe(f"{engine}-cpu")
    python = install(recipe).python
    files = ModelFiles("smol", Path("/m/hf"), "hf", Path("/m/hf"), **model)
    plans = [LaunchPlan(python, files, "127.0.0.1", 4711, o, Path("/tmp")) for o in given]
    commands = [adapter(engine).command(plan) for plan in plans]
    lines = [json.dumps(c.argv[3:]) for c in commands]  # after Python, program and verb
    if engine == "vllm":
        assert commands[0].argv[2] == "serve"
        out = run(python, VLLM, [commands[0].argv[1], *lines], commands[0].env)
    else:
        assert commands[0].argv[1:3] == ("-m", "sglang.launch_server")
        out = run(python, SGLANG, lines, commands[0].env)
    return [json.loads(x[6:]) for x in out.splitlines() if x.startswith("PARSED")]


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_that_is_required_is_missing_but_what_overrides_name(name):
    recipe = load_recipe(name)
    found = json.loads(run(install(recipe).python, LIST, [], {}))
    there = {canonicalize_name(n): version for n, (version, _) in found.items()}
    overrides = recipe.lock_path.with_suffix(".overrides.txt")
    lines = overrides.read_text().splitlines() if overrides.is_file() else []
    left_out = {canonicalize_name(Requirement(x).name) for x in lines if x and x[0] != "#"}
    missing = []
    for owner, (_, requires) in found.items():
        for text in requires:
            wanted = Requirement(text)
            key = canonicalize_name(wanted.name)
            applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            if not applies or key in left_out or key == "torch":
                continue
            if key not in there or not wanted.specifier.contains(there[key], prereleases=True):
                missing.append(f"{owner} wants {text}, there is {there.get(key)}")
    assert missing == []


def test_vllm_takes_every_option():
    (seen,) = parsed("vllm", ALL_OPTIONS["vllm"], dummy=True, revision="abc")
    assert seen["num_gpu_blocks_override"] == "32"
    assert seen["enable_prefix_caching"] == "False"
    assert seen["enforce_eager"] == "True"
    assert seen["kv_cache_memory_bytes"] == str(2 * 2**30)
    assert seen["load_format"] == "dummy"
    assert seen["revision"] == "abc"
    assert seen["max_num_batched_tokens"] == "512"
    assert seen["served_model_name"] == "['smol']"
    assert seen["enable_prompt_tokens_details"] == "True"
    assert "'num_speculative_tokens': 3" in seen["speculative_config"]


def test_sglang_takes_every_option():
    (seen,) = parsed("sglang", ALL_OPTIONS["sglang"], dummy=True, revision="abc")
    assert seen["max_total_tokens"] == "4096"
    assert seen["disable_radix_cache"] == "True"
    assert seen["attention_backend"] == "torch_native"
    assert seen["chunked_prefill_size"] == "512"
    assert seen["load_format"] == "dummy"
    assert seen["tp_size"] == "2"
    assert seen["enable_metrics"] == "True"
    assert seen["skip_server_warmup"] == "True"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_recipe_options_and_speculative_methods_are_taken(engine):
    """Names are checked by the engines' own parsers; no weights are read."""
    methods = ["draft", "eagle", "eagle3", "mtp"]
    heads = [{"speculative": {"method": m, "tokens": 2, "model": "org/h"}} for m in methods]
    ngram = {"speculative": {"method": "ngram", "tokens": 3}}
    usual, lookup, *seen = parsed(engine, load_recipe(f"{engine}-cpu").options, ngram, *heads)
    assert usual["dtype"] == "float32"
    if engine == "sglang":
        assert lookup["speculative_algorithm"] == "NGRAM"
        assert lookup["speculative_num_draft_tokens"] == "4"
    assert len(seen) == len(methods)
    for one in seen:
        if engine == "vllm":
            assert "'model': 'org/h'" in one["speculative_config"]
        else:
            assert one["speculative_draft_model_path"] == "org/h"
            assert one["speculative_num_steps"] == "2"
            assert one["speculative_eagle_topk"] == "1"
