"""How much of a key-value cache holds live tokens: preallocated, grown, or paged."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from enginebook.errors import InputError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Reservation:
    """A policy: `max_tokens` at the start, pages of `page_tokens` on growth, or doubling.

    Doubling reserves the least power of two that holds what is live.
    """

    page_tokens: int = 0
    max_tokens: int = 0
    doubling: bool = False

    def __post_init__(self) -> None:
        if (self.page_tokens > 0) + (self.max_tokens > 0) + self.doubling != 1:
            raise InputError("a reservation has either page_tokens or max_tokens, or doubles")

    @classmethod
    def named(cls, policy: str, longest: int) -> Reservation:
        """Return a policy by its name: ``prealloc`` (of `longest`), ``pow2`` or ``paged:PAGE``."""
        kind, _, page = policy.partition(":")
        if policy == "prealloc":
            return cls(max_tokens=longest)
        if policy == "pow2":
            return cls(doubling=True)
        if kind == "paged" and page.isascii() and page.isdigit() and int(page) > 0:
            return cls(page_tokens=int(page))
        raise InputError(f"unknown policy {policy!r}", "use prealloc, pow2 or paged:PAGE")


def utilisation(
    input_tokens: ArrayLike, output_tokens: ArrayLike, reservation: Reservation
) -> float:
    """Return live tokens over reserved slots, summed over all decode steps of all requests.

    Parameters
    ----------
    input_tokens, output_tokens
        (n,) lengths of requests; those longer than `max_tokens` are cut to it.

    Notes
    -----
    Step k of a request with input i holds i + k live tokens. The sum over steps weights a request
    by how long it stays, which is what a server's gauge shows over time.
    """
    inputs, outputs = _lengths(input_tokens, output_tokens)
    if reservation.max_tokens:
        inputs = np.minimum(inputs, reservation.max_tokens)
        outputs = np.minimum(outputs, reservation.max_tokens - inputs)
        reserved = int(outputs.sum()) * reservation.max_tokens
    elif reservation.doubling:
        reserved = _doubled_slots(inputs, outputs)
    else:
        reserved = _paged_slots(inputs, outputs, reservation.page_tokens)
    live = int((outputs * inputs + outputs * (outputs + 1) // 2).sum())
    return live / reserved if reserved else math.nan


def _lengths(input_tokens: ArrayLike, output_tokens: ArrayLike) -> tuple[Ints, Ints]:
    inputs = np.asarray(input_tokens, dtype=np.int64)
    outputs = np.asarray(output_tokens, dtype=np.int64)
    if inputs.shape != outputs.shape or inputs.size == 0 or min(inputs.min(), outputs.min()) < 1:
        raise InputError("lengths are two equal, non-empty arrays of numbers from 1")
    return inputs, outputs


def _paged_slots(inputs: Ints, outputs: Ints, page: int) -> int:
    """Return the sum over steps of whole pages: f(i + o) - f(i) with f(n) = sum of ceil(m/page)."""

    def slots_up_to(tokens: Ints) -> Ints:
        whole, rest = tokens // page, tokens % page
        return np.asarray(page * (page * whole * (whole + 1) // 2 + rest * (whole + 1)))

    return int((slots_up_to(inputs + outputs) - slots_up_to(inputs)).sum())


def _doubled_slots(inputs: Ints, outputs: Ints) -> int:
    """Return the sum over steps of the least power of two at or above the live tokens."""
    longest = int((inputs + outputs).max())
    sizes = np.int64(1) << np.ceil(np.log2(np.arange(1, longest + 1))).astype(np.int64)
    up_to = np.concatenate([[0], np.cumsum(sizes)])
    return int((up_to[inputs + outputs] - up_to[inputs]).sum())


def kv_utilisation(
    input_tokens: ArrayLike, output_tokens: ArrayLike, policy: str, longest: int
) -> float:
    """Return the utilisation of a policy by its name, with requests cut to `longest` tokens."""
    inputs, outputs = _lengths(input_tokens, output_tokens)
    inputs = np.minimum(inputs, longest - 1)
    outputs = np.minimum(outputs, longest - inputs)
    return utilisation(inputs, outputs, Reservation.named(policy, longest))
