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


def next_run(row: Mapping[str, Any], workload: Workload) -> str | None:
    """Return the run that would settle a row of the ranking, None where it is settled."""
    verdict, where = row["verdict"], row["scenario"]
    lengths = f"input_tokens: [{workload.input_tokens}], output_tokens: {workload.output_tokens}"
    asked = f"scenario {_SCENARIO_OF[workload.kind]} with {lengths}"
    if workload.json:
        asked = f"scenario {_SCENARIO_OF[workload.kind]}"
    if verdict == "no data":
        return f"{asked}, with this engine"
    if workload.is_far(row["measured_input_tokens"], row["measured_output_tokens"]):
        return asked
    if verdict == "misses the limits":
        return f"{where} at a lighter load or on faster hardware; no measured load is within"
    if verdict == "undecided":
        return _more_blocks(row, where)
    return "another engine in the same study" if verdict == "alone" else None


def _more_blocks(row: Mapping[str, Any], where: str) -> str:
    """Return how many blocks would decide, as far as the blocks so far can tell."""
    needed = row["blocks_needed"] or (FEW_BLOCKS if row["n_blocks"] < FEW_BLOCKS else None)
    if needed is None:
        return "none: more blocks will hardly tell; take either, or state a wider margin"
    return f"{where} again with blocks: {needed}"
