"""Markdown of notebook cells as HTML: headings that can be linked to, raw HTML shown as text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import mistune

from enginebook.report.fragment import neutral, safe
from enginebook.report.text import Language, say


@dataclass(frozen=True)
class Heading:
    """A heading of the page: level 1 to 6, its text and the name it is linked by."""

    level: int
    text: str
    anchor: str


@dataclass
class Headings:
    """Collects the page's headings and keeps their anchors apart."""

    found: list[Heading] = field(default_factory=list)

    def add(self, level: int, text: str) -> Heading:
        """Record a heading and return it with an anchor that no other one has."""
        base = re.sub(r"[^\w]+", "-", text.lower()).strip("-") or "section"
        taken = {h.anchor for h in self.found}
        anchor, n = base, 2
        while anchor in taken:
            anchor, n = f"{base}-{n}", n + 1
        self.found.append(Heading(level, text, anchor))
        return self.found[-1]


class _Renderer(mistune.HTMLRenderer):
    """Escapes raw HTML; gives headings anchors; leaves out links that lead nowhere in a report."""

    def __init__(self, headings: Headings, language: Language) -> None:
        super().__init__(escape=True)
        self.headings, self.language = headings, language

    def heading(self, text: str, level: int, **_attrs: Any) -> str:
        plain = re.sub(r"<[^>]+>", "", text)
        heading = self.headings.add(level, plain)
        name = safe(say("page.link", self.language, name=""))
        link = f'<a class="eb-link" href="#{heading.anchor}" aria-label="{name}{plain}">#</a>'
        return f'<h{level} id="{heading.anchor}">{text}{link}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        # notebooks are not beside the report that was sent by mail
        return text if re.search(r"\.ipynb(#|$)", url) else super().link(text, url, title)

    def image(self, text: str, url: str, title: str | None = None) -> str:
        # a page that was sent by mail loads nothing, and asks nobody for anything
        return super().image(text, url, title) if url.startswith("data:image/") else text


def to_html(source: str, headings: Headings, language: Language) -> str:
    """Return Markdown as HTML and record its headings."""
    renderer = _Renderer(headings, language)
    render = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough"])
    return str(render(neutral(source)))


def split_title(source: str) -> tuple[str | None, str]:
    """Return (title, rest) of a cell that begins with a level-1 heading, else (None, source)."""
    found = re.match(r"\s*#[ \t]+(.+?)[ \t]*#*\s*(?:\n|$)", source)
    return (found[1], source[found.end() :]) if found else (None, source)
