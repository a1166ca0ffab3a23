"""What a server says of itself: Prometheus text, under names common to all engines."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException

from enginebook.inquiry import page

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{[^}]*\})?\s+(\S+)")
_TIMEOUT_S = 2.0
_MOST_BYTES = 4 << 20

# Common name to the names that engines use (vLLM, SGLang, TensorRT-LLM, LMDeploy, llama.cpp).
COMMON: Mapping[str, tuple[str, ...]] = {
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "trtllm_num_requests_running",
        "lmdeploy:num_requests_running",
        "llamacpp:requests_processing",
    ),
    "waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "trtllm_num_requests_waiting",
        "lmdeploy:num_requests_waiting",
        "llamacpp:requests_deferred",
    ),
    "kv_usage": (
        "vllm:kv_cache_usage_perc",
        "sglang:token_usage",
        "trtllm_kv_cache_utilization",
        "lmdeploy:gpu_cache_usage_perc",
    ),
    "prefix_hits": (
        "vllm:prefix_cache_hits_total",
        "sglang:cached_tokens_total",
        "trtllm_kv_cache_reused_blocks_total",
        "llamacpp:prompt_tokens_cached_total",
    ),
    "prefix_queries": ("vllm:prefix_cache_queries_total",),
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_reqs"),
}


def parse_prometheus(text: str) -> dict[str, float]:
    """Return metric name to value, summed over label sets; other lines are skipped."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            with suppress(ValueError):
                name, value = match.group(1), float(match.group(3))
                if math.isfinite(value):
                    found[name] = found.get(name, 0.0) + value
    return found


def common_gauges(found: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that have a common name, under it."""
    gauges = {}
    for common, names in COMMON.items():
        known = next((n for n in names if n in found), None)
        if known is not None:
            gauges[common] = found[known]
    return gauges


class Scraper:
    """Reads a metrics address; a server that does not answer yields nothing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.failures = 0

    def read(self) -> dict[str, float]:
        """Return the common gauges of the moment."""
        try:
            text = page(self._url, _TIMEOUT_S, _MOST_BYTES).decode("utf-8", "replace")
        except (OSError, HTTPException, ValueError):
            self.failures += 1
            return {}
        return common_gauges(parse_prometheus(text))
