"""Live progress of stages: a table that is redrawn in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from enginebook.pipeline.plan import Plan
from enginebook.pipeline.state import StageState, states
from enginebook.plain import neutral

STYLE = {"done": "green", "running": "bold cyan", "failed": "bold red", "waiting": "dim"}
PLAIN_EVERY_S = 15.0


def clock(seconds: float | None) -> str:
    """Return seconds as ``m:ss``."""
    if seconds is None:
        return ""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Watch:
    """Shows each stage's state, elapsed time and own progress."""

    def __init__(self, plan: Plan, outputs: Path, console: Console | None = None) -> None:
        self.plan, self.outputs = plan, outputs
        self.console = console or Console(file=sys.stderr)
        self.started = time.monotonic()
        self._live: Live | None = None
        self._told: dict[str, str] = {}
        self._told_at: dict[str, float] = {}

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=False)
            self._live.start()
        self.update()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        """Print a line of its own."""
        self.console.print(Text(neutral(text)))

    def update(self) -> None:
        """Look at the stages and show what changed."""
        found = states(self.plan, self.outputs)
        if self._live is not None:
            self._live.update(self._table(found), refresh=True)
            return
        for state in found:
            self._tell(state)

    def _table(self, found: list[StageState]) -> Table:
        done = sum(s.state == "done" for s in found)
        elapsed = clock(time.monotonic() - self.started)
        table = Table(box=None, title=f"{self.plan.run_id}  {done}/{len(found)} stages  {elapsed}")
        table.add_column("stage")
        table.add_column("state")
        table.add_column("time", justify="right")
        table.add_column("progress", overflow="ellipsis", no_wrap=True)
        for s in found:
            # Text, never markup: progress quotes logs, which may hold square brackets.
            table.add_row(
                Text(s.stage.name),
                Text(s.state, style=STYLE[s.state]),
                Text(clock(s.seconds)),
                Text(s.progress),
            )
        return table

    def _tell(self, state: StageState) -> None:
        """Print a plain line when a stage changes state, and now and then its progress."""
        name, now = state.stage.name, time.monotonic()
        before = self._told.get(name, "waiting")
        due = now - self._told_at.get(name, now) >= PLAIN_EVERY_S
        if state.state == before and not (state.state == "running" and due and state.progress):
            return
        self._told[name], self._told_at[name] = state.state, now
        parts = (time.strftime("%H:%M:%S"), name, state.state, clock(state.seconds), state.progress)
        self.console.print(Text("  ".join(p for p in parts if p)), soft_wrap=True)
