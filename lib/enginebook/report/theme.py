"""One look for all charts: quiet axes, one colour for each engine family, light and dark.

Specs are written in the light theme. Every colour has one dark partner; the page swaps the
partners when the reader chooses dark, so a spec needs no second version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", sans-serif'

# role -> (light, dark); no light value occurs twice, since the page swaps by value
INK = {
    "paper": ("#ffffff", "#12161b"),
    "ink": ("#1c2127", "#e8edf2"),
    "muted": ("#5a6470", "#a3afbb"),
    "axis": ("#b9c1ca", "#4a545f"),
    "grid": ("#e9ecf0", "#262d35"),
}

# Hues follow Okabe and Ito, darkened on white and lightened on black until text of that colour
# is readable (4.5:1); a test measures this, and the distance between them for colour-blind eyes.
FAMILIES = {
    "vllm": ("#2a57c0", "#7aa9ff"),
    "sglang": ("#c04a00", "#ff9a5c"),
    "tensorrt-llm": ("#008060", "#3fcf9f"),
    "llama.cpp": ("#983480", "#ea8fcb"),
    "lmdeploy": ("#7d6200", "#e2c14d"),
    "ollama": ("#4d5866", "#b3bfcc"),
    "mlx": ("#5b3fb8", "#b3a1f5"),
}
OTHER = (("#8a4b2d", "#d9a184"), ("#3c6e1f", "#a2d17e"), ("#a0273f", "#f59aa9"))

# Parts of one whole (phases, memory): ordered in lightness, apart from the engines' colours
PARTS = (
    ("#2f4b6e", "#89a9d0"),
    ("#54779b", "#6486ae"),
    ("#87a5b8", "#486b84"),
    ("#c2b280", "#c4b27a"),
    ("#cf8a3c", "#c07f34"),
    ("#b5683f", "#a45a34"),
    ("#8f8f96", "#84848c"),
)

# Each tone has two shades: for two verdicts of one meaning, such as two kinds of "open"
VERDICTS = {
    "good": (("#1b7a63", "#52c9ab"), ("#6bb09f", "#2f8a74")),
    "old": (("#8a6a1c", "#dcb75e"), ("#c9a95e", "#94762b")),
    "bad": (("#b3391f", "#ff9077"), ("#d9897a", "#ad4c37")),
    "open": (("#6e7681", "#97a1ac"), ("#b4bac1", "#5d6670")),
}

_ALIASES = {
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "xllamacpp": "llama.cpp",
    "trtllm": "tensorrt-llm",
    "tensorrt": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
}
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])


def family(engine: str) -> str:
    """Return the engine family a label belongs to: ``vllm-fp8`` is of ``vllm``."""
    name = engine.lower().replace("_", "-")
    known = {**{f: f for f in FAMILIES}, **_ALIASES}
    fitting = [prefix for prefix in known if re.match(rf"{re.escape(prefix)}(?![a-z])", name)]
    return known[max(fitting, key=len)] if fitting else name


def colour(engine: str) -> tuple[str, str]:
    """Return an engine's (light, dark) colour; the same label has the same colour everywhere."""
    known = FAMILIES.get(family(engine))
    if known:
        return known
    digest = hashlib.sha256(family(engine).encode()).digest()
    return OTHER[digest[0] % len(OTHER)]


def engine_scale(engines: Sequence[str]) -> dict[str, list[Any]]:
    """Return domain, colours, shapes and dashes for the engines of one study.

    Variants of one family share its colour and differ in dash and shape.
    """
    seen: dict[str, int] = {}
    dashes: list[list[int]] = []
    for engine in engines:
        variant = seen.get(family(engine), 0)
        dashes.append(_DASHES[variant % len(_DASHES)])
        seen[family(engine)] = variant + 1
    return {
        "domain": list(engines),
        "colours": [colour(e)[0] for e in engines],
        "shapes": [_SHAPES[i % len(_SHAPES)] for i in range(len(engines))],
        "dashes": dashes,
    }


def parts(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return (domain, light colours) for the ordered parts of a whole."""
    domain = list(names)
    return domain, [PARTS[i % len(PARTS)][0] for i in range(len(domain))]


def verdict(tone: str, shade: int = 0) -> str:
    """Return the light colour of a verdict's tone (good, old, bad, open), in one of its shades."""
    shades = VERDICTS[tone]
    return shades[shade % len(shades)][0]


def swaps() -> Mapping[str, str]:
    """Return every light colour with its dark partner, as the page needs them."""
    shades = [pair for tone in VERDICTS.values() for pair in tone]
    pairs = [*INK.values(), *FAMILIES.values(), *OTHER, *PARTS, *shades]
    return dict(pairs)


def light(role: str) -> str:
    """Return the light colour of a role such as ``muted``."""
    return INK[role][0]


def config() -> dict[str, Any]:
    """Return the Vega-Lite configuration that every chart carries."""
    muted, ink = light("muted"), light("ink")
    text = {"labelColor": muted, "titleColor": muted, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": light("paper"),
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": 640, "continuousHeight": 300},
        "title": {
            "anchor": "start", "color": ink, "fontSize": 15, "fontWeight": 600, "lineHeight": 20,
            "subtitleColor": muted, "subtitleFontSize": 12, "subtitlePadding": 6, "offset": 14,
            "frame": "group",
        },
        "axis": {
            **text, "titleFontWeight": "normal", "domainColor": light("axis"),
            "tickColor": light("axis"), "gridColor": light("grid"), "tickSize": 4,
            "labelPadding": 5, "titlePadding": 9, "labelOverlap": True,
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False},
        "header": {
            "labelColor": ink, "labelFontSize": 12, "titleColor": muted, "labelAnchor": "start",
        },
        "legend": {**text, "orient": "top", "direction": "horizontal", "title": None,
                   "labelLimit": 240, "symbolSize": 90, "offset": 8},
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": muted},
    }  # fmt: skip


def apply() -> None:
    """Make this the theme of all Altair charts in this process."""
    import altair as alt  # noqa: PLC0415 - slow to import, wanted by notebooks only

    @alt.theme.register("enginebook", enable=True)
    def _theme() -> alt.theme.ThemeConfig:
        return alt.theme.ThemeConfig(config=config())  # type: ignore[typeddict-item]
