"""``enginebook report RUN...``: render reports again, and the index of all runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="a run's id, or its folder below outputs/runs"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="outputs folder that holds runs/ (default: outputs)",
    )
    parser.add_argument(
        "--language", choices=["en", "zh"], help="language (default: the study's own)"
    )
    parser.add_argument(
        "--derive",
        action="store_true",
        help="compare and judge again first, over what is there (a run copied from another host)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was rendered as JSON")


def run(args: argparse.Namespace) -> int:
    """Render each run's report and the index; return the exit status."""
    from enginebook.errors import DONE
    from enginebook.paths import default_outputs_dir
    from enginebook.report.index import write_index
    from enginebook.report.runs import find_run, render_run
    from enginebook.store import write_json

    outputs = (args.output or default_outputs_dir()).resolve()
    folders = [find_run(name, outputs) for name in args.runs]
    if args.derive:
        from enginebook.pipeline.derive import derive

        for folder in folders:
            derive(folder)
    reports: list[dict[str, Any]] = []
    for folder in folders:
        html = render_run(folder, args.language)
        reports.append({"run": folder.name, "html": str(html), "bytes": html.stat().st_size})
        print(f"report: {html}")
    indexes = sorted({write_index(folder.parent.parent) for folder in folders})
    for index in indexes:
        print(f"index:  {index}")
    if args.json:
        write_json(args.json, {"reports": reports, "indexes": [str(i) for i in indexes]})
    return DONE
