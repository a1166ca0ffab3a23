"""What a user of the decision guide wants to serve."""

from __future__ import annotations

from dataclasses import dataclass

from enginebook.errors import InputError


@dataclass(frozen=True)
class Workload:
    """What a user wants to serve.

    Attributes
    ----------
    requests_per_s
        The load to be carried by all replicas together; None: capacity and cost only.
    ttft_limit_ms, tpot_limit_ms
        Held at p95 (TTFT) and at the median (time per output token); None: no limit.
    shared_prefix, json
        Whether prompts share a prefix, and whether answers follow a schema; the guide then reads
        only scenarios that measured that.
    budget_usd_per_hour
        None: no limit.
    """

    input_tokens: int
    output_tokens: int
    requests_per_s: float | None = None
    ttft_limit_ms: float | None = None
    tpot_limit_ms: float | None = None
    shared_prefix: bool = False
    json: bool = False
    budget_usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        numbers = (
            self.input_tokens, self.output_tokens, self.requests_per_s, self.ttft_limit_ms,
            self.tpot_limit_ms, self.budget_usd_per_hour,
        )  # fmt: skip
        if any(v is not None and not v > 0 for v in numbers):
            raise InputError("lengths, rates, limits and budget of a workload must be above 0")
