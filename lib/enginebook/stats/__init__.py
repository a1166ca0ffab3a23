"""Statistics of paired, blocked experiments: pure functions over polars frames.

>>> from enginebook.stats import points, comparisons
"""

from enginebook.stats.crossovers import Crossing, crossing_of, crossovers
from enginebook.stats.frames import comparisons, points
from enginebook.stats.intervals import (
    Interval,
    bca_interval,
    geometric_interval,
    mean_interval,
    proportion_interval,
    quantile_floor,
    quantile_interval,
)
from enginebook.stats.metrics import PRIMARY, better
from enginebook.stats.noise import noise_floor
from enginebook.stats.pairs import Pairs, holm, paired_ratio, pairs_of
from enginebook.stats.planner import (
    blocks_to_tie,
    blocks_to_win,
    minimum_detectable_effect,
    planning_sd,
    power_to_tie,
    power_to_win,
    requests_for_mean,
)
from enginebook.stats.resampling import (
    goodput,
    per_run_interval,
    pooled_interval,
    within_run_interval,
)
from enginebook.stats.sequential import SequentialPlan, plan_sequential, sequential_power
from enginebook.stats.verdicts import Verdict, judge_pairs

__all__ = [
    "PRIMARY",
    "Crossing",
    "Interval",
    "Pairs",
    "SequentialPlan",
    "Verdict",
    "bca_interval",
    "better",
    "blocks_to_tie",
    "blocks_to_win",
    "comparisons",
    "crossing_of",
    "crossovers",
    "geometric_interval",
    "goodput",
    "holm",
    "judge_pairs",
    "mean_interval",
    "minimum_detectable_effect",
    "noise_floor",
    "paired_ratio",
    "pairs_of",
    "per_run_interval",
    "plan_sequential",
    "planning_sd",
    "points",
    "pooled_interval",
    "power_to_tie",
    "power_to_win",
    "proportion_interval",
    "quantile_floor",
    "quantile_interval",
    "requests_for_mean",
    "sequential_power",
    "within_run_interval",
]
