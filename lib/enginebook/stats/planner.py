"""How many blocks decide a question, asked before the run or after an undecided one.

All effects are relative: 0.05 is five per cent on the ratio of two engines. The spread is the
standard deviation of the log ratio between blocks, as an A/A study or a pilot gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import scipy.stats as st
from numpy.typing import NDArray
from scipy import special

from enginebook.stats.intervals import SMALLEST, Values

ALPHA: Final = 0.05
POWER: Final = 0.9
MOST_BLOCKS: Final = 200
_GRID: Final = (np.arange(256) + 0.5) / 256


def power_to_win(
    blocks: int, sd: float, effect: float, margin: float, alpha: float = ALPHA
) -> float:
    """Return the chance that `blocks` pairs show an effect to lie beyond the margin (exact)."""
    gap = math.log1p(effect) - math.log1p(margin)
    if sd == 0:
        return 1.0 if gap > 0 else 0.0
    limit = special.stdtrit(blocks - 1, 1 - alpha / 2)
    shift = gap * math.sqrt(blocks) / sd
    missed = float(special.nctdtr(blocks - 1, shift, limit))
    if math.isnan(missed):  # underflow, from shifts of about 40
        return float(st.nct.sf(limit, blocks - 1, shift))
    return 1 - missed


def power_to_tie(
    blocks: int, sd: float, margin: float, effect: float = 0.0, alpha: float = ALPHA
) -> float:
    """Return the chance that two one-sided tests place an effect inside the margin.

    Integrates the normal mean over the chi-squared law of the sample variance.
    """
    bound, true = math.log1p(margin), math.log1p(effect)
    if sd == 0:
        return 1.0 if abs(true) < bound else 0.0
    error = sd / math.sqrt(blocks)
    reach = bound - special.stdtrit(blocks - 1, 1 - alpha) * error * _sample_sd(blocks - 1)
    inside = special.ndtr((reach - true) / error) - special.ndtr((-reach - true) / error)
    return float(np.mean(np.where(reach > 0, inside, 0.0)))


@cache
def _sample_sd(degrees: int) -> NDArray[np.float64]:
    """Return evenly probable values of the sample standard deviation where the true one is 1."""
    found: NDArray[np.float64] = np.sqrt(st.chi2.ppf(_GRID, degrees) / degrees)
    return found


def blocks_to_win(
    sd: float, effect: float, margin: float = 0.0, alpha: float = ALPHA, power: float = POWER
) -> int | None:
    """Return the fewest blocks that find an effect beyond the margin with this power.

    None: not even 200 blocks would, or the effect does not exceed the margin.
    """
    if effect <= margin:
        return None
    return _fewest(lambda n: power_to_win(n, sd, effect, margin, alpha) >= power)


def blocks_to_tie(
    sd: float, margin: float, effect: float = 0.0, alpha: float = ALPHA, power: float = POWER
) -> int | None:
    """Return the fewest blocks that prove a tie inside the margin with this power, or None."""
    if abs(math.log1p(effect)) >= math.log1p(margin):
        return None
    return _fewest(lambda n: power_to_tie(n, sd, margin, effect, alpha) >= power)


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """Return the smallest n in 2..MOST_BLOCKS that is enough; power grows with n."""
    if not enough(MOST_BLOCKS):
        return None
    low, high = SMALLEST - 1, MOST_BLOCKS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def minimum_detectable_effect(
    blocks: int, sd: float, margin: float = 0.0, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """Return the smallest relative effect that this many blocks would find; None with one block."""
    if blocks < SMALLEST:
        return None
    low, high = math.log1p(margin), math.log1p(margin) + 1.0
    while power_to_win(blocks, sd, math.expm1(high), margin, alpha) < power:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        found = power_to_win(blocks, sd, math.expm1(middle), margin, alpha) >= power
        low, high = (low, middle) if found else (middle, high)
    return math.expm1(high)


def planning_sd(log_ratios: Values, confidence: float = 0.8) -> float:
    """Return an upper limit on the spread, from the few pairs of a pilot.

    A plan made with the pilot's own standard deviation is too small half of the time; this limit
    is exceeded by the true spread in ``1 - confidence`` of all pilots (Browne 1995).
    """
    d = np.asarray(log_ratios, dtype=float)
    degrees = d.size - 1
    return float(d.std(ddof=1) * math.sqrt(degrees / st.chi2.ppf(1 - confidence, degrees)))


def requests_for_mean(cv: float, half_width: float, confidence: float = 0.95) -> int:
    """Return how many independent requests give a mean this relative half-width."""
    z = st.norm.ppf(0.5 + confidence / 2)
    return math.ceil(float(z * cv / half_width) ** 2)
