"""Reading a Hugging Face ``config.json``: the names differ between families, the sizes do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from enginebook.errors import InputError

Config = Mapping[str, Any]

_ALIASES: Final = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size",),
}
_PLAIN_MLP: Final = frozenset(
    (
        "gpt2",
        "gptj",
        "gpt_neox",
        "gpt_bigcode",
        "opt",
        "bloom",
        "falcon",
        "phi",
        "starcoder2",
        "mpt",
    )
)
_NOT_ATTENTION: Final = frozenset(
    ("mamba", "mamba2", "rwkv", "rwkv5", "jamba", "bamba", "zamba", "zamba2", "falcon_mamba",
     "falcon_h1", "nemotron_h", "qwen3_next", "lfm2", "recurrent_gemma", "granitemoehybrid",
     "minimax", "plamo2")
)  # fmt: skip
_QKV_BIAS: Final = frozenset({"qwen2", "qwen2_moe"})
_QK_NORM: Final = frozenset({"qwen3", "qwen3_moe"})
_FOUR_NORMS: Final = frozenset({"gemma2", "gemma3", "gemma3_text"})


def text_config(config: Config) -> Config:
    """Return the language part of a config; refuse what these bounds do not describe."""
    text = config.get("text_config") or config.get("llm_config") or config
    kind = str(text.get("model_type", ""))
    kinds = {str(k) for k in text.get("layer_types") or ()}
    if kind in _NOT_ATTENTION or any("linear" in k or "mamba" in k for k in kinds):
        raise InputError(
            f"no bound for model type {kind!r}: not all of its layers are attention",
            "bounds exist for dense, GQA, MLA and MoE decoders; leave the audit out for this model",
        )
    return dict(text)


def plain_fields(config: Config) -> dict[str, Any]:
    """Return the fields of a ModelShape that are neither experts nor latent attention."""
    sizes = {name: _size(config, names) for name, names in _ALIASES.items()}
    heads, hidden = sizes["heads"], sizes["hidden"]
    kv_heads = _optional(config, "num_key_value_heads", "num_kv_heads")
    if kv_heads is None:
        kv_heads = 1 if config.get("multi_query") else heads
    head_dim = _optional(config, "head_dim", "kv_channels") or hidden // heads
    inner = _optional(config, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    fields = sizes | {
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "ffn": inner or 4 * hidden,
        "tied": bool(config.get("tie_word_embeddings", False)),
        "mlp_matrices": 2 if config.get("model_type") in _PLAIN_MLP else 3,
    }
    return fields | _window(config, sizes["layers"]) | {"vector_params": _vectors(config, fields)}


def _size(config: Config, names: tuple[str, ...]) -> int:
    found = _optional(config, *names)
    if found is None:
        raise InputError(
            f"the model's config has no {' or '.join(names)}",
            "give the config.json of a decoder-only language model",
        )
    return found


def _optional(config: Config, *names: str) -> int | None:
    for name in names:
        if config.get(name) is not None:
            return int(config[name])
    return None


def _window(config: Config, layers: int) -> dict[str, int]:
    """Return the sliding window and how many layers have it."""
    window = _optional(config, "sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return {}
    kinds = config.get("layer_types")
    if kinds:
        return {"window": window, "windowed_layers": sum("sliding" in str(k) for k in kinds)}
    pattern = _optional(config, "sliding_window_pattern")
    windowed = layers - layers // pattern if pattern else layers
    return {"window": window, "windowed_layers": windowed}


def _vectors(config: Config, fields: Mapping[str, Any]) -> int:
    """Return norms and biases: 0.01 % of a model, counted so that totals are exact."""
    kind, d, dim = str(config.get("model_type", "")), fields["hidden"], fields["head_dim"]
    layer = (4 if kind in _FOUR_NORMS else 2) * d
    queries_keys_values = dim * (fields["heads"] + 2 * fields["kv_heads"])
    if kind in _QKV_BIAS:
        layer += queries_keys_values
    elif config.get("attention_bias"):
        layer += queries_keys_values + d
    if kind in _QK_NORM:
        layer += 2 * dim
    if config.get("kv_lora_rank"):
        layer += int(config["kv_lora_rank"]) + int(config.get("q_lora_rank") or 0)
    return int(fields["layers"] * layer + d) + _routing_bias(config)


def _routing_bias(config: Config) -> int:
    """Return the balancing bias of DeepSeek-V3's router: one number an expert and layer."""
    experts = experts_of(config)
    if experts is None or config.get("model_type") not in {"deepseek_v3", "deepseek_v32"}:
        return 0
    return experts["count"] * (_size(config, _ALIASES["layers"]) - experts["dense_layers"])


def experts_of(config: Config) -> dict[str, int] | None:
    """Return the fields of Experts, or None for a dense model."""
    count = _optional(config, "num_local_experts", "n_routed_experts", "num_experts")
    if not count or count == 1:
        return None
    inner = _optional(config, "moe_intermediate_size", "intermediate_size") or 0
    shared = _optional(config, "shared_expert_intermediate_size")
    if shared is None:
        shared = inner * (_optional(config, "n_shared_experts") or 0)
    dense = _optional(config, "first_k_dense_replace") or len(config.get("mlp_only_layers") or ())
    active = _optional(config, "num_experts_per_tok", "experts_per_token", "num_experts_per_token")
    if active is None:
        raise InputError("the model's config has experts but no num_experts_per_tok")
    return {"count": count, "active": active, "ffn": inner, "shared_ffn": shared} | {
        "dense_layers": dense
    }


def latent_of(config: Config) -> dict[str, int] | None:
    """Return the fields of LatentAttention, or None without it."""
    rank = _optional(config, "kv_lora_rank")
    if not rank:
        return None
    return {
        "q_rank": _optional(config, "q_lora_rank") or 0,
        "kv_rank": rank,
        "nope_dim": _size(config, ("qk_nope_head_dim",)),
        "rope_dim": _size(config, ("qk_rope_head_dim",)),
        "value_dim": _size(config, ("v_head_dim",)),
    }
