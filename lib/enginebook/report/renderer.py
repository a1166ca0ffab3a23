"""The Altair renderer "enginebook": one output for JupyterLab, the HTML report and GitHub.

Each chart becomes three things in the notebook: the interactive spec under the MIME type that
JupyterLab knows (Vega-Lite v5 ``+json``; Altair's own ``v6.json`` breaks the notebook format),
a static SVG for readers without JavaScript, and its description as plain text, which is also
the alternative text for screen readers. The same chart gives the same bytes, so approved
notebooks can be compared.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import vl_convert

from enginebook.plain import neutral
from enginebook.report import theme

NAME = "enginebook"
CHART_MIME = "application/vnd.vegalite.v5+json"
SVG_MIME = "image/svg+xml"


def vegalite_version() -> str:
    """Return the Vega-Lite version (major.minor) of the specs that Altair writes."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def svg_of(spec: dict[str, Any]) -> str:
    """Return a spec drawn as SVG, without a browser."""
    return str(vl_convert.vegalite_to_svg(spec, vl_version=vegalite_version()))


def plain_spec(value: Any) -> Any:
    """Return a spec whose texts hold no control characters.

    One in a title or a label (of an engine, of a model) makes the converter abort the process.
    """
    if isinstance(value, str):
        return neutral(value)
    if isinstance(value, dict):
        return {neutral(k): plain_spec(v) for k, v in value.items()}
    return [plain_spec(v) for v in value] if isinstance(value, list) else value


def mimebundle(spec: dict[str, Any], **_options: object) -> dict[str, Any]:
    """Return the outputs of one chart.

    Raises
    ------
    ValueError
        When the chart has no description: readers who cannot see it would get nothing.
    """
    description = spec.get("description")
    if not isinstance(description, str) or not description.strip():
        raise ValueError(
            "this chart has no description; add .properties(description=...) that says in words "
            "what the chart shows"
        )
    spec = plain_spec(spec)
    return {CHART_MIME: spec, SVG_MIME: svg_of(spec), "text/plain": neutral(description)}


def enable() -> None:
    """Switch this process's Altair to the report's renderer and theme."""
    alt.renderers.register(NAME, mimebundle)
    alt.renderers.enable(NAME)
    theme.apply()
