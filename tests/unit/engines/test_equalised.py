"""The equalised arm: engines on one kind of device differ in nothing that can be set."""

import sys
from pathlib import Path

import pytest

from enginebook.engines.recipes import load_recipe, recipe_names
from enginebook.engines.registry import adapter
from enginebook.lifecycle.environments import environment_dir

EQUALISED = [r for r in map(load_recipe, recipe_names()) if r.arm == "equalised"]


def kv_tokens(recipe):
    """Return the size of the KV pool; llama.cpp's is slots times context."""
    o = adapter(recipe.engine).options(recipe.options)
    return getattr(o, "kv_tokens", None) or o.max_num_seqs * o.max_model_len


def arithmetic(recipe):
    if recipe.engine == "llamacpp":  # the weights' are those of the file, which is float32
        return {"f32": "float32", "f16": "float16"}[recipe.options["kv_cache_dtype"]]
    return recipe.options["dtype"]


def knobs(recipe):
    o = adapter(recipe.engine).options(recipe.options)
    names = ("max_model_len", "max_num_seqs", "prefill_budget", "prefix_cache")
    known = {name: getattr(o, name) for name in names}
    assert None not in known.values(), f"{recipe.name} leaves a knob to the engine"
    threads = getattr(o, "threads", None)
    return {
        **known,
        "kv_tokens": kv_tokens(recipe),
        "dtype": arithmetic(recipe),
        "threads": threads,
    }


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_knob_is_the_same(device):
    there = [r for r in EQUALISED if device in r.labels]
    assert len({r.engine for r in there}) >= 3
    first = knobs(there[0])
    for recipe in there[1:]:
        assert knobs(recipe) == first, recipe.name


@pytest.mark.parametrize("recipe", EQUALISED, ids=lambda r: r.name)
def test_only_options_differ_from_the_defaults_arm(recipe):
    base = load_recipe(recipe.name.removesuffix("-equalised"))
    assert base.arm == "defaults"
    same = ("engine", "title", "version", "labels", "environment", "env", "model_format")
    assert [getattr(recipe, k) for k in same] == [getattr(base, k) for k in same]
    assert recipe.lock_path == base.lock_path


def test_the_pool_is_a_whole_number_of_blocks():
    for recipe in EQUALISED:
        block = recipe.options.get("block_size", 1)
        assert kv_tokens(recipe) % block == 0


def test_one_longest_request_for_each_sequence_fits_on_cpus():
    for recipe in EQUALISED:
        if "cpu" in recipe.labels:
            o = recipe.options
            assert kv_tokens(recipe) >= o["max_model_len"] * o["max_num_seqs"]


@pytest.mark.parametrize("recipe", EQUALISED, ids=lambda r: r.name)
def test_both_arms_share_one_environment(recipe):
    base = load_recipe(recipe.name.removesuffix("-equalised"))
    if recipe.lock_path is None:
        pytest.skip("it is not made from a lock")
    python = Path(sys.executable)
    assert environment_dir(recipe, python) == environment_dir(base, python)
