"""What all charts share: title, description, scales of the engines, tidy logarithmic axes."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from enginebook.report import theme
from enginebook.report.fragment import NoData, neutral
from enginebook.report.text import Language, say

Figure = alt.LayerChart | alt.FacetChart
Drawing = Figure | NoData

TITLE_WIDTH = 78  # characters of the title size that fit a chart of WIDTH
SUBTITLE_WIDTH = 100
WIDTH, HEIGHT = 640, 300
LABEL_ROOM = 96  # px kept free at the right for the engines' names
VALUE_ROOM = 72  # px kept free at the right for a value at the end of a bar
MOST_NAMES, LONGEST_NAME = 6, 20  # beyond these a legend takes the place of names at lines
LETTER, LEGEND_SIGN = 7, 44  # px of a letter, and of a legend's sign with its gaps
LABEL_GAP = 15  # px between two names
WIDE = 5.0  # a range of more than this ratio is drawn on a logarithmic axis


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most ``width`` columns; Chinese characters take two."""
    lines, line, used = [], "", 0
    for word in _pieces(text):
        size = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in word)
        if line and used + size > width:
            lines.append(line.rstrip())
            line, used = "", 0
            word = word.lstrip()  # noqa: PLW2901 - a line does not begin with a space
        line, used = line + word, used + size
    return [*lines, line.rstrip()] if line else lines


def _pieces(text: str) -> Iterable[str]:
    """Yield what must not be broken: words with the space before them, single wide characters."""
    word = ""
    for char in text:
        if unicodedata.east_asian_width(char) in "WF":
            yield from filter(None, (word,))
            yield char
            word = ""
        elif char == " ":
            yield from filter(None, (word,))
            word = char
        else:
            word += char
    if word:
        yield word


def finish(
    chart: Figure, *, title: str, subtitle: str, description: str, language: Language
) -> Figure:
    """Return the chart with its finding as title and its contents in words.

    The full title also goes into ``usermeta``, from where the page takes it as a caption that
    wraps on a phone.
    """
    title, subtitle = neutral(title), neutral(subtitle)
    finished: Figure = chart.properties(
        title=alt.TitleParams(
            text=wrap(title, TITLE_WIDTH), subtitle=wrap(subtitle, SUBTITLE_WIDTH)
        ),
        description=neutral(f"{title}. {description}"),
        usermeta={"title": title, "subtitle": subtitle, "language": language},
    )
    return finished


def engine_colour(engines: Sequence[str], *, legend: bool = False) -> alt.Color:
    """Return the colour encoding of engines, the same in every chart."""
    scale = theme.engine_scale(engines)
    return alt.Color(
        "engine:N",
        scale=alt.Scale(domain=scale["domain"], range=scale["colours"]),
        legend=_legend(engines) if legend else None,
    )


def named_directly(engines: Sequence[str]) -> bool:
    """Return whether names at the ends of lines leave room for the lines, also on a phone."""
    return len(engines) <= MOST_NAMES and max(map(len, engines), default=0) <= LONGEST_NAME


def _legend(engines: Sequence[str]) -> alt.Legend:
    """Return a legend that breaks into lines where the names are many or long."""
    longest = max(map(len, engines), default=1)
    columns = max(1, int(WIDTH // (LETTER * longest + LEGEND_SIGN)))
    return alt.Legend(symbolType="stroke", symbolStrokeWidth=2, columns=columns, labelLimit=0)


def engine_shape(engines: Sequence[str], *, legend: bool = False) -> alt.Shape:
    """Return the shape encoding of engines, so that colour is never the only sign."""
    scale = theme.engine_scale(engines)
    return alt.Shape(
        "engine:N",
        scale=alt.Scale(domain=scale["domain"], range=scale["shapes"]),
        legend=alt.Legend() if legend else None,
    )


def engine_dash(engines: Sequence[str], *, legend: bool = False) -> alt.StrokeDash:
    """Return the dash encoding that tells variants of one engine apart."""
    scale = theme.engine_scale(engines)
    return alt.StrokeDash(
        "engine:N",
        scale=alt.Scale(domain=scale["domain"], range=scale["dashes"]),
        legend=_legend(engines) if legend else None,
    )


def is_wide(values: Iterable[float | None]) -> bool:
    """Return whether positive values span so much that a logarithmic axis reads better."""
    known = [v for v in values if v is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) >= WIDE


def value_scale(values: Iterable[float | None]) -> tuple[alt.Scale, list[float] | None]:
    """Return a scale for measured values, and its ticks when it is logarithmic."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    if not is_wide(known):
        return alt.Scale(zero=True, nice=True), None
    low, high = min(known) / 1.25, max(known) * 1.25
    return alt.Scale(type="log", domain=[low, high], nice=False), log_ticks(low, high)


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 times powers of ten within a range (only powers when it is very wide)."""
    steps = (1, 2, 5) if high / low < 1e4 else (1,)  # noqa: PLR2004 - four decades fit well
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def spread(values: Sequence[float], scale: alt.Scale, height: float = HEIGHT) -> list[float]:
    """Move label positions apart until names at the ends of lines do not overlap.

    Parameters
    ----------
    values
        Values at which labels would stand, in the scale's units.
    scale
        The value scale; logarithmic when it has a domain.
    height
        Height of the plot in px.
    """
    logarithmic = scale.to_dict().get("type") == "log"
    low, high = _domain(values, scale, logarithmic=logarithmic)
    gap = (high - low) * LABEL_GAP / height
    inner = [math.log(v) if logarithmic else v for v in values]
    order = sorted(range(len(inner)), key=inner.__getitem__)
    placed = list(inner)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    # pushing upwards alone would drift away from the points: move each crowd back to its middle
    shift = sum(placed[i] - inner[i] for i in order) / max(1, len(order))
    moved = [p - shift for p in placed]
    return [math.exp(m) if logarithmic else m for m in moved]


def _domain(values: Sequence[float], scale: alt.Scale, *, logarithmic: bool) -> tuple[float, float]:
    domain: Any = scale.to_dict().get("domain")
    if logarithmic:
        return math.log(domain[0]), math.log(domain[1])
    return 0.0, max(values, default=1.0) or 1.0


def room_for_values(longest: float) -> alt.Scale:
    """Return a scale for bars from zero that leaves room for a value at the end of the longest."""
    scale_range: Any = [0, alt.ExprRef(f"width - {VALUE_ROOM}")]
    return alt.Scale(domain=[0, longest or 1.0], nice=False, range=scale_range)


def no_data(what: str, why: str, language: Language) -> NoData:
    """Return the note that stands where a chart would, naming both by catalogue keys."""
    return NoData(say(what, language), say(why, language))
