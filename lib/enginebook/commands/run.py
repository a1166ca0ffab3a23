"""``enginebook run PARAMS``: the whole study, resumed where it stood."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run a whole study: host, install, launch, load, compare, claims, report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("params", type=Path, help="study file, such as params/quickstart.yaml")
    parser.add_argument("--output", type=Path, metavar="DIR", help="outputs folder")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and start nothing")
    parser.add_argument(
        "--executor",
        choices=["local", "slurm", "kubernetes"],
        default="local",
        help="where stages run",
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="take load cells that failed before again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the study; return the exit status."""
    from enginebook.paths import default_outputs_dir
    from enginebook.pipeline import runner
    from enginebook.store import write_json

    outputs = (args.output or default_outputs_dir()).resolve()
    prepared = runner.prepare(args.params, outputs, args.executor)
    if args.dry_run:
        outcome = runner.dry_run(prepared)
    else:
        outcome = runner.run(prepared, retry_failed=args.retry_failed)
    if args.json:
        write_json(args.json, outcome.to_json())
    return outcome.exit_status
