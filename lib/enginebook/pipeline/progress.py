"""One progress line that is right in JupyterLab, in a papermill log and in a terminal."""

from __future__ import annotations

import html
import os
import sys
import time
from pathlib import Path

from IPython import get_ipython
from IPython.display import display

from enginebook.masking import masked
from enginebook.plain import neutral
from enginebook.store import write_json

EVERY_S = 1.0


class Progress:
    """Show ``done`` of ``total``; write the same to a file that `enginebook run` follows.

    Updates go out at most once a second: each one is a message that papermill handles, and a
    display that is updated in place leaves one small output in the notebook.
    """

    def __init__(self, label: str, total: int | None = None) -> None:
        self.label, self.total, self.done = label, total, 0
        self.started = time.monotonic()
        self._shown = float("-inf")
        follow = os.environ.get("ENGINEBOOK_PROGRESS")
        self._follow = Path(follow) if follow else None
        in_notebook = getattr(get_ipython(), "kernel", None) is not None
        self._handle = display(self, display_id=True) if in_notebook else None

    def update(self, *, done: int | None = None, label: str | None = None) -> None:
        """Set what is done and what is being done."""
        changed = label is not None and label != self.label
        self.done = self.done if done is None else done
        self.label = self.label if label is None else label
        now = time.monotonic()
        if changed or now - self._shown >= EVERY_S or self.done == self.total:
            self._shown = now
            self._show()

    def _show(self) -> None:
        if self._handle is not None:
            self._handle.update(self)
        elif sys.stderr.isatty():
            print(f"\r\x1b[2K{self}", end="", file=sys.stderr, flush=True)
        if self._follow is not None:
            write_json(self._follow, {"label": self.label, "done": self.done, "total": self.total})

    def __str__(self) -> str:
        count = "" if self.total is None else f": {self.done}/{self.total}"
        label = masked(neutral(self.label)).replace("\n", " ")
        return f"{label}{count} ({time.monotonic() - self.started:.0f} s)"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        bar = ""
        if self.total:
            bar = f' <progress value="{self.done}" max="{self.total}"></progress>'
        return {
            "text/plain": str(self),
            "text/html": f"<label>{html.escape(str(self))}{bar}</label>",
        }
