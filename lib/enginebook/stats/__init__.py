"""Statistics of paired, blocked experiments: pure functions over polars frames.

>>> from enginebook.stats import points, comparisons

Names are loaded when they are first used: scipy takes a second to import, which notebooks that
only name a metric need not pay.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enginebook.stats.crossing import Crossing, crossing_of, crossovers
    from enginebook.stats.floors import MeasuredFloor, noise_floor_of_run, run_folder
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

_PLACES = {
    "Crossing": "crossing",
    "Interval": "intervals",
    "PRIMARY": "metrics",
    "MeasuredFloor": "floors",
    "Pairs": "pairs",
    "SequentialPlan": "sequential",
    "Verdict": "verdicts",
    "bca_interval": "intervals",
    "better": "metrics",
    "blocks_to_tie": "planner",
    "blocks_to_win": "planner",
    "comparisons": "frames",
    "crossing_of": "crossing",
    "crossovers": "crossing",
    "geometric_interval": "intervals",
    "goodput": "resampling",
    "holm": "pairs",
    "judge_pairs": "verdicts",
    "mean_interval": "intervals",
    "minimum_detectable_effect": "planner",
    "noise_floor": "noise",
    "noise_floor_of_run": "floors",
    "paired_ratio": "pairs",
    "pairs_of": "pairs",
    "per_run_interval": "resampling",
    "plan_sequential": "sequential",
    "planning_sd": "planner",
    "points": "frames",
    "pooled_interval": "resampling",
    "power_to_tie": "planner",
    "power_to_win": "planner",
    "proportion_interval": "intervals",
    "quantile_floor": "intervals",
    "quantile_interval": "intervals",
    "requests_for_mean": "planner",
    "run_folder": "floors",
    "sequential_power": "sequential",
    "within_run_interval": "resampling",
}

__all__ = [
    "PRIMARY",
    "Crossing",
    "Interval",
    "MeasuredFloor",
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
    "noise_floor_of_run",
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
    "run_folder",
    "sequential_power",
    "within_run_interval",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
