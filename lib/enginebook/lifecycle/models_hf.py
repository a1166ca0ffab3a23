"""A Hugging Face folder from a GGUF file: config, tokenizer and float32 safetensors.

Only what was checked against the original is converted: Llama architecture, byte-level BPE with
SmolLM's splitting. Anything else is refused, since a wrong conversion would serve a wrong model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from enginebook.errors import InputError
from enginebook.lifecycle.models_gguf import Float32, GgufFile

CONTROL = 3  # token type of special tokens in GGUF
REMEDY = "give the model's Hugging Face folder instead"

OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
IGNORED = ("rope_freqs.weight",)  # computed again from rope settings


def _smollm_split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )


SPLITS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {"smollm": _smollm_split}


def check_convertible(source: GgufFile) -> None:
    """Raise InputError for an architecture or tokenizer that would not be converted truthfully."""
    if source.architecture != "llama":
        raise InputError(
            f"{source.path}: the architecture {source.architecture!r} is not converted", REMEDY
        )
    scaling = source.value("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in source.tensor_names():
        raise InputError(f"{source.path}: scaled rotary positions are not converted", REMEDY)
    check_tokenizer(source)


def check_tokenizer(source: GgufFile) -> None:
    """Raise InputError for a tokenizer that would not be converted truthfully."""
    kind = (source.value("tokenizer.ggml.model"), source.value("tokenizer.ggml.pre"))
    if kind[0] != "gpt2" or kind[1] not in SPLITS:
        raise InputError(f"{source.path}: tokenizer {kind[0]}/{kind[1]} is not converted", REMEDY)
    if source.value("tokenizer.ggml.add_bos_token", default=False):
        raise InputError(f"{source.path}: a tokenizer that adds BOS is not converted", REMEDY)


def config(source: GgufFile) -> dict[str, Any]:
    """Return config.json; rotary settings stand in both spellings, of Transformers 4 and 5."""
    heads, hidden = int(source.need("llama.attention.head_count")), _hidden(source)
    theta = float(source.value("llama.rope.freq_base", 10000.0))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(source.need("tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "intermediate_size": int(source.need("llama.feed_forward_length")),
        "num_hidden_layers": int(source.need("llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": _kv_heads(source),
        "head_dim": hidden // heads,
        "max_position_embeddings": int(source.need("llama.context_length")),
        "rms_norm_eps": float(f"{source.need('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in source.tensor_names(),
        "torch_dtype": "float32",
        "dtype": "float32",
        "bos_token_id": int(source.need("tokenizer.ggml.bos_token_id")),
        "eos_token_id": int(source.need("tokenizer.ggml.eos_token_id")),
    }


def _hidden(source: GgufFile) -> int:
    return int(source.need("llama.embedding_length"))


def _kv_heads(source: GgufFile) -> int:
    heads = source.need("llama.attention.head_count")
    return int(source.value("llama.attention.head_count_kv", heads))


def tensors(source: GgufFile) -> dict[str, Float32]:
    """Return float32 tensors under their Hugging Face names."""
    heads = {
        "attn_q": int(source.need("llama.attention.head_count")),
        "attn_k": _kv_heads(source),
    }
    found: dict[str, Float32] = {}
    for name, values in source.tensors():
        if name in IGNORED:
            continue
        part = name.split(".")[2] if name.startswith("blk.") else ""
        turned = unpermuted(values, heads[part]) if part in heads else values
        found[hf_name(name)] = np.ascontiguousarray(turned)
    return found


def hf_name(name: str) -> str:
    """Return the Hugging Face name of a GGUF tensor."""
    if name in OUTER:
        return OUTER[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in INNER and parts[3] == "weight":  # noqa: PLR2004
        return f"model.layers.{parts[1]}.{INNER[parts[2]]}.weight"
    raise InputError(f"the tensor {name} belongs to no Llama model that is converted", REMEDY)


def unpermuted(values: Float32, heads: int) -> Float32:
    """Undo GGUF's order of rotary halves; shape (heads * head_dim, hidden) stays.

    llama.cpp stores the two halves of each head interleaved, Hugging Face one after the other.
    """
    rows, columns = values.shape
    return (
        values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(values.shape)
    )


def tokenizer(source: GgufFile) -> Tokenizer:
    """Return the byte-level BPE tokenizer."""
    check_tokenizer(source)
    words = source.need("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in source.need("tokenizer.ggml.merges")]
    made = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
    made.pre_tokenizer = SPLITS[source.need("tokenizer.ggml.pre")]()
    made.decoder = decoders.ByteLevel()
    types = source.need("tokenizer.ggml.token_type")
    special = [w for w, kind in zip(words, types, strict=True) if kind == CONTROL]
    made.add_special_tokens([AddedToken(w, special=True, normalized=False) for w in special])
    return made


def write_tokenizer(source: GgufFile, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json, the chat template and config.json."""
    words = source.need("tokenizer.ggml.tokens")
    bos, eos, unknown = (
        words[int(source.value(f"tokenizer.ggml.{key}_token_id", 0))]
        for key in ("bos", "eos", "unknown")
    )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": eos,
        "unk_token": unknown,
        "model_max_length": int(source.need("llama.context_length")),
        "clean_up_tokenization_spaces": False,
    }
    template = source.value("tokenizer.chat_template")
    if template is not None:
        settings["chat_template"] = template
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    tokenizer(source).save(str(folder / "tokenizer.json"))
    write(folder / "tokenizer_config.json", settings)
    write(folder / "config.json", config(source))


def write_folder(source: GgufFile, folder: Path) -> None:
    """Write the whole model: what ``write_tokenizer`` writes, weights and generation settings."""
    check_convertible(source)
    write_tokenizer(source, folder)
    eos = int(source.need("tokenizer.ggml.eos_token_id"))
    bos = int(source.need("tokenizer.ggml.bos_token_id"))
    generation = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": eos}
    write(folder / "generation_config.json", generation)
    save_file(tensors(source), folder / "model.safetensors", metadata={"format": "pt"})


def write(path: Path, value: Any) -> None:
    """Write JSON for a folder that is renamed as a whole afterwards."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
