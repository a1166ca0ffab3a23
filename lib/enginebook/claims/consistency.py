"""A source against itself: do its statements follow from its own tables."""

from __future__ import annotations

from typing import Final

import polars as pl

from enginebook.claims.conditions import Conditions
from enginebook.claims.model import Claim, Register
from enginebook.claims.rules import INCONCLUSIVE, NOT_TESTED, RULES, SUPPORTED
from enginebook.claims.selection import select
from enginebook.claims.tables import quoted_figures

# A printed figure stands for itself, without noise: the same value in as many blocks as any rule
# asks for makes every interval a point.
_BLOCKS: Final = 5
CONSISTENCY_SCHEMA: Final = {
    "claim_id": pl.String, "statement": pl.String, "claimed": pl.String, "tables_say": pl.String,
    "agrees": pl.Boolean, "reason": pl.String,
}  # fmt: skip


def against_own_tables(register: Register) -> pl.DataFrame:
    """Return the statements that a register's own tables can check, and whether they agree.

    Statements on engines or loads that the tables do not hold are left out, and so are the tables'
    own figures.
    """
    cells = _as_cells(quoted_figures(register))
    rows = [row for claim in register.claims if (row := _row(claim, cells)) is not None]
    return pl.DataFrame(rows, schema=CONSISTENCY_SCHEMA)


def _as_cells(figures: pl.DataFrame) -> pl.DataFrame:
    return figures.join(
        pl.DataFrame({"block": range(_BLOCKS)}, schema={"block": pl.Int64}), how="cross"
    ).with_columns(
        pl.col("concurrency").fill_null(1),
        pl.col("input_tokens").fill_null(1),
        scenario=pl.lit("quoted"),
        output_tokens=pl.lit(1, pl.Int64),
        gate_ok=pl.lit(value=True),
    )


def _row(claim: Claim, cells: pl.DataFrame) -> dict[str, object] | None:
    rule, test = RULES.get(claim.test.rule), claim.test
    if rule is None or test.rule == "ABS" or test.metric is None or not test.engines:
        return None
    found = rule(claim, select(cells, test, Conditions()))
    if found.verdict in {NOT_TESTED, INCONCLUSIVE} or found.measured is None:
        return None
    return {
        "claim_id": claim.id,
        "statement": claim.statement,
        "claimed": claim.claimed or claim.statement,
        "tables_say": found.measured,
        "agrees": found.verdict == SUPPORTED,
        "reason": found.reason,
    }
