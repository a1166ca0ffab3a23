"""Why engines fail, as their logs say it, and what to do about it."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A failure that is recognised in a log, in words, with its remedy."""

    pattern: re.Pattern[str]
    meaning: str
    remedy: str


def _known(pattern: str, meaning: str, remedy: str) -> Known:
    return Known(re.compile(pattern, re.IGNORECASE), meaning, remedy)


# The first that matches is told: special before general.
KNOWN = (
    _known(
        r"No available memory for the cache blocks|leave no GPU memory for the KV cache|Not enough"
        r" memory.*kv|kv cache.*larger than the available|failed to allocate.*kv",
        "no memory is left for the KV cache after the weights",
        "serve a smaller or quantised model, shorten max_model_len, use more devices, free memory "
        "that others hold, or raise memory_fraction",
    ),
    _known(
        r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|cudaErrorMemoryAllocation",
        "the GPU's memory is not enough",
        "free the GPU (enginebook doctor says who uses it), or lower the memory fraction",
    ),
    _known(
        r"Cannot allocate memory|std::bad_alloc|MemoryError|DefaultCPUAllocator: can't allocate",
        "the machine's memory is not enough",
        "free memory, lower kv_space or max_num_seqs, or serve a smaller model",
    ),
    _known(
        r"Address already in use|EADDRINUSE|Errno 98|couldn't bind",
        "another process holds the port",
        "set port: 0 to have a free one chosen, or end that process",
    ),
    _known(
        r"No space left on device|Errno 28",
        "the disk is full",
        "free some space, or set ENGINEBOOK_CACHE to a folder on another disk",
    ),
    _known(
        r"no kernel image is available|sm_\d+ is not compatible",
        "this build has no code for this GPU's architecture",
        "choose a recipe whose CUDA build knows this GPU",
    ),
    _known(
        r"is not there on this CPU, but was called",
        "its fallback for CPUs lacks a kernel that this model or option needs",
        "leave the option out, or use another engine",
    ),
    _known(
        r"driver (version |on your system )?is (too old|insufficient)",
        "the NVIDIA driver is too old for this build's CUDA",
        "update the driver, or choose a recipe for an older CUDA",
    ),
    _known(
        r"Found no NVIDIA driver|No CUDA GPUs are available|Failed to infer device type|"
        r"no GPU (is|was|device|found)",
        "the engine finds no GPU",
        "choose a CPU recipe, or see enginebook doctor",
    ),
    _known(
        r"not implemented for '(Half|BFloat16)'|bfloat16.*not supported|float16.*not supported",
        "this device cannot compute in the chosen dtype",
        "set dtype: float32 in the engine's options",
    ),
    _known(
        r"gated repo|401 Client Error|403 Client Error|Access to model .* is restricted",
        "the model is gated on its hub",
        "accept its terms there and set HF_TOKEN, or give a local folder",
    ),
    _known(
        r"outgoing traffic has been disabled|OfflineModeIsEnabled|LocalEntryNotFoundError",
        "the model is not in the local cache and the hub is switched off",
        "give a local folder, or fetch the model on a host with internet first",
    ),
    _known(
        r"(Can't load|couldn't instantiate the backend|no) tokenizer"
        r"|tokenizer\.json.*(not found|no such)",
        "the model folder has no tokenizer that the engine can read",
        "put tokenizer.json and tokenizer_config.json into the folder",
    ),
    _known(
        r"unrecognized arguments|no such option|invalid choice|error: argument",
        "the engine does not know an option of its command line",
        "correct the engine's options; its version may have renamed one",
    ),
    _known(
        r"error while loading shared libraries|cannot open shared object file",
        "a shared library is missing",
        "install the library, or choose a recipe that brings its own",
    ),
    _known(
        r"ModuleNotFoundError|ImportError",
        "a Python package is missing or does not fit in the engine's environment",
        "install the engine again (force), or correct its lock",
    ),
    _known(
        r"exceeds? (the )?(model's )?max(imum)?.*(len|context)|max_model_len.*greater than",
        "max_model_len is longer than the model allows",
        "lower max_model_len",
    ),
)


def recognise(lines: Sequence[str]) -> Known | None:
    """Return the first known failure that occurs in the lines."""
    text = "\n".join(lines)
    return next((known for known in KNOWN if known.pattern.search(text)), None)


def ending(exit_code: int | None) -> str:
    """Return an exit status in words."""
    if exit_code is None:
        return "its end was not seen"
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = " (often the kernel's out-of-memory killer)" if name == "SIGKILL" else ""
        hint = " (a CPU instruction that this CPU lacks)" if name == "SIGILL" else hint
        return f"ended by {name}{hint}"
    return f"exit status {exit_code}"
