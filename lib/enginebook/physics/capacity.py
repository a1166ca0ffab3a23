"""What fits: weights and cache against a device's memory, and what speculation can win."""

from __future__ import annotations

from enginebook.errors import InputError
from enginebook.physics.bounds import Placement, kv_bytes_per_token, weight_bytes
from enginebook.physics.shapes import ModelShape


def device_memory(place: Placement) -> float:
    """Return the bytes of one device; refuse devices whose memory is not known."""
    if place.hardware.memory_bytes is None:
        raise InputError(
            f"the memory of {place.hardware.name} is not known",
            "give memory_bytes with the ceilings",
        )
    return float(place.hardware.memory_bytes)


def weights_share(shape: ModelShape, place: Placement) -> float:
    """Return weight bytes per device over its memory: above 1 the model cannot be loaded."""
    return weight_bytes(shape, place.precision) / place.devices / device_memory(place)


def kv_capacity_tokens(
    shape: ModelShape, place: Placement, fraction: float = 0.9, runtime_bytes: float = 3e9
) -> float:
    """Return how many tokens of cache fit beside the weights.

    Parameters
    ----------
    fraction
        Of each device's memory that the engine may use.
    runtime_bytes
        Taken on each device by graphs, activations and libraries.
    """
    free = fraction * device_memory(place) - runtime_bytes
    free -= weight_bytes(shape, place.precision) / place.devices
    per_device = kv_bytes_per_token(shape, place.precision) / place.kv_devices(shape)
    return max(0.0, free / per_device)


def sequences_that_fit(tokens: float, input_tokens: int, output_tokens: int) -> int:
    """Return how many whole requests a cache of this many tokens holds at their full length."""
    return int(tokens // (input_tokens + output_tokens))


def widest_weights_bits(
    shape: ModelShape, place: Placement, context: int, fraction: float = 0.9
) -> float:
    """Return the average bits a weight may have so that the model and one context still fit."""
    room = fraction * device_memory(place) * place.devices
    return 8 * (room - context * kv_bytes_per_token(shape, place.precision)) / shape.params


def speculative_factor(
    acceptance: float, drafts: int, draft_cost: float, verify_cost: float = 0.0
) -> float:
    """Return by what speculative decoding multiplies the tokens per second of one stream.

    A step proposes `drafts` tokens, each accepted with this chance while all before it were; it
    yields one token more than were accepted (Leviathan et al. 2023) and costs, beside itself,
    `draft_cost` of a step a draft and `verify_cost` of a step. Holds while batch * (drafts + 1)
    stays below `crossover_batch`.
    """
    if not 0 <= acceptance <= 1:
        raise InputError(f"acceptance is a share between 0 and 1, not {acceptance}")
    tokens = sum(acceptance**i for i in range(drafts + 1))
    return tokens / (1 + drafts * draft_cost + verify_cost)
