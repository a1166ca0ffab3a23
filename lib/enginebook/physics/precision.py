"""In how many bits weights and cache are kept, and at which rate they are multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from enginebook.errors import InputError

_HALF_BITS: Final = 16
_SCALE_AND_ZERO_BITS: Final = 20  # AWQ and GPTQ: a 16-bit scale and a 4-bit zero a group


@dataclass(frozen=True)
class Precision:
    """One way to keep and multiply a model.

    Attributes
    ----------
    weight_bits
        Of a matmul weight, scales and zeros included (AWQ with groups of 128: 4.156).
    table_bits
        Of the embedding table and the output head.
    compute
        Key of the hardware's matrix rate: fp32, bf16, fp8, fp4 or int8.
    """

    name: str
    weight_bits: float
    compute: str
    table_bits: float = 16
    kv_bits: float = 16

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> Precision:
        """Return the precision that a ``config.json`` asks for (``quantization_config``, dtype)."""
        quantised = config.get("quantization_config")
        if quantised:
            return _quantised(quantised)
        text = config.get("text_config") or {}
        dtype = config.get("torch_dtype") or config.get("dtype") or text.get("torch_dtype")
        return FP32 if str(dtype or "bfloat16").endswith("float32") else BF16


BF16: Final = Precision("bf16", 16, "bf16")
FP32: Final = Precision("fp32", 32, "fp32", table_bits=32, kv_bits=32)
FP8: Final = Precision("fp8", 8, "fp8")
FP8_KV8: Final = Precision("fp8-kv8", 8, "fp8", kv_bits=8)
INT4_G128: Final = Precision("int4-g128", 4 + _SCALE_AND_ZERO_BITS / 128, "bf16")
NVFP4: Final = Precision("nvfp4", 4.5, "fp4", kv_bits=8)
MXFP4: Final = Precision("mxfp4", 4.25, "bf16")


def _gguf_compute(bits: float) -> str:
    """Return in which arithmetic llama.cpp multiplies: activations follow the weights' width."""
    if bits > _HALF_BITS:
        return "fp32"
    return "bf16" if bits == _HALF_BITS else "int8"


# GGUF: bits a weight by the block layouts of llama.cpp, scales included; the tables are quantised
# as well. Of a mixture (q4_k_m) the narrowest type counts, so that a limit stays one.
GGUF: Final = {
    name: Precision(f"gguf-{name}", bits, _gguf_compute(bits), table_bits=bits)
    for name, bits in {
        "f32": 32.0, "f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q6_k": 6.5625, "q5_k_m": 5.5,
        "q5_k_s": 5.5, "q5_1": 6.0, "q5_0": 5.5, "q4_k_m": 4.5, "q4_k_s": 4.5, "q4_1": 5.0,
        "q4_0": 4.5, "iq4_nl": 4.5, "iq4_xs": 4.25, "mxfp4": 4.25, "q3_k": 3.4375,
        "q3_k_s": 3.4375, "q3_k_m": 3.4375, "q3_k_l": 3.4375, "q2_k": 2.625, "q2_k_s": 2.625,
    }.items()
}  # fmt: skip
BY_NAME: Final = {
    p.name: p for p in (BF16, FP32, FP8, FP8_KV8, INT4_G128, NVFP4, MXFP4, *GGUF.values())
} | {"fp16": replace(BF16, name="fp16")}


def precision_named(name: str) -> Precision:
    """Return a precision by its name (bf16, fp16, fp8, int4-g128, nvfp4, gguf-q8_0 ...)."""
    found = BY_NAME.get(name.lower())
    if found is None:
        raise InputError(f"unknown precision {name!r}", f"use one of: {', '.join(BY_NAME)}")
    return found


def _quantised(config: Mapping[str, Any]) -> Precision:
    method = str(config.get("quant_method", "")).lower()
    if method in {"awq", "gptq"}:
        return _grouped(int(config.get("bits", 4)), int(config.get("group_size", 128)))
    if method == "fp8" or str(config.get("quant_algo", "")).upper() == "FP8":
        return FP8
    if method == "mxfp4":
        return MXFP4
    if "NVFP4" in str(config.get("quant_algo", "")).upper():
        return NVFP4
    if method == "compressed-tensors":
        return _compressed(config)
    raise InputError(
        f"unknown quantisation {method or config!r} in the model's config",
        "name the precision yourself, such as int4-g128 or fp8",
    )


def _grouped(bits: int, group: int) -> Precision:
    overhead = _SCALE_AND_ZERO_BITS / group if group > 0 else 0.0
    return Precision(f"int{bits}-g{group}" if group > 0 else f"int{bits}", bits + overhead, "bf16")


def _compressed(config: Mapping[str, Any]) -> Precision:
    """Read the first group of a compressed-tensors config."""
    group = next(iter(config["config_groups"].values()))
    weights, inputs = group["weights"], group.get("input_activations")
    bits = int(weights["num_bits"])
    if not inputs:
        return _grouped(bits, int(weights.get("group_size") or 0))
    kind = "fp" if weights.get("type") == "float" else "int"
    return Precision(f"w{bits}a{inputs['num_bits']}", bits, f"{kind}{bits}")
