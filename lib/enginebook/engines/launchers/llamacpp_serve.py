"""Serve one GGUF file with the llama.cpp server inside xllamacpp; runs in the engine's Python.

Needs xllamacpp and the standard library only. It ends on SIGTERM or SIGINT. The line that begins
with ``enginebook: listening`` is printed once the model is loaded and the port answers.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

# llama.cpp says how large its buffers are at this verbosity only, and then logs dozens of lines for
# each request too; so it is in force while the model is loaded and no longer.
LOADING_VERBOSITY = 4
SET_VERBOSITY = "_Z30common_log_set_verbosity_tholdi"  # common_log_set_verbosity_thold(int)
SPECULATIVE_TYPES = {
    "ngram": "COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE",
    "draft": "COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE",
    "eagle3": "COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3",
    "mtp": "COMMON_SPECULATIVE_TYPE_DRAFT_MTP",
}
CLOSE_S = 2
KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}  # numbers of enum ggml_type


def parse_arguments() -> argparse.Namespace:
    """Return the command line; every length is in tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context-per-slot", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--gpu-layers", type=int, default=0)
    parser.add_argument("--kv-type", choices=sorted(KV_TYPES))
    parser.add_argument("--no-prefix-cache", action="store_true")
    parser.add_argument("--speculative", type=json.loads, metavar="JSON")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON")
    return parser.parse_args()


def parameters(args: argparse.Namespace) -> Any:
    """Return xllamacpp's parameters for the command line."""
    import xllamacpp  # type: ignore[import-not-found] # noqa: PLC0415

    p = xllamacpp.CommonParams()
    p.model.path = args.model
    p.model_alias = {args.alias}
    p.hostnames = [args.host]
    p.port = args.port
    p.n_parallel = args.slots
    # llama.cpp divides its context among the slots, so each gets what was asked for only if the
    # total is the product.
    p.n_ctx = args.slots * args.context_per_slot
    p.cpuparams.n_threads = args.threads
    p.cpuparams_batch.n_threads = args.threads
    p.n_gpu_layers = args.gpu_layers
    p.endpoint_metrics = p.endpoint_slots = p.endpoint_props = True
    _optional(p, args)
    return p


def _optional(p: Any, args: argparse.Namespace) -> None:
    if args.batch is not None:
        p.n_batch = args.batch
        p.n_ubatch = min(args.batch, p.n_ubatch)
    if args.kv_type is not None:
        kind = type(p.cache_type_k)
        p.cache_type_k = p.cache_type_v = kind(KV_TYPES[args.kv_type])
    if args.no_prefix_cache:
        p.cache_prompt = False
        p.cache_ram_mib = 0
    if args.speculative is not None:
        speculate(p.speculative, args.speculative)
    for item in args.set:
        field, _, value = item.partition("=")
        if not hasattr(p, field):
            sys.exit(f"enginebook: xllamacpp has no parameter {field!r}")
        setattr(p, field, json.loads(value))


def speculate(s: Any, asked: dict[str, Any]) -> None:
    """Set what proposes tokens: ``asked`` holds method, tokens, lookup and model."""
    import xllamacpp  # noqa: PLC0415

    s.types = [getattr(xllamacpp.common_speculative_type, SPECULATIVE_TYPES[asked["method"]])]
    if asked["method"] == "ngram":
        s.ngram_simple.size_n, s.ngram_simple.size_m = asked["lookup"], asked["tokens"]
        return
    s.draft.n_max = asked["tokens"]
    if asked["model"] is not None:
        s.draft.mparams.path = asked["model"]


def set_verbosity_function(library: str) -> Callable[[int], None] | None:
    """Return llama.cpp's own function that changes the verbosity, or None where it is hidden."""
    function = getattr(ctypes.CDLL(library), SET_VERBOSITY, None)
    if function is None:
        return None
    function.argtypes, function.restype = [ctypes.c_int], None

    def set_to(level: int) -> None:
        function(level)

    return set_to


def start(args: argparse.Namespace) -> Any:
    """Return the server, once the model is loaded and the port answers."""
    import xllamacpp  # noqa: PLC0415

    wanted = parameters(args)
    usual = wanted.verbosity
    set_verbosity = set_verbosity_function(xllamacpp.xllamacpp.__file__)
    if set_verbosity is None:
        return xllamacpp.Server(wanted)
    wanted.verbosity = max(usual, LOADING_VERBOSITY)
    server = xllamacpp.Server(wanted)
    set_verbosity(usual)
    return server


def end(servers: list[Any]) -> NoReturn:
    """Drop the server and exit, within a few seconds.

    Its end waits for clients whose requests will never be answered any more. Should that hold the
    interpreter as a whole, the kernel's alarm clock ends the process.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(2 * CLOSE_S)
    closing = threading.Thread(target=servers.clear, daemon=True)
    closing.start()
    closing.join(CLOSE_S)
    sys.stdout.flush()
    os._exit(0)


def main() -> NoReturn:
    """Start the server, wait for a signal, and end."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    servers = [start(parse_arguments())]
    print(f"enginebook: listening on {servers[0].listening_address}", flush=True)
    stop.wait()
    end(servers)


if __name__ == "__main__":
    main()
