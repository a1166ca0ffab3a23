"""Outputs of notebook cells as HTML that is safe to open anywhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from bs4 import BeautifulSoup

from enginebook.report.fragment import neutral, safe
from enginebook.report.renderer import CHART_MIME, SVG_MIME
from enginebook.report.text import Language, say

FORBIDDEN = (
    "script",
    "iframe",
    "object",
    "embed",
    "link",
    "meta",
    "base",
    "form",
    "frame",
    "style",
)
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def output_html(output: Mapping[str, Any], language: Language) -> str:
    """Return one output of a code cell as HTML; an output that shows nothing is empty text."""
    kind = output.get("output_type")
    if kind == "stream":
        name = "eb-out eb-stderr" if output.get("name") == "stderr" else "eb-out"
        return preformatted(_text(output.get("text", "")), name)
    if kind == "error":
        return _error(output, language)
    return data_html(output.get("data", {}), language)


def data_html(data: Mapping[str, Any], language: Language) -> str:
    """Return the richest form of a display's data that the report can show."""
    if CHART_MIME in data:
        return chart_html(data, language)
    if "text/html" in data:
        html = clean_html(_text(data["text/html"]))
        for side in ("left", "right"):  # the page's own styles align by class
            html = html.replace(f' style="text-align:{side}"', "")
        return f'<div class="eb-html">{html}</div>'
    if SVG_MIME in data:
        return _picture(_svg_uri(_text(data[SVG_MIME])), data)
    for mime in IMAGES:
        if mime in data:
            body = re.sub(r"\s", "", _text(data[mime]))
            base64.b64decode(body, validate=True)
            return _picture(f"data:{mime};base64,{body}", data)
    return preformatted(_text(data.get("text/plain", "")), "eb-out")


def chart_html(data: Mapping[str, Any], language: Language) -> str:
    """Return a chart: its finding as caption, the spec for the page's script, a static picture."""
    spec = data[CHART_MIME]
    meta = spec.get("usermeta") or {}
    title, subtitle = str(meta.get("title", "")), str(meta.get("subtitle", ""))
    described = neutral(spec.get("description") or _text(data.get("text/plain", "")))
    caption = f'<b>{safe(title)}</b> <span class="eb-sub">{safe(subtitle)}</span>'
    picture = ""
    if SVG_MIME in data:
        uri = _svg_uri(_text(data[SVG_MIME]))
        picture = f'<noscript><img alt="{safe(described)}" src="{uri}"></noscript>'
    body = json.dumps(spec, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure class="eb-chart"><figcaption>{caption}</figcaption>'
        f'<div class="eb-mount" role="img" aria-label="{safe(described)}"></div>{picture}'
        f'<button type="button" class="eb-save" hidden>{safe(say("page.save", language))}</button>'
        f'<script type="application/json">{body}</script></figure>'
    )


def preformatted(text: str, name: str) -> str:
    """Return text of a program: escaped, without terminal sequences."""
    text = neutral(text).strip("\n")
    return f'<pre class="{name}" tabindex="0">{safe(text)}</pre>' if text.strip() else ""


def clean_html(source: str) -> str:
    """Return HTML that is well formed, runs nothing and loads nothing."""
    soup = BeautifulSoup(neutral(source), "html.parser")
    for tag in soup.find_all(FORBIDDEN):
        tag.decompose()
    for tag in soup.find_all():
        for name in list(tag.attrs):
            value = str(tag.attrs[name]).strip().lower()
            if name.lower().startswith("on") or _loads(name.lower(), value):
                del tag.attrs[name]
    return str(soup)


def _loads(attribute: str, value: str) -> bool:
    """Return whether an attribute would run something, or load something when the page opens."""
    if attribute in {"src", "srcset", "poster", "background", "data", "action", "formaction"}:
        return not value.startswith("data:image/")
    if attribute in {"href", "xlink:href"}:
        return re.sub(r"[\s\x00-\x1f]", "", value).startswith(("javascript:", "data:", "vbscript:"))
    return attribute == "style" and ("url(" in value or "expression(" in value)


def _error(output: Mapping[str, Any], language: Language) -> str:
    lines = "\n".join(str(line) for line in output.get("traceback", []))
    name = f"{output.get('ename', 'error')}: {output.get('evalue', '')}"
    title = safe(say("page.cell_failed", language))
    trace = preformatted(lines, "eb-out")
    fold = f"<details><summary>Traceback</summary>{trace}</details>" if trace else ""
    return (
        f'<div class="eb-error" role="alert"><b>{title}</b>: <code>{safe(name)}</code>{fold}</div>'
    )


def _picture(uri: str, data: Mapping[str, Any]) -> str:
    alt = safe(_text(data.get("text/plain", "")))
    return f'<figure><img alt="{alt}" src="{uri}"></figure>'


def _svg_uri(svg: str) -> str:
    """Return an SVG as a data address; percent-encoding keeps it smaller than base64 would."""
    return "data:image/svg+xml," + quote(svg.replace('"', "'"), safe=" ='/:;,()!*@$-_.~+[]{}|^")


def _text(value: Any) -> str:
    """Return a notebook's multi-line string, which may be stored as a list of lines."""
    return "".join(value) if isinstance(value, list) else str(value)
