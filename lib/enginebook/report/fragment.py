"""Pieces of HTML that a notebook cell can show: always with a plain-text twin, always escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

# ESC sequences (CSI, OSC, two-character) as terminals read them, so that logs cannot restyle a page
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: window titles, hyperlinks
    r"|\x1b[@-_]?"  # anything else that begins with ESC
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def neutral(text: object) -> str:
    """Return text without terminal escapes, control characters and direction overrides."""
    plain = _TERMINAL.sub("", str(text)).replace("\r\n", "\n")
    # a carriage return redraws a line on a terminal: keep what a reader would have seen last
    plain = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in plain.split("\n"))
    return _CONTROL.sub("", plain)


def safe(text: object) -> str:
    """Return text that may stand anywhere in HTML, also inside a quoted attribute."""
    return escape(neutral(text), quote=True)


@dataclass(frozen=True)
class Fragment:
    """HTML to show in a notebook and in the report, with what a terminal shows instead."""

    html: str
    plain: str

    def _repr_mimebundle_(
        self,
        include: Any = None,  # noqa: ARG002 - the signature is IPython's
        exclude: Any = None,  # noqa: ARG002
    ) -> Mapping[str, str]:
        return {"text/html": self.html, "text/plain": self.plain}

    def __str__(self) -> str:
        return self.plain


@dataclass(frozen=True)
class NoData:
    """Stands where a chart or table would, and says why there is none."""

    what: str
    reason: str

    @property
    def plain(self) -> str:
        """Return one line for terminals and logs."""
        return f"{self.what}: {self.reason}"

    @property
    def html(self) -> str:
        """Return a quiet note for the page."""
        return f'<p class="eb-nodata"><b>{safe(self.what)}</b>: {safe(self.reason)}</p>'

    def _repr_mimebundle_(
        self,
        include: Any = None,  # noqa: ARG002 - the signature is IPython's
        exclude: Any = None,  # noqa: ARG002
    ) -> Mapping[str, str]:
        return {"text/html": self.html, "text/plain": self.plain}

    def __str__(self) -> str:
        return self.plain
