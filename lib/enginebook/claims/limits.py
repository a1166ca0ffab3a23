"""What physics says of a claim, before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from enginebook.claims.model import Claim, Setting
from enginebook.physics import (
    ModelShape,
    Placement,
    decode_bound,
    hardware_named,
    kv_bytes_per_token,
    possibility,
    precision_named,
    prefill_bound,
    weight_bytes,
    weights_share,
)
from enginebook.physics.capacity import device_memory
from enginebook.physics.models import model_named

NOT_APPLICABLE: Final = "n/a"
ROUNDING: Final = 0.05  # a printed weight size may be rounded or leave norms out


@dataclass(frozen=True)
class Ruling:
    """The physical verdict on a claim.

    Attributes
    ----------
    verdict
        impossible, implausible, tight, possible or n/a.
    efficiency
        Limit over claimed time, or needed over available bytes; above 1 is impossible.
    loads
        Whether the stated configuration holds the model at all; None when it is not stated.
    """

    verdict: str
    why: str = ""
    efficiency: float | None = None
    loads: bool | None = None


def rule_physics(claim: Claim) -> Ruling:
    """Return the ruling, computed where the claim names a check and a setting, else as recorded."""
    physics, setting = claim.physics, claim.physics.setting or claim.setting
    check = physics.check or _default_check(claim)
    if check is None or setting is None or not (setting.model and setting.hardware):
        return Ruling(physics.verdict or NOT_APPLICABLE, physics.why)
    shape, place = model_named(setting.model), placement_of(setting)
    if check == "fits":
        return _fits(claim, shape, place)
    if check == "memory_part":
        return _memory_part(claim, shape, place)
    return _speed(claim, shape, place)


def placement_of(setting: Setting) -> Placement:
    """Return the devices and precision of a setting; 16 bit where it names none."""
    precision = precision_named(setting.precision or "bf16")
    return Placement(hardware_named(setting.hardware or ""), precision, setting.devices)


def _default_check(claim: Claim) -> str | None:
    """Return the check of a quoted figure that names none."""
    if claim.test.rule != "ABS" or claim.test.value is None:
        return None
    names = {"output_tokens_per_s": "decode_rate", "ttft_p50_ms": "first_token"}
    return names.get(claim.test.metric or "")


def _speed(claim: Claim, shape: ModelShape, place: Placement) -> Ruling:
    value, at = claim.test.value or 0.0, claim.test.at
    if claim.test.metric == "output_tokens_per_s":
        batch = int(at["concurrency"][0] or 1) if "concurrency" in at else 1
        bound = decode_bound(shape, place, batch, _context(claim))
        limit_s, observed_s = bound.seconds / batch, 1 / value
        limit = f"{batch / bound.seconds:,.4g} tokens/s"
        said = "{:.2f} of it is claimed"
    else:
        tokens = int(at["input_tokens"][0] or 1) if "input_tokens" in at else 1
        bound = prefill_bound(shape, place, tokens)
        limit_s, observed_s = bound.seconds, value / 1e3
        limit = f"{bound.seconds * 1e3:,.4g} ms"
        # a share of a time would be read the wrong way round
        said = f"claimed is {value:,.4g} ms, {{:.2f}} times as fast as the limit allows"
    efficiency = limit_s / observed_s
    why = f"the {bound.limit} limit of {_label(place)} is {limit}: {said.format(efficiency)}"
    share = weights_share(shape, place)
    if share > 1:
        why += f"; its weights need {share:.2f} of the memory, so it cannot be loaded"
    return Ruling(possibility(efficiency), why, efficiency, loads=share <= 1)


def _context(claim: Claim) -> float:
    """Return the mean live context that a claim states; 0, the kindest, when it states none."""
    spans = [claim.test.at.get(k, (0.0, 0.0))[0] or 0.0 for k in ("input_tokens", "output_tokens")]
    return spans[0] + spans[1] / 2


def _fits(claim: Claim, shape: ModelShape, place: Placement) -> Ruling:
    need = weight_bytes(shape, place.precision)
    need += claim.physics.context * kv_bytes_per_token(shape, place.precision)
    have = claim.physics.fraction * device_memory(place) * place.devices
    ratio = need / have
    why = f"needs {need / 1e9:.1f} GB of {have / 1e9:.1f} GB on {_label(place)}: {ratio:.2f}"
    verdict = "impossible" if ratio > 1 else "possible"
    return Ruling(verdict, why, ratio, loads=ratio <= 1)


def _memory_part(claim: Claim, shape: ModelShape, place: Placement) -> Ruling:
    claimed = claim.test.value or 0.0
    if claim.test.component == "weights":
        exact = weight_bytes(shape, place.precision)
        ratio = exact / claimed
        why = f"the weights are {exact / 1e9:.2f} GB, {ratio:.2f} times what is claimed"
        return Ruling("impossible" if ratio > 1 + ROUNDING else "possible", why, ratio)
    ratio = claimed / (device_memory(place) * place.devices)
    why = f"{ratio:.3f} of the memory of {_label(place)}"
    if claim.test.component == "kv":
        why += f"; room for {claimed / kv_bytes_per_token(shape, place.precision):,.0f} tokens"
    return Ruling("impossible" if ratio > 1 else "possible", why, ratio)


def _label(place: Placement) -> str:
    return f"{place.devices} x {place.hardware.name} at {place.precision.name}"
