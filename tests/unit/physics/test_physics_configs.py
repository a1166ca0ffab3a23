"""Fields of a model's config, one at a time: each changes the shape as it should."""

import pytest

from enginebook.physics.shapes import ModelShape

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 100, "head_dim": 8,
}  # fmt: skip


def shape(**changes):
    config = {k: v for k, v in (CONFIG | changes).items() if v is not None}
    return ModelShape.from_hf(config)


@pytest.mark.parametrize("name", ["num_key_value_heads", "num_kv_heads"])
def test_key_value_heads_are_read_under_both_names(name):
    assert shape(**{"num_key_value_heads": None, name: 4}).kv_heads == 4


@pytest.mark.parametrize("name", ["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"])
def test_the_inner_size_is_read_under_all_names(name):
    assert (
        shape(**{"intermediate_size": None, name: 96}).params == shape(intermediate_size=96).params
    )
    assert shape(intermediate_size=96).params < shape().params


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, 12),
        ({"sliding_window_pattern": 6}, 10),
        ({"layer_types": ["sliding_attention", "full_attention"] * 6}, 6),
    ],
)
def test_how_many_layers_have_the_window(changes, layers):
    assert shape(sliding_window=128, **changes).windowed_layers == layers


def test_a_window_that_is_switched_off_is_none():
    assert shape(sliding_window=128, use_sliding_window=False) == shape()
    assert (
        shape(sliding_window=128, use_sliding_window=True) == shape(sliding_window=128) != shape()
    )
