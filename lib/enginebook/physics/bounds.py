"""Lower limits on time: no engine on this device can be faster, whatever its code.

A step reads its weights and caches once and multiplies; it lasts at least as long as the slower of
the two (roofline, Williams et al. 2009; for transformers Pope et al. 2022). Communication between
devices is left out of the limits, since it can be overlapped, and offered on its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from enginebook.physics.hardware import Hardware
from enginebook.physics.precision import BF16, Precision
from enginebook.physics.shapes import ModelShape

Routing = Literal["least", "expected"]
NORM_BYTES: Final = 2
ALLREDUCE_LATENCY_S: Final = 5e-6


@dataclass(frozen=True)
class Placement:
    """A model's home: which device, how many of them (tensor parallel), in which precision."""

    hardware: Hardware
    precision: Precision = BF16
    devices: int = 1

    @property
    def bandwidth(self) -> float:
        """Return the bytes per second of all devices together."""
        return self.hardware.bandwidth * self.devices

    @property
    def rate(self) -> float | None:
        """Return the FLOP/s of all devices together, None when unknown."""
        one = self.hardware.rate(self.precision.compute)
        return None if one is None else one * self.devices

    def kv_devices(self, shape: ModelShape) -> int:
        """Return over how many devices the cache is split (heads beyond that are copied)."""
        return min(self.devices, shape.kv_shards)


@dataclass(frozen=True)
class Bound:
    """The least time of some work, and what it is made of."""

    memory_s: float
    compute_s: float
    read_bytes: float
    flops: float

    @property
    def seconds(self) -> float:
        """Return the least time."""
        return max(self.memory_s, self.compute_s)

    @property
    def limit(self) -> Literal["memory", "compute"]:
        """Return which of the two sets the limit."""
        return "memory" if self.memory_s >= self.compute_s else "compute"


def weight_bytes(shape: ModelShape, precision: Precision) -> float:
    """Return the bytes of all weights."""
    tables = shape.head_params * (1 if shape.tied else 2) * precision.table_bits / 8
    linear = shape.linear_params() * precision.weight_bits / 8
    return linear + tables + shape.vector_params * NORM_BYTES


def step_weight_bytes(
    shape: ModelShape, precision: Precision, tokens: int = 1, routing: Routing = "least"
) -> float:
    """Return the weight bytes that a step over `tokens` tokens reads.

    The input embedding is a gather of few rows and left out unless it is the head as well; of the
    experts only the chosen ones are read: at least as many as one token needs, or as many as
    uniform routing is expected to touch.
    """
    read = None
    if shape.experts:
        experts = shape.experts
        read = (
            experts.expected_read(tokens) if routing == "expected" else experts.least_read(tokens)
        )
    linear = shape.linear_params(read) * precision.weight_bits / 8
    return linear + shape.head_params * precision.table_bits / 8 + shape.vector_params * NORM_BYTES


def kv_bytes_per_token(shape: ModelShape, precision: Precision = BF16) -> float:
    """Return the bytes one token keeps in the cache, over all layers and devices."""
    return shape.kv_values_per_token * precision.kv_bits / 8


def _bound(place: Placement, weights: float, kv: float, kv_devices: int, flops: float) -> Bound:
    """Return the bound of reading weights and cache and doing this many FLOPs.

    `kv` is split over `kv_devices` only, so each device reads a larger part of it.
    """
    kept = place.hardware.cache_bytes * place.devices
    read = max(0.0, weights + kv * place.devices / kv_devices - kept)
    rate = place.rate
    return Bound(read / place.bandwidth, flops / rate if rate else 0.0, read, flops)


def prefill_bound(
    shape: ModelShape, place: Placement, tokens: int, cached: int = 0, routing: Routing = "least"
) -> Bound:
    """Return the bound on the time to a first token: `tokens` new ones after `cached` ones."""
    return _bound(
        place,
        step_weight_bytes(shape, place.precision, tokens, routing),
        shape.visible(cached) * kv_bytes_per_token(shape, place.precision),
        place.kv_devices(shape),
        shape.prefill_flops(tokens, cached),
    )


def decode_bound(
    shape: ModelShape, place: Placement, batch: int, context: float, routing: Routing = "least"
) -> Bound:
    """Return the bound on one decode step of `batch` sequences with this mean live context."""
    return _bound(
        place,
        step_weight_bytes(shape, place.precision, batch, routing),
        batch * shape.visible(context) * kv_bytes_per_token(shape, place.precision),
        place.kv_devices(shape),
        shape.decode_flops(batch, context),
    )


def served_rate_limit(
    shape: ModelShape, place: Placement, batch: int, input_tokens: int, output_tokens: int
) -> float:
    """Return the output tokens/s that no engine can exceed with `batch` requests in flight.

    Prompts are computed (no prefix is shared) and every output token needs a step of its own; the
    first one is the prompt's, which reads no cache. Prompts may ride along in decode steps, so
    their weight reading is free, their FLOPs are not. Infinite where no ceiling is known.
    """
    decoded = (output_tokens - 1) / output_tokens
    step = decode_bound(shape, place, batch, decoded * (input_tokens + output_tokens / 2))
    rate = place.rate
    prompt_s = shape.prefill_flops(input_tokens) / rate if rate else 0.0
    compute_s = decoded * step.compute_s / batch + prompt_s / output_tokens
    slower = max(step.memory_s / batch, compute_s)
    return 1 / slower if slower > 0 else math.inf


def serial_rate_limit(
    shape: ModelShape, place: Placement, batch: int, input_tokens: int, output_tokens: int
) -> float:
    """Return the output tokens/s when prompts are computed in steps of their own (an estimate)."""
    prompt = prefill_bound(shape, place, input_tokens).seconds
    step = decode_bound(shape, place, batch, input_tokens + output_tokens / 2).seconds
    return 1 / (prompt / output_tokens + step / batch)


def crossover_batch(shape: ModelShape, place: Placement, context: float = 0.0) -> float:
    """Return the batch from which a decode step is compute-bound.

    Infinite when reading the cache takes longer than the FLOPs of its tokens at any batch.
    """
    rate = place.rate
    if rate is None:
        return math.inf
    kv = shape.visible(context) * kv_bytes_per_token(shape, place.precision)
    kv_s = kv / (place.hardware.bandwidth * place.kv_devices(shape))
    token_s = shape.decode_flops(1, context) / rate - kv_s
    weights_s = step_weight_bytes(shape, place.precision) / place.bandwidth
    return weights_s / token_s if token_s > 0 else math.inf


def all_reduce_s(hardware: Hardware, message_bytes: float, devices: int) -> float:
    """Return the time of a ring all-reduce: a fixed latency and 2(t-1)/t of the bytes."""
    if devices == 1 or hardware.link_bandwidth is None:
        return 0.0
    return ALLREDUCE_LATENCY_S + 2 * (devices - 1) / devices * message_bytes / (
        hardware.link_bandwidth
    )


def tensor_parallel_s(shape: ModelShape, place: Placement, tokens: int) -> float:
    """Return the communication of a step: two all-reduces of 16-bit activations in every layer."""
    message = tokens * shape.hidden * 2
    return 2 * shape.layers * all_reduce_s(place.hardware, message, place.devices)
