"""``enginebook compare RUN_A RUN_B``: two runs of one study; a gate against regressions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

HELP = "compare two runs; exit 1 on a significant loss"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run_a", metavar="RUN_A", help="the run before: an id or a folder")
    parser.add_argument("run_b", metavar="RUN_B", help="the run after: an id or a folder")
    parser.add_argument(
        "--margin",
        type=_share,
        metavar="SHARE",
        help="loss that does not matter, such as 0.03 (default: the margin of RUN_B's study)",
    )
    parser.add_argument(
        "--noise-floor",
        type=_share,
        metavar="SHARE",
        help="what this host shows between an engine and itself; widens the margin if larger",
    )
    parser.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="a metric that decides; may be given several times (default: output_tokens_per_s, "
        "ttft_p50_ms, tpot_p50_ms)",
    )
    parser.add_argument(
        "--engine",
        action="append",
        type=_pair,
        metavar="OLD=NEW",
        help="an engine whose label differs between the runs",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share between 0 and 1")
    return value


def _pair(text: str) -> tuple[str, str]:
    old, sign, new = text.partition("=")
    if not (sign and old and new):
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new


def run(args: argparse.Namespace) -> int:
    """Compare the runs; 1 when one engine lost significantly, or nothing could be judged."""
    from enginebook.claims.runs import open_run
    from enginebook.plain import neutral
    from enginebook.stats import PRIMARY
    from enginebook.stats.regression import regressions
    from enginebook.store import write_json

    before, after = open_run(args.run_a), open_run(args.run_b)
    margin = args.margin or _study_margin(after.manifest)
    frame = regressions(
        before.cells,
        after.cells,
        margin=margin,
        metrics=args.metric or PRIMARY,
        noise_floor=args.noise_floor,
        renamed=dict(args.engine or ()),
    )
    counts = _counts(frame)
    passed = counts["slower"] == 0 and counts["judged"] > 0
    print(neutral(_text(frame, counts, margin)))
    if args.json:
        result = {"passed": passed, "margin": margin, "counts": counts, "rows": frame.to_dicts()}
        write_json(args.json, result)
    return 0 if passed else 1


def _study_margin(manifest: Mapping[str, Any]) -> float:
    study = manifest.get("study")
    return float((study if isinstance(study, Mapping) else {}).get("margin", 0.03))


def _counts(frame: pl.DataFrame) -> dict[str, int]:
    words = ("faster", "slower", "tie", "undecided", "no verdict")
    counts = {word: int((frame["verdict"] == word).sum()) for word in words}
    return counts | {"judged": len(frame) - counts["no verdict"]}


def _text(frame: pl.DataFrame, counts: Mapping[str, int], margin: float) -> str:
    """Return what a terminal shows: losses first, each with its interval."""
    order = {"slower": 0, "undecided": 1, "no verdict": 2, "tie": 3, "faster": 4}
    rows = sorted(frame.iter_rows(named=True), key=lambda r: order[r["verdict"]])
    lines = [
        f"{r['verdict']:<10} {r['engine']}  {r['scenario']} c={r['concurrency']} "
        f"in={r['input_tokens']} out={r['output_tokens']}  {r['metric']}  {_ratio(r)}\n"
        f"{'':<10} {r['reason']}"
        for r in rows
    ]
    total = ", ".join(f"{n} {word}" for word, n in counts.items() if word != "judged")
    lines.append(f"after against before, margin {margin:.1%}: {total}")
    if not counts["judged"]:
        lines.append("nothing could be judged, so the gate does not pass")
    return "\n".join(lines)


def _ratio(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return "-"
    if row["low"] is None:
        return f"{row['ratio']:.3f}x"
    return f"{row['ratio']:.3f}x [{row['low']:.3f}, {row['high']:.3f}]"
