"""``enginebook claims [RUN]``: published claims by physics, the public record, and a run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from enginebook.claims import Register

HELP = "judge published claims by physics, and by a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's id or folder")
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="your own claims (YAML) instead of the register"
    )
    parser.add_argument("--topic", metavar="NAME", help="show only claims of this topic")
    parser.add_argument("--id", metavar="CLAIM", help="show one claim with everything known of it")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit 1 when a claim of --file is contradicted",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts as JSON")


def run(args: argparse.Namespace) -> int:
    """Judge and print; 1 only with --strict and a contradicted claim."""
    from enginebook.claims import against_own_tables, load_register
    from enginebook.plain import neutral
    from enginebook.store import write_json

    register = load_register(args.file)
    frame = _chosen(_judged(register, args.run), register, args)
    hypotheses = _hypotheses(register)
    own = against_own_tables(register)
    print(neutral(_one(frame, register) if args.id else _table(frame, hypotheses, own)))
    if args.json:
        explained = hypotheses.to_dicts() if hypotheses is not None else []
        result = {
            "title": register.title,
            "claims": frame.to_dicts(),
            "hypotheses": explained,
            "own_tables": own.to_dicts(),
            "sources": {k: v.model_dump() for k, v in register.sources.items()},
        }
        write_json(args.json, result)
    contradicted = bool((frame["verdict"] == "contradicted").any())
    return 1 if args.strict and contradicted else 0


def _judged(register: Register, reference: str | None) -> pl.DataFrame:
    from enginebook.claims import judge
    from enginebook.claims.runs import open_run

    if reference is None:
        return judge(register)
    opened = open_run(reference)
    frames = opened.frames
    return judge(
        register,
        cells=frames.get("cells"),
        points=frames.get("points"),
        comparisons=frames.get("comparisons"),
        memory=frames.get("memory"),
        installs=frames.get("installs"),
        host=opened.host,
        manifest=opened.manifest,
        frames=frames,
    )


def _chosen(frame: pl.DataFrame, register: Register, args: argparse.Namespace) -> pl.DataFrame:
    import polars as pl

    from enginebook.errors import InputError

    if args.id:
        register.claim(args.id)
        return frame.filter(pl.col("claim_id") == args.id)
    if not args.topic:
        return frame
    kept = frame.filter(pl.col("topic") == args.topic)
    if kept.is_empty():
        known = ", ".join(sorted(frame["topic"].unique()))
        raise InputError(f"no claim of topic {args.topic!r}", f"topics: {known}")
    return kept


def _hypotheses(register: Register) -> pl.DataFrame | None:
    """Return which hardware explains the quoted tables; None where no model is stated."""
    from enginebook.claims.tables import explain_register, quoted_figures

    stated = any(c.setting and c.setting.model for c in register.claims)
    if not stated or quoted_figures(register).is_empty():
        return None
    return explain_register(register)


def _table(frame: pl.DataFrame, hypotheses: pl.DataFrame | None, own: pl.DataFrame) -> str:
    lines = [_line(row) for row in frame.iter_rows(named=True)]
    counts = frame.group_by("verdict").len().sort("len", descending=True)
    lines += ["", ", ".join(f"{n} {word}" for word, n in counts.iter_rows())]
    physics = frame.group_by("physics_verdict").len().sort("len", descending=True)
    lines.append("physics: " + ", ".join(f"{n} {word}" for word, n in physics.iter_rows()))
    if hypotheses is not None:
        lines += ["", "which hardware explains the quoted figures:"]
        lines += [f"  {h['hypothesis']:<24} {h['verdict']}" for h in hypotheses.to_dicts()]
    if not own.is_empty():
        lines += ["", "the source against its own tables:"]
        lines += [
            f"  {r['claim_id']:<10} {'agrees' if r['agrees'] else 'disagrees':<10} "
            f"claimed {r['claimed']}; the tables say {r['tables_say']}"
            for r in own.to_dicts()
        ]
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    physics = "" if row["physics_verdict"] == "n/a" else f" [{row['physics_verdict']}]"
    measured = f"  measured {row['measured']}" if row["measured"] else ""
    return f"{row['claim_id']:<24} {row['verdict']:<16}{physics} {row['statement']}{measured}"


def _one(frame: pl.DataFrame, register: Register) -> str:
    """Return everything known of one claim."""
    row = frame.row(0, named=True)
    claim = register.claim(row["claim_id"])
    lines = [f"{name}: {value}" for name, value in row.items() if value not in (None, [], "")]
    if claim.zh:
        lines.insert(3, f"as printed: {claim.zh}")
    for key in row["sources"]:
        source = register.sources.get(key)
        if source is not None:
            lines.append(f"{key}: {source.what} ({source.where}; {source.trust})")
    return "\n".join(lines)
