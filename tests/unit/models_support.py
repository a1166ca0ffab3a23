"""A tiny Llama in GGUF, with weights and vocabulary that a test can check by hand."""

from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

HEADS, KV_HEADS, HIDDEN, INNER, LAYERS, CONTEXT = 4, 2, 64, 96, 2, 128
HEAD_DIM = HIDDEN // HEADS
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def vocabulary():
    """Return special tokens, all byte symbols, and two merged words."""
    return [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "Ġab"]


def hf_weights(seed=0):
    """Return float32 weights under their Hugging Face names."""
    draw = np.random.default_rng(seed)

    def matrix(*shape):
        return draw.normal(size=shape).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": matrix(len(vocabulary()), HIDDEN),
        "model.norm.weight": matrix(HIDDEN),
    }
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        weights |= {
            f"{layer}input_layernorm.weight": matrix(HIDDEN),
            f"{layer}post_attention_layernorm.weight": matrix(HIDDEN),
            f"{layer}self_attn.q_proj.weight": matrix(HIDDEN, HIDDEN),
            f"{layer}self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}self_attn.o_proj.weight": matrix(HIDDEN, HIDDEN),
            f"{layer}mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            f"{layer}mlp.up_proj.weight": matrix(INNER, HIDDEN),
            f"{layer}mlp.down_proj.weight": matrix(HIDDEN, INNER),
        }
    return weights


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def permuted(values, heads):
    """Interleave the halves of each head, row by row, as llama.cpp's own converter documents it."""
    rows = values.reshape(heads, HEAD_DIM, -1)
    half = HEAD_DIM // 2
    order = [i // 2 + (i % 2) * half for i in range(HEAD_DIM)]
    return np.ascontiguousarray(rows[:, order, :].reshape(values.shape))


def gguf_tensor(name, values):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight", values
    if name == "model.norm.weight":
        return "output_norm.weight", values
    _, _, layer, rest = name.split(".", 3)
    part = GGUF_NAMES[rest.removesuffix(".weight")]
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(part)
    return f"blk.{layer}.{part}.weight", permuted(values, heads) if heads else values


def write_gguf(path: Path, *, kind="F32", arch="llama", pre="smollm", **changes):
    """Write the model; matrices in the given quantisation. ``changes`` replace metadata."""
    writer = gguf.GGUFWriter(path, arch)
    words = vocabulary()
    strings = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "general.name": "Tiny"}
    strings |= {"tokenizer.chat_template": "{{ messages }}"}
    numbers = {
        "llama.block_count": LAYERS,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    for key, value in {**strings, **numbers, **changes}.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_uint32(key, value)
    writer.add_float32("llama.rope.freq_base", 100000.0)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_array("tokenizer.ggml.tokens", words)
    types = [3] * len(SPECIAL) + [1] * (len(words) - len(SPECIAL))
    writer.add_array("tokenizer.ggml.token_type", types)
    writer.add_array("tokenizer.ggml.merges", ["a b", "Ġ ab"])
    wanted = gguf.GGMLQuantizationType[kind]
    writer.add_file_type(0 if kind == "F32" else 7)
    for name, values in hf_weights().items():
        own, data = gguf_tensor(name, values)
        used = wanted if data.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(own, gguf.quants.quantize(data, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
