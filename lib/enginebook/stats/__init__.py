"""Intervals, comparisons, verdicts; pure functions over frames."""
