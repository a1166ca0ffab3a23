"""Stopping as soon as the blocks decide, with the error rates of a study of fixed length.

Looking at the data after every block and stopping at the first small p value names a winner far
more often than 5 % of the time. A plan therefore fixes the looks beforehand and asks for a smaller
p value at each, of the form a * (n / n_max)**2, with the one constant a that makes the chance of
*ever* crossing right. The law of the t statistics does not depend on the unknown spread, so a is
found by simulation with a fixed seed, exactly for normal log ratios.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import scipy.stats as st
from numpy.typing import NDArray

from enginebook.errors import InputError
from enginebook.stats.intervals import SMALLEST, Values
from enginebook.stats.pairs import Pairs, pairs_of_logs
from enginebook.stats.planner import ALPHA, MOST_BLOCKS, POWER
from enginebook.stats.verdicts import Verdict, Word

_STUDIES: Final = 100_000
_PLANNED: Final = 20_000
_SHAPE: Final = 2.0
DEFAULT_LOOKS: Final = (3, 4, 5, 6, 8, 10)


@dataclass(frozen=True)
class SequentialPlan:
    """The looks (numbers of blocks, increasing) and the margin of a study."""

    looks: tuple[int, ...] = DEFAULT_LOOKS
    margin: float = 0.03
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.looks, self.looks[1:], strict=False))
        if not self.looks or self.looks[0] < SMALLEST or not rising:
            raise InputError(
                f"the looks {self.looks} are not increasing numbers of blocks from 2",
                "for instance: 3, 5, 8, 12",
            )

    def levels(self) -> tuple[tuple[float, float], ...]:
        """Return per look the p values at which a win (one-sided) and a tie are declared."""
        win = _constant(self.looks, self.alpha / 2)
        tie = _constant(self.looks, self.alpha)
        shape = [(n / self.looks[-1]) ** _SHAPE for n in self.looks]
        return tuple((win * s, tie * s) for s in shape)

    def judge(self, log_gains: Values) -> Verdict | None:
        """Return the verdict on all blocks so far, or None: go on.

        Parameters
        ----------
        log_gains
            Log ratios of every block so far, signed so that more means that a is better.

        Raises
        ------
        InputError
            When there are more blocks than the plan has; adding looks later voids its error rates.
        """
        n = len(log_gains)
        if n > self.looks[-1]:
            raise InputError(
                f"{n} blocks, but the plan ends at {self.looks[-1]}", "plan a new study"
            )
        if n not in self.looks:
            return None
        levels = self.levels()[self.looks.index(n)]
        word = _word(pairs_of_logs(log_gains), self.margin, *levels)
        if word is not None:
            reason = f"after {n} of at most {self.looks[-1]} blocks, margin {self.margin:.1%}"
            return Verdict(word, reason)
        if n == self.looks[-1]:
            return Verdict("undecided", f"after all {n} planned blocks")
        return None


def _word(gain: Pairs, margin: float, win: float, tie: float) -> Word | None:
    bound = math.log1p(margin)
    ahead, behind, same = gain.p_above(bound), gain.flipped().p_above(bound), gain.p_inside(bound)
    if ahead is not None and ahead <= win:
        return "faster"
    if behind is not None and behind <= win:
        return "slower"
    return "tie" if same is not None and same <= tie else None


@cache
def _constant(looks: tuple[int, ...], level: float) -> float:
    """Return a so that P(p_n <= a * (n / n_max)**2 at any look) is the level, under the null."""
    p = _one_sided_p(_paths(looks[-1], _STUDIES, seed=1), looks, 0.0)
    scaled = p / np.power(np.asarray(looks) / looks[-1], _SHAPE)
    return float(np.quantile(scaled.min(axis=1), level))


def _paths(blocks: int, studies: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((studies, blocks))


def _one_sided_p(d: NDArray[np.float64], looks: Sequence[int], bound: float) -> NDArray[np.float64]:
    """Return (studies, looks) p values against a mean of at most `bound`."""
    n = np.asarray(looks)
    total = np.cumsum(d, axis=1)[:, n - 1]
    squares = np.cumsum(np.square(d), axis=1)[:, n - 1]
    mean = total / n
    variance = (squares - n * np.square(mean)) / (n - 1)
    return np.asarray(st.t.sf((mean - bound) / np.sqrt(variance / n), n - 1))


def sequential_power(plan: SequentialPlan, sd: float, effect: float) -> tuple[float, float]:
    """Return the chance that a plan finds an effect to lie beyond its margin, and its mean length.

    The length counts blocks until the win; studies that find nothing take all of them.
    """
    d = sd * _paths(plan.looks[-1], _PLANNED, seed=2) + math.log1p(effect)
    p = _one_sided_p(d, plan.looks, math.log1p(plan.margin))
    crossed = p <= np.asarray([win for win, _ in plan.levels()])
    won = crossed.any(axis=1)
    stop = np.where(won, np.asarray(plan.looks)[np.argmax(crossed, axis=1)], plan.looks[-1])
    return float(won.mean()), float(stop.mean())


def plan_sequential(
    sd: float, effect: float, margin: float = 0.03, power: float = POWER, first: int = 3
) -> SequentialPlan | None:
    """Return the shortest plan that finds an effect with this power; None beyond 200 blocks.

    Looks lie at `first` and then about a quarter further each time.
    """
    if effect <= margin:
        return None
    most = first
    while most <= MOST_BLOCKS:
        plan = SequentialPlan(_looks(first, most), margin)
        if sequential_power(plan, sd, effect)[0] >= power:
            return plan
        most = max(most + 1, math.ceil(most * 1.1))
    return None


def _looks(first: int, most: int) -> tuple[int, ...]:
    looks = [first]
    while looks[-1] < most:
        looks.append(min(most, max(looks[-1] + 1, math.ceil(looks[-1] * 1.25))))
    return tuple(looks)
