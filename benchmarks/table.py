"""Turns results of instrument.py into the table of docs/evidence/instrument.md.

    python benchmarks/table.py RESULTS.json [RESULTS.json ...]

A later file replaces an earlier one's rows for the same client and number of streams.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = (
    "| streams | client | TTFT p50 (true) | TTFT p99 (true) | ITL p50 (true) | ITL p99 (true) "
    "| run / ideal, s | us of CPU a token | answers | others' CPU |\n" + "|---" * 10 + "|"
)
LEAST_TOKENS_FOR_COST = 10_000  # below that, start-up varies by more than the tokens cost


def pair(row: dict[str, Any], name: str) -> str:
    """Return a reading and the truth beside it."""
    kind, point, unit = name.split("_")
    read, true = row[name], row[f"{kind}_true_{point}_{unit}"]
    return f"{read:.2f} ({true:.2f})" if read is not None else f"- ({true:.2f})"


def line(row: dict[str, Any]) -> str:
    """Return one row of the table."""
    if "failed" in row:
        return f"| {row['streams']} | {row['client']} | failed: {row['failed'][:80]} |" + " |" * 7
    times = [pair(row, f"{k}_{p}_ms") for k in ("ttft", "itl") for p in ("p50", "p99")]
    sure = row["tokens_sent"] >= LEAST_TOKENS_FOR_COST
    cost = f"{row['cpu_us_per_token']:.1f}" if sure else "-"
    cells = [
        str(row["streams"]), row["client"], *times, f"{row['run_s']:.1f} / {row['ideal_s']:.1f}",
        cost, f"{row['completed']}/{row['requests']}", f"{row['others_cpu_share']:.0%}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main(paths: list[Path]) -> int:
    """Print the table."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for path in paths:
        for row in json.loads(path.read_text())["results"]:
            rows[row["streams"], row["client"]] = row
    print(HEAD)
    for key in sorted(rows, key=lambda k: k[0]):
        print(line(rows[key]))
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(text) for text in sys.argv[1:]]))
