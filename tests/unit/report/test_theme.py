"""Colours that can be read and told apart, by everybody, on paper and in the dark."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from enginebook.report import theme

# Machado, Oliveira, Fernandes 2009: full protanopia, deuteranopia, tritanopia, in linear RGB
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array(
        [
            0.152286,
            1.052583,
            -0.204868,
            0.114503,
            0.786281,
            0.099216,
            -0.003882,
            -0.048116,
            1.051998,
        ]
    ).reshape(3, 3),
    "deutan": np.array(
        [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881]
    ).reshape(3, 3),
    "tritan": np.array(
        [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039]
    ).reshape(3, 3),
}
COMMON = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
READABLE, GRAPHIC = 4.5, 3.0  # WCAG 2: text, and parts of graphics


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    lights = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    scaled = np.clip(to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089], 1e-9, None)
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("engine", theme.FAMILIES)
def test_an_engines_name_can_be_read_in_its_colour(engine: str) -> None:
    light, dark = theme.colour(engine)
    assert contrast(light, theme.INK["paper"][0]) >= READABLE
    assert contrast(dark, theme.INK["paper"][1]) >= READABLE


@pytest.mark.parametrize("role", ["ink", "muted"])
@pytest.mark.parametrize("place", [0, 1])
def test_text_can_be_read(role: str, place: int) -> None:
    assert contrast(theme.INK[role][place], theme.INK["paper"][place]) >= READABLE


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("place", [0, 1])
def test_common_engines_differ_for_every_eye(blindness: str, place: int) -> None:
    seen = {e: lab(BLINDNESS[blindness] @ linear(theme.colour(e)[place])) for e in COMMON}
    for one, other in combinations(COMMON, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 14, (one, other, blindness)


@pytest.mark.parametrize(
    ("label", "family"),
    [
        ("vllm", "vllm"), ("vllm-fp8", "vllm"), ("vLLM_0.9", "vllm"), ("llamacpp", "llama.cpp"),
        ("llama.cpp", "llama.cpp"), ("xllamacpp", "llama.cpp"), ("trtllm-serve", "tensorrt-llm"),
        ("sglang2", "sglang"), ("vllmx", "vllmx"), ("own-engine", "own-engine"),
    ],
)  # fmt: skip
def test_labels_belong_to_families(label: str, family: str) -> None:
    assert theme.family(label) == family


def test_a_label_has_one_colour_and_variants_share_it() -> None:
    assert theme.colour("vllm-fp8") == theme.colour("vllm")
    assert theme.colour("own-engine") == theme.colour("own-engine")
    scale = theme.engine_scale(["vllm", "vllm-fp8", "sglang"])
    assert scale["colours"][0] == scale["colours"][1] != scale["colours"][2]
    assert scale["dashes"][0] != scale["dashes"][1]
    assert len(set(scale["shapes"])) == 3


def test_every_light_colour_has_one_dark_partner() -> None:
    shades = [pair for tone in theme.VERDICTS.values() for pair in tone]
    pairs = [*theme.INK.values(), *theme.FAMILIES.values(), *theme.OTHER, *theme.PARTS, *shades]
    lights = [light for light, _ in pairs]
    assert len(set(lights)) == len(lights)
    assert not {dark for _, dark in pairs} & set(lights), "a swapped colour would be swapped again"
    assert theme.swaps() == dict(pairs)


def test_neighbouring_parts_differ_in_lightness() -> None:
    for place in (0, 1):
        lights = [lab(linear(pair[place]))[0] for pair in theme.PARTS]
        assert all(abs(a - b) > 6 for a, b in pairwise(lights))
