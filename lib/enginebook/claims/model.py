"""A claim as data: what was said, how it is tested, what physics and public evidence say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from enginebook.errors import InputError

Rule = Literal["PHYS", "ABS", "RATIO", "ORDER", "CROSS", "RANGE", "EXIT0", "META", "REGRET"]
Status = Literal["supported", "contradicted", "outdated", "unverifiable"]
Check = Literal["decode_rate", "first_token", "memory_part", "fits"]
Derive = Literal["scaling", "slope", "tail", "reduction", "waste"]
Span = tuple[float | None, float | None]

TITLES: Final = {
    "vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM", "llamacpp": "llama.cpp",
    "lmdeploy": "LMDeploy", "ollama": "Ollama", "mlx": "MLX LM", "omlx": "oMLX",
}  # fmt: skip


class Data(BaseModel):
    """Base of all parts of a claim: immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Setting(Data):
    """On what a figure is said to have been measured; None where the source does not say."""

    model: str | None = None
    hardware: str | None = None
    devices: int = Field(default=1, ge=1)
    precision: str | None = None


class Physics(Data):
    """How physics judges a claim: a check that is computed, or a verdict with its argument."""

    check: Check | None = None
    verdict: Literal["impossible", "implausible", "possible"] | None = None
    why: str = ""
    setting: Setting | None = None
    fraction: float = 1.0
    context: int = 0


class Bound(Data):
    """A further condition: that a component's figure lies between limits; None: open."""

    component: str
    low: float | None = None
    high: float | None = None


class Test(Data):
    """How a run decides a claim.

    Attributes
    ----------
    engines
        Families in the order the claim puts them: the better one first, or numerator and
        denominator; ``*`` stands for all others.
    also
        Further pairs that must hold as well.
    bounds
        Further components whose figures must lie within limits of their own.
    at
        Limits on the axes, both inclusive: ``{concurrency: [1, 15]}``.
    derive
        What is made of the metric before it is judged.
    each
        The rule must hold at every point, not on the average.
    any_of
        One other engine ahead is enough.
    unit_factor
        What turns the claim's unit into the metric's.
    """

    scenario: str = ""
    rule: Rule = "ABS"
    measure: str = ""
    metric: str | None = None
    engines: tuple[str, ...] = ()
    also: tuple[tuple[str, str], ...] = ()
    bounds: tuple[Bound, ...] = ()
    at: Mapping[str, Span] = Field(default_factory=dict)
    value: float | None = None
    low: float | None = None
    high: float | None = None
    tolerance: float = 0.1
    least: float = 0.02
    derive: Derive | None = None
    each: bool = False
    any_of: bool = False
    unit_factor: float = 1.0
    component: str | None = None


class Evidence(Data):
    """What public sources say, with their keys in sources.yaml."""

    status: Status
    sources: tuple[str, ...] = ()
    note: str = ""


class Claim(Data):
    """One published statement."""

    id: str
    topic: str = "quoted"
    kind: str = "quoted"
    statement: str
    zh: str = ""
    claimed: str = ""
    unit: str = ""
    needs: str = "any"
    setting: Setting | None = None
    test: Test
    physics: Physics = Physics()
    evidence: Evidence | None = None


class Source(Data):
    """A public source."""

    what: str
    where: str
    trust: str


class Register(Data):
    """Claims and the sources of their evidence."""

    title: str
    date: str
    claims: tuple[Claim, ...]
    sources: Mapping[str, Source] = Field(default_factory=dict)

    def claim(self, claim_id: str) -> Claim:
        """Return the claim with this id."""
        for claim in self.claims:
            if claim.id == claim_id:
                return claim
        raise InputError(f"no claim {claim_id!r} in the register")
