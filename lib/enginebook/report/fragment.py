"""Pieces of HTML that a notebook cell can show: always with a plain-text twin, always escaped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from enginebook.plain import neutral

__all__ = ["Fragment", "NoData", "neutral", "safe"]


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
        return {"text/html": self.html, "text/plain": str(self)}

    def __str__(self) -> str:
        return neutral(self.plain)


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
        return {"text/html": self.html, "text/plain": str(self)}

    def __str__(self) -> str:
        return neutral(self.plain)
