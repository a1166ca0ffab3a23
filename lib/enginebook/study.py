"""A params file as typed, validated objects: what is compared, with which model, under which load.

The top-level keys of a study file are also the parameters of every notebook, so that plain
``papermill -f params/x.yaml`` works; they are therefore flat names over JSON values.
"""

from __future__ import annotations

import hashlib
import re
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
PositiveInt = Annotated[int, Field(strict=True, ge=1)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OptionValue = bool | int | float | str | None | list[bool | int | float | str]


class Frozen(BaseModel):
    """Base of all study objects: immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSpec(Frozen):
    """Which model is served; exactly one source is given.

    ``name`` is an entry of params/models.yaml (fetched as a package file), ``path`` a local
    Hugging Face folder or GGUF file, ``hub`` a hub id for hosts with internet, ``dummy`` a shape
    whose weights the engine invents (for engines that can).
    """

    name: Slug | None = None
    path: str | None = None
    hub: str | None = None
    dummy: Slug | None = None
    revision: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> ModelSpec:
        given = [k for k in ("name", "path", "hub", "dummy") if getattr(self, k) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of name, path, hub, dummy (given: {given or 'none'})"
            )
        return self

    @property
    def label(self) -> str:
        """Return a short name for tables and for the served model id."""
        source = self.name or self.hub or self.dummy or str(self.path)
        return source.rstrip("/").rsplit("/", 1)[-1]


def _model_from_text(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class EngineSpec(Frozen):
    """One engine of a study: a label, the recipe it is made by, and options over the recipe's."""

    name: Slug
    recipe: Slug
    options: dict[str, OptionValue] = Field(default_factory=dict)
    environment: dict[str, OptionValue] = Field(default_factory=dict)


def _engine_from_text(value: Any) -> Any:
    return {"name": value, "recipe": value} if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


IntAxis = Annotated[list[PositiveInt], BeforeValidator(_as_list), Field(min_length=1)]


class Scenario(Frozen):
    """A family of load cells: the product of its axes under one load model.

    Lengths are in tokens. ``requests_per_stream`` times the concurrency, but at least
    ``min_requests``, is the number of measured requests in a cell; ``warmup_per_stream`` requests
    a stream come before them and are kept out of every figure.
    """

    name: Slug
    title: str = ""
    kind: Literal["closed_loop"] = "closed_loop"
    concurrency: IntAxis = [1]
    input_tokens: IntAxis = [64]
    output_tokens: IntAxis = [32]
    requests_per_stream: PositiveInt = 4
    min_requests: PositiveInt = 8
    max_seconds: PositiveFloat = 600.0
    warmup_per_stream: PositiveInt = 1
    skip: list[Slug] = Field(default_factory=list)

    def cells(self, engine: str, block: int, seed: int) -> list[Cell]:
        """Return the cells of this scenario for one engine and block, lightest first."""
        if engine in self.skip:
            return []
        return [
            Cell(
                scenario=self.name,
                kind=self.kind,
                block=block,
                seed=_cell_seed(seed, block, self.name, c, i, o),
                concurrency=c,
                input_tokens=i,
                output_tokens=o,
                requests=max(self.min_requests, self.requests_per_stream * c),
                warmup_requests=self.warmup_per_stream * c,
                max_seconds=self.max_seconds,
            )
            for i, o, c in product(self.input_tokens, self.output_tokens, self.concurrency)
        ]


class Cell(Frozen):
    """One point of load: everything that says which requests are sent and when."""

    scenario: Slug
    kind: Literal["closed_loop"]
    block: NonNegativeInt
    seed: int
    concurrency: PositiveInt
    input_tokens: PositiveInt
    output_tokens: PositiveInt
    requests: PositiveInt
    warmup_requests: NonNegativeInt
    max_seconds: PositiveFloat

    @property
    def label(self) -> str:
        """Return a short text that names the cell among those of its scenario."""
        return (
            f"{self.scenario} c={self.concurrency} in={self.input_tokens} out={self.output_tokens}"
        )


class Study(Frozen):
    """A whole study file, resolved: scenario names replaced by their contents."""

    study: Slug
    question: str = Field(min_length=1)
    language: Literal["en", "zh"] = "en"
    model: Annotated[ModelSpec, BeforeValidator(_model_from_text)]
    engines: list[Annotated[EngineSpec, BeforeValidator(_engine_from_text)]] = Field(min_length=1)
    scenarios: list[Scenario] = Field(min_length=1)
    blocks: PositiveInt = 5
    seed: int = 1
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.03
    port: Annotated[int, Field(strict=True, ge=0, le=65535)] = 0

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

    def engine(self, name: str) -> EngineSpec:
        """Return the engine with this label."""
        for engine in self.engines:
            if engine.name == name:
                return engine
        known = ", ".join(e.name for e in self.engines)
        raise KeyError(f"the study has no engine {name!r} (it has: {known})")

    def cells(self, engine: str, block: int) -> list[Cell]:
        """Return the load cells of one engine in one block.

        Engines get the same prompts in the same cell. Cells and blocks get different ones, so that
        no prefix cache of the server helps a later cell.
        """
        return [c for s in self.scenarios for c in s.cells(engine, block, self.seed)]

    def block_order(self) -> list[tuple[int, str]]:
        """Return (block, engine) in running order: A B, B A, A B ..., so that drift cancels."""
        names = [e.name for e in self.engines]
        return [
            (block, name)
            for block in range(self.blocks)
            for name in (names if block % 2 == 0 else names[::-1])
        ]


def _cell_seed(*parts: int | str) -> int:
    """Return a seed that is a function of all that tells cells apart, below 2**31."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def slug(text: str) -> str:
    """Return a text as a name that is safe in file names and URLs."""
    return re.sub(r"[^a-z0-9_.-]+", "-", text.lower()).strip("-.") or "unnamed"
