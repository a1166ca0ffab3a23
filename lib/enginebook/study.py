"""A params file as typed, validated objects: what is compared, with which model, under which load.

The top-level keys of a study file are also the parameters of every notebook, so that plain
``papermill -f params/x.yaml`` works; they are therefore flat names over JSON values.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from enginebook.cells import Cell, Slo
from enginebook.fields import (
    Frozen,
    NonNegativeInt,
    OptionValue,
    PathText,
    PositiveFloat,
    PositiveInt,
    Slug,
)
from enginebook.models import ModelSpec, model_from_text
from enginebook.scenarios import Base, Load, Scenario

__all__ = [
    "Cell",
    "EngineSpec",
    "Frozen",
    "ModelSpec",
    "NonNegativeInt",
    "OptionValue",
    "PositiveFloat",
    "PositiveInt",
    "Scenario",
    "Slo",
    "Slug",
    "Study",
    "slug",
]


class EngineSpec(Frozen):
    """One engine of a study: a label, the recipe it is made by, and options over the recipe's.

    Attributes
    ----------
    model
        Served instead of the study's model, such as a quantised form of it.
    arm
        Engines are compared within one arm; by default the recipe says which it is.
    """

    name: Slug
    recipe: Slug
    options: dict[str, OptionValue | dict[str, OptionValue]] = Field(default_factory=dict)
    environment: dict[str, OptionValue] = Field(default_factory=dict)
    model: Annotated[ModelSpec | None, model_from_text] = None
    arm: Slug | None = None


def _engine_from_text(value: Any) -> Any:
    return {"name": value, "recipe": value} if isinstance(value, str) else value


class Study(Frozen):
    """A whole study file, resolved: scenario names replaced by their contents.

    Attributes
    ----------
    noise_floor
        Run (name or folder below outputs/runs) of an A/A study on this host; differences below
        its noise get no verdict. None uses no floor.
    hourly_price
        What an hour of this host costs, in any currency, for the cost of a million tokens.
    """

    study: Slug
    question: str = Field(min_length=1)
    language: Literal["en", "zh"] = "en"
    model: Annotated[ModelSpec, model_from_text]
    engines: list[Annotated[EngineSpec, BeforeValidator(_engine_from_text)]] = Field(min_length=1)
    scenarios: list[Scenario] = Field(min_length=1)
    blocks: PositiveInt = 5
    seed: int = 1
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.03
    port: Annotated[int, Field(strict=True, ge=0, le=65535)] = 0
    noise_floor: PathText | None = None
    hourly_price: PositiveFloat | None = None

    @model_validator(mode="after")
    def _unique_names(self) -> Study:
        for kind, names in (
            ("engine", [e.name for e in self.engines]),
            ("scenario", [s.name for s in self.scenarios]),
        ):
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise ValueError(f"{kind} names must differ; given twice: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _known_labels(self) -> Study:
        known = {e.name for e in self.engines}
        for scenario in self.scenarios:
            wrong = sorted({*scenario.only, *scenario.skip} - known)
            if wrong:
                raise ValueError(
                    f"scenario {scenario.name}: only and skip name engines of the study; "
                    f"unknown: {', '.join(wrong)}"
                )
        return self

    def engine(self, name: str) -> EngineSpec:
        """Return the engine with this label."""
        for engine in self.engines:
            if engine.name == name:
                return engine
        known = ", ".join(e.name for e in self.engines)
        raise KeyError(f"the study has no engine {name!r} (it has: {known})")

    def model_of(self, engine: EngineSpec) -> ModelSpec:
        """Return the model that an engine serves."""
        return engine.model or self.model

    @property
    def loads(self) -> list[Load]:
        """Return the scenarios that are made of load cells."""
        return [s for s in self.scenarios if isinstance(s, Load)]

    def of_kind(self, *kinds: str) -> list[Base]:
        """Return the scenarios of some kinds, in order."""
        return [s for s in self.scenarios if s.kind in kinds]

    def cells(self, engine: str, block: int) -> list[Cell]:
        """Return the load cells of one engine in one block.

        Engines get the same prompts in the same cell. Cells and blocks get different ones, so that
        no prefix cache of the server helps a later cell.
        """
        return [c for s in self.loads for c in s.cells(engine, block, self.seed)]

    def block_order(self) -> list[tuple[int, str]]:
        """Return (block, engine) in running order: A B, B A, A B ..., so that drift cancels.

        An engine that has nothing to do in a block is not started in it.
        """
        names = [e.name for e in self.engines]
        order = [
            (block, name)
            for block in range(self.blocks)
            for name in (names if block % 2 == 0 else names[::-1])
        ]
        return [(b, n) for b, n in order if self.cells(n, b) or self._monitored(n, b)]

    def _monitored(self, engine: str, block: int) -> bool:
        return block == 0 and any(s.wants(engine) for s in self.of_kind("monitoring"))


def slug(text: str) -> str:
    """Return a text as a name that is safe in file names and URLs."""
    return re.sub(r"[^a-z0-9_.-]+", "-", text.lower()).strip("-.") or "unnamed"
