"""``enginebook report RUN...``: a run's report again, or several runs side by side in one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enginebook.report.text import Language


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a run's id, or its folder below outputs/runs; several stand side by side in one page",
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
    """Render one run's report, or one page of several, and the index; return the exit status."""
    from enginebook.errors import DONE
    from enginebook.paths import default_outputs_dir
    from enginebook.report.index import write_index
    from enginebook.report.runs import find_run
    from enginebook.store import write_json

    outputs = (args.output or default_outputs_dir()).resolve()
    folders = [find_run(name, outputs) for name in args.runs]
    if args.derive:
        from enginebook.pipeline.derive import derive

        for folder in folders:
            derive(folder)
    html = _render(folders, args.language)
    print(f"report: {html}")
    index = write_index(html.parent.parent)
    print(f"index:  {index}")
    if args.json:
        runs = [folder.name for folder in folders]
        made = {"run": " + ".join(runs), "html": str(html), "bytes": html.stat().st_size}
        write_json(args.json, {"reports": [{**made, "runs": runs}], "indexes": [str(index)]})
    return DONE


def _render(folders: list[Path], language: Language | None) -> Path:
    from enginebook.report.runs import render_run

    if len(folders) == 1:
        return render_run(folders[0], language)
    from enginebook.report.side_page import render_side_by_side

    return render_side_by_side(folders, folders[0].parent.parent / "reports", language)
