"""``enginebook doctor``: what this machine can do, what it cannot, and what to do about it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from enginebook.lifecycle.examination import Examination

HELP = "examine this machine: what can run here, what cannot, and the remedy"
MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "problem": "[red]problem[/]"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--offline", action="store_true", help="do not try hub and package index")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Examine and print; 1 when there is a problem or no engine can run here."""
    from rich.console import Console

    from enginebook.errors import DONE, MEASURED_FAILURE
    from enginebook.lifecycle.examination import examine
    from enginebook.store import write_json

    seen = examine(network=not args.offline)
    console = Console()
    console.print(_findings(seen))
    console.print(_recipes(seen))
    if args.json:
        write_json(args.json, seen.to_json())
    bad = any(f.verdict == "problem" for f in seen.findings)
    able = any(r.runs for r in seen.recipes)
    return DONE if able and not bad else MEASURED_FAILURE


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _findings(seen: Examination) -> Table:
    from rich.markup import escape

    from enginebook.plain import neutral

    table = _table("machine", "verdict", "found", "remedy")
    for f in seen.findings:
        # details name processes, devices and folders, which others have named
        detail, remedy = escape(neutral(f.detail)), escape(neutral(f.remedy))
        table.add_row(f.subject, MARKS[f.verdict], detail, remedy)
    return table


def _recipes(seen: Examination) -> Table:
    from rich.markup import escape

    table = _table("recipe", "runs here", "installed", "why not", "remedy")
    for r in seen.recipes:
        runs = MARKS["ok"].replace("ok", "yes") if r.runs else "no"
        reasons, remedies = escape("; ".join(r.reasons)), escape("; ".join(r.remedies))
        table.add_row(r.recipe, runs, "yes" if r.installed else "no", reasons, remedies)
    return table
