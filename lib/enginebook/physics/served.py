"""In which precision an engine serves, from the options it was given and the model's own files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from enginebook.errors import InputError
from enginebook.physics.precision import (
    BF16,
    FP8,
    FP32,
    INT4_G128,
    MXFP4,
    NVFP4,
    Precision,
    precision_named,
)

_NAME_IT: Final = "no limit is stated for this engine; the others are audited"
_DTYPES: Final = {
    "float32": FP32, "float": FP32, "fp32": FP32, "float16": BF16, "half": BF16, "fp16": BF16,
    "bfloat16": BF16, "bf16": BF16,
}  # fmt: skip
# What engines call weights that they quantise when they load them, or that a checkpoint holds.
_QUANTISED: Final = {
    "fp8": FP8,
    "w8a8_fp8": FP8,
    "fbgemm_fp8": FP8,
    "int8": Precision("int8", 8, "int8"),
    "w8a8_int8": Precision("int8", 8, "int8"),
    "experts_int8": Precision("int8", 8, "bf16"),
    "awq": INT4_G128,
    "awq_marlin": INT4_G128,
    "gptq": INT4_G128,
    "gptq_marlin": INT4_G128,
    "mxfp4": MXFP4,
    "nvfp4": NVFP4,
    "modelopt_fp4": NVFP4,
    # NF4 with doubly quantised scales: 4 + 8/64 + 32/(64 * 256) bits.
    "bitsandbytes": Precision("nf4", 4.127, "bf16"),
}
_KV_BITS: Final = {
    "f32": 32.0, "float32": 32.0, "f16": 16.0, "float16": 16.0, "bfloat16": 16.0, "bf16": 16.0,
    "fp8": 8.0, "fp8_e4m3": 8.0, "fp8_e5m2": 8.0, "int8": 8.0, "q8_0": 8.5, "q4_0": 4.5,
}  # fmt: skip
# A type in a file's name, as llama.cpp spells it; mixtures (q4_k_m) hold it and wider ones.
_TYPE: Final = re.compile(
    r"(?<![a-z0-9])(iq4_xs|iq4_nl|q[2-6]_k(?:_[sml])?|q[458]_[01]|mxfp4|bf16|fp?16|fp?32)(?![a-z0-9])"
)

_SPELLINGS: Final = {"fp16": "f16", "fp32": "f32", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}


def served_precision(config: Mapping[str, Any], options: Mapping[str, Any]) -> Precision:
    """Return the precision of an engine that reads Hugging Face folders.

    Parameters
    ----------
    config
        The model's ``config.json``.
    options
        ``dtype``, ``quantization`` and ``kv_cache_dtype`` are read.

    Raises
    ------
    InputError
        When an option or the config names a format that is not known here.
    """
    return _with_cache(_weights(config, options), options.get("kv_cache_dtype"))


def _weights(config: Mapping[str, Any], options: Mapping[str, Any]) -> Precision:
    asked = options.get("quantization")
    if config.get("quantization_config"):
        return Precision.from_hf(config)  # an option names the same, or a kernel for it
    if asked:
        found = _QUANTISED.get(str(asked).lower())
        if found is None:
            raise InputError(f"the bits of quantization {asked!r} are not known", _NAME_IT)
        return found
    dtype = str(options.get("dtype") or "auto").lower()
    if dtype == "auto":  # engines serve float32 checkpoints in 16 bits unless told otherwise
        found = Precision.from_hf(config)
        return BF16 if found is FP32 else found
    if dtype not in _DTYPES:
        raise InputError(f"the bits of dtype {dtype!r} are not known", _NAME_IT)
    return _DTYPES[dtype]


def _with_cache(precision: Precision, kind: object) -> Precision:
    if kind in {None, "auto"}:
        return precision
    bits = _KV_BITS.get(str(kind).lower())
    if bits is None:
        raise InputError(f"the bits of kv_cache_dtype {kind!r} are not known", _NAME_IT)
    return replace(precision, kv_bits=bits)


def gguf_precision(name: str, options: Mapping[str, Any] | None = None) -> Precision:
    """Return the precision of a GGUF file by its type or by its name.

    Parameters
    ----------
    name
        A type (``q4_1``), or a file's name that holds one (``Model.Q4_K_M.gguf``).
    options
        ``kv_cache_dtype`` is read; llama.cpp's cache is in 16 bits without.

    Raises
    ------
    InputError
        When the name tells no type whose smallest weights are known.
    """
    stem = name.rsplit("/", 1)[-1].lower().removesuffix(".gguf")
    found = None if "ud-" in stem else _TYPE.search(stem)  # made-up mixtures go below their name
    if found is None:
        raise InputError(f"the bits of {name} are not known", _NAME_IT)
    kind = _SPELLINGS.get(found[1], found[1])
    return _with_cache(precision_named(f"gguf-{kind}"), (options or {}).get("kv_cache_dtype"))


def most_tokens_a_step(options: Mapping[str, Any]) -> float:
    """Return how many tokens a step can yield at most: 1, or the proposed ones and one more."""
    given = options.get("speculative")
    if not given:
        return 1.0
    tokens = given.get("tokens", 4) if isinstance(given, Mapping) else getattr(given, "tokens", 4)
    return float(tokens) + 1
