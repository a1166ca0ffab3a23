"""From paired blocks to a word: faster, slower, tie, undecided.

The rule, on the log scale and with the margin m (see docs/method-statistics.md):

- *faster* or *slower*: the effect lies beyond m (one-sided test at 2.5 %, so the 95 % interval
  lies wholly outside), after Holm's correction where the row is one of a family;
- *tie*: the effect lies inside m (two one-sided tests at 5 %, so the 90 % interval lies inside);
- *undecided* otherwise, with the number of blocks that would decide if the estimate holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from enginebook.stats.intervals import t_quantile
from enginebook.stats.pairs import Pairs
from enginebook.stats.planner import ALPHA, blocks_to_tie, blocks_to_win

Word = Literal["faster", "slower", "tie", "undecided", "no verdict"]
DECIDING_POWER: Final = 0.8


@dataclass(frozen=True)
class Verdict:
    """A word, why, and how many blocks in all would decide an undecided question."""

    word: Word
    reason: str
    blocks_needed: int | None = None


def p_of_win(gain: Pairs, margin: float) -> float | None:
    """Return the two-sided p value of `a and b differ by more than the margin`."""
    up, down = gain.p_above(math.log1p(margin)), gain.flipped().p_above(math.log1p(margin))
    return None if up is None or down is None else min(1.0, 2 * min(up, down))


def judge_pairs(
    gain: Pairs, margin: float, p_adjusted: float | None = None, rivals: int = 1
) -> Verdict:
    """Return the verdict on a against b.

    Parameters
    ----------
    gain
        Log ratios signed so that more means that a is better.
    margin
        Relative difference that does not matter, or the host's noise floor where that is larger.
    p_adjusted
        The p value of a win after Holm's correction; None: this is the only comparison.
    rivals
        How many comparisons share the error rate with this one (1: none).
    """
    p_win = p_of_win(gain, margin)
    if p_win is None:
        return Verdict("undecided", "one block: nothing is known of the spread; run at least 5")
    p_final = p_win if p_adjusted is None else p_adjusted
    if p_final <= ALPHA:
        word: Word = "faster" if gain.mean > 0 else "slower"
        return Verdict(word, f"{_span(gain)}: beyond the margin of {margin:.1%}")
    p_tie = gain.p_inside(math.log1p(margin))
    if p_tie is not None and p_tie <= ALPHA:
        return Verdict("tie", f"{_span(gain, 1 - 2 * ALPHA)}: inside the margin of {margin:.1%}")
    return _undecided(gain, margin, p_win, rivals)


def _undecided(gain: Pairs, margin: float, p_win: float, rivals: int) -> Verdict:
    needed = _blocks_needed(gain, margin, rivals)
    text = f"{_span(gain)}: the margin is {margin:.1%}"
    if p_win <= ALPHA:
        text += f"; significant alone (p = {p_win:.2g}), not as one of {rivals} comparisons"
    if needed is None:
        text += "; too close to the margin for any practical number of blocks"
        return Verdict("undecided", text)
    return Verdict("undecided", f"{text}; about {needed} blocks would decide", needed)


def _blocks_needed(gain: Pairs, margin: float, rivals: int) -> int | None:
    """Return the blocks in all that decide with 80 % power if estimate and spread hold."""
    effect = math.expm1(abs(gain.mean))
    sd = gain.sd or 0.0
    win = blocks_to_win(sd, effect, margin, ALPHA / rivals, DECIDING_POWER)
    tie = blocks_to_tie(sd, margin, effect, ALPHA, DECIDING_POWER)
    options = [n for n in (win, tie) if n is not None]
    return max(min(options), gain.n + 1) if options else None


def _span(gain: Pairs, confidence: float = 1 - ALPHA) -> str:
    """Return the interval of the gain in words: `4.1% worse to 2.0% better`."""
    half = (gain.standard_error or 0.0) * t_quantile(confidence, gain.degrees)
    low, high = (math.expm1(gain.mean + sign * half) for sign in (-1, 1))
    words = [f"{abs(v):.1%} {'better' if v >= 0 else 'worse'}" for v in (low, high)]
    return f"{words[0]} to {words[1]}"
