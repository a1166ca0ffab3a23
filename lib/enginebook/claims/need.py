"""What a user of the decision guide wants to serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from enginebook.errors import InputError

FAR: Final = 2.0  # lengths further off than this factor are another workload
FEW_BLOCKS: Final = 5  # where the spread is not known at all
_SCENARIO_OF: Final = {
    "plain": "throughput", "shared-prefix": "shared_prefix",
    "structured-output": "structured_output",
}  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """What a user wants to serve.

    Attributes
    ----------
    requests_per_s
        The load to be carried by all replicas together; None: capacity and cost only.
    ttft_limit_ms, tpot_limit_ms
        Held at p95 (TTFT) and at the median (time per output token); None: no limit.
    prefix_share
        Share of a prompt's tokens, on average over requests, that begin other prompts too: 0 for
        prompts of their own. Above 0 only scenarios that shared prefixes are read, the one with
        the nearest share first.
    json
        Whether answers follow a schema; only scenarios that measured that are then read.
    budget_usd_per_hour
        None: no limit.
    """

    input_tokens: int
    output_tokens: int
    requests_per_s: float | None = None
    ttft_limit_ms: float | None = None
    tpot_limit_ms: float | None = None
    prefix_share: float = 0.0
    json: bool = False
    budget_usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        numbers = (
            self.input_tokens, self.output_tokens, self.requests_per_s, self.ttft_limit_ms,
            self.tpot_limit_ms, self.budget_usd_per_hour,
        )  # fmt: skip
        if any(v is not None and not v > 0 for v in numbers):
            raise InputError("lengths, rates, limits and budget of a workload must be above 0")
        if not 0 <= self.prefix_share < 1:
            raise InputError("the prefix share of a workload is a fraction: 0 to below 1")

    @property
    def kind(self) -> str:
        """Return what kind of scenario measures this: plain, shared-prefix or structured-output."""
        if self.json:
            return "structured-output"
        return "shared-prefix" if self.prefix_share > 0 else "plain"

    def is_far(self, inputs: int, outputs: int) -> bool:
        """Return whether measured lengths are so far off that they are another workload."""
        pairs = ((inputs, self.input_tokens), (outputs, self.output_tokens))
        return any(max(a / b, b / a) > FAR for a, b in pairs)


@dataclass(frozen=True)
class Cut:
    """A load that some engines lack, or failed: heavier than all that they have in common."""

    concurrency: int
    engines: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return it as a reason."""
        return (
            f"load c={self.concurrency} is missing or failed its check for "
            f"{', '.join(self.engines)}: compared at the loads below it only"
        )


@dataclass(frozen=True)
class NextRun:
    """A run that would settle what is open.

    Attributes
    ----------
    kind
        ``load`` (measure one load of some engines again), ``lengths`` (measure this workload's
        lengths), ``json`` (measure answers in JSON), ``blocks`` (the same again, with so many
        blocks), ``lighter`` (no measured load is within the limits), ``rival`` (there is nothing
        to compare with), ``none`` (no run will tell).
    scenario
        The series to repeat, or the scenario file to use.
    concurrency, engines
        The load to measure again, and of which engines.
    """

    kind: str
    scenario: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    blocks: int | None = None
    concurrency: int | None = None
    engines: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return it in words."""
        lengths = f"input_tokens: [{self.input_tokens}], output_tokens: {self.output_tokens}"
        return {
            "load": f"{self.scenario} of {', '.join(self.engines)} again at concurrency: "
            f"[{self.concurrency}]",
            "lengths": f"scenario {self.scenario} with {lengths}",
            "json": f"scenario {self.scenario}",
            "blocks": f"{self.scenario} again with blocks: {self.blocks}",
            "lighter": f"{self.scenario} at a lighter load, or on faster hardware",
            "rival": "another engine in the same study",
            "none": "none: more blocks will hardly tell; take either, or state a wider margin",
        }[self.kind]


def next_run(row: Mapping[str, Any], workload: Workload, cut: Cut | None = None) -> NextRun | None:
    """Return the run that would settle a row of the ranking, None where it is settled.

    Parameters
    ----------
    cut
        A load that keeps the row open.
    """
    verdict, where = row["verdict"], row["scenario"]
    if cut is not None:
        return NextRun("load", where, concurrency=cut.concurrency, engines=cut.engines)
    if verdict == "no data" or workload.is_far(
        row["measured_input_tokens"], row["measured_output_tokens"]
    ):
        kind, name = "json" if workload.json else "lengths", _SCENARIO_OF[workload.kind]
        return NextRun(kind, name, workload.input_tokens, workload.output_tokens)
    if verdict == "misses the limits":
        return NextRun("lighter", where)
    if verdict == "undecided":
        return _more_blocks(row, where)
    return NextRun("rival") if verdict == "alone" else None


def _more_blocks(row: Mapping[str, Any], where: str) -> NextRun:
    """Return how many blocks would decide, as far as the blocks so far can tell."""
    needed = row["blocks_needed"] or (FEW_BLOCKS if row["n_blocks"] < FEW_BLOCKS else None)
    return NextRun("none") if needed is None else NextRun("blocks", where, blocks=needed)
