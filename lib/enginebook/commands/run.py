"""``enginebook run PARAMS``: the whole study, resumed where it stood."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from enginebook.errors import InputError

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
        "--jobs", type=_positive, metavar="N",
        help="measuring stages at once: GPUs of this machine side by side, or jobs of a cluster",
    )  # fmt: skip
    parser.add_argument(
        "--exclusive", action="store_true", help="nothing else on a machine that measures"
    )
    parser.add_argument(
        "--host-id", metavar="CLASS",
        help="class of node that the figures belong to, instead of asking a node",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of the cluster, such as partition=gpu (docs/scale.md); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--store", metavar="URL",
        help="object store where results meet, such as s3://bucket/prefix (docs/scale.md)",
    )  # fmt: skip
    parser.add_argument(
        "--retry-failed", action="store_true", help="take load cells that failed before again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome as JSON")


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a whole number above 0: {text}")
    return int(text)


def cluster_settings(words: Sequence[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` words as a mapping.

    Raises
    ------
    InputError
        For a word without ``=``, and for a key that is given twice.
    """
    found: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key in found:
            problem = "is given twice" if sign else "is no KEY=VALUE"
            raise InputError(f"--cluster {word} {problem}", "give each setting once, as KEY=VALUE")
        found[key] = value
    return found


def run(args: argparse.Namespace) -> int:
    """Run the study; return the exit status."""
    from enginebook.paths import default_outputs_dir
    from enginebook.pipeline import runner
    from enginebook.pipeline.executors import Wishes
    from enginebook.pipeline.executors_store import check_store
    from enginebook.pipeline.preview import outlook
    from enginebook.store import write_json

    outputs = (args.output or default_outputs_dir()).resolve()
    settings = cluster_settings(args.cluster)
    store = check_store(args.store) if args.store else None
    wishes = Wishes(args.jobs, args.exclusive, args.host_id, settings, store)
    prepared = runner.prepare(args.params, outputs, args.executor, wishes)
    if args.dry_run:
        outcome = runner.dry_run(prepared)
    else:
        if line := outlook(prepared.study, prepared.plan, prepared.outputs):
            print(f"run {prepared.plan.run_id}: {line}", flush=True)
        outcome = runner.run(prepared, retry_failed=args.retry_failed)
    if args.json:
        write_json(args.json, outcome.to_json())
    return outcome.exit_status
