"""What every engine adapter offers, and the plain data that passes between it and the lifecycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from enginebook.study import OptionValue

ModelFormat = Literal["hf", "gguf"]
Option = OptionValue | dict[str, OptionValue]
EngineOptions = Mapping[str, Option]


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk in the form one engine reads.

    Attributes
    ----------
    model_id
        The name under which it is served.
    path
        A Hugging Face folder or hub id (format ``hf``), or a GGUF file (format ``gguf``).
    tokenizer_dir
        Folder with tokenizer.json and config.json, for the load generator and for physics.
    sha256
        Digest of the weights as fetched; None for dummy weights, and where nobody computed it.
    revision
        Of a hub repository, when ``path`` is a hub id; None for the newest.
    """

    model_id: str
    path: Path
    format: ModelFormat
    tokenizer_dir: Path
    sha256: str | None = None
    dummy: bool = False
    revision: str | None = None


@dataclass(frozen=True)
class LaunchPlan:
    """All that an adapter needs to write its command line."""

    python: Path
    model: ModelFiles
    host: str
    port: int
    options: EngineOptions
    directory: Path  # the engine may keep scratch files here


@dataclass(frozen=True)
class Command:
    """An argument list and the environment variables set on top of the inherited ones."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """A part of start-up; seconds count from the start of the process."""

    name: Literal["process", "imports", "weights", "compile", "cache", "ready", "first_token"]
    start_s: float
    end_s: float
    source: str  # "log", "readiness" or "request"


@dataclass(frozen=True)
class MemoryPart:
    """Bytes held by one component, and where the number comes from."""

    component: Literal["weights", "kv_cache", "graphs", "activations", "context", "other", "total"]
    bytes: int
    source: str


@runtime_checkable
class Adapter(Protocol):
    """One engine. Stateless: functions over a plan and over log text."""

    id: str
    title: str
    model_format: ModelFormat
    ready_path: str
    metrics_path: str  # of Prometheus text, where there are metrics
    memory_share: float  # the most that it takes of a GPU's memory by its own default
    prelude: Path | None  # run before the engine's packages are imported elsewhere
    metrics: Mapping[str, str]  # common name (running, waiting, kv_usage ...) -> Prometheus name
    features: Mapping[str, bool]  # prefix_cache, structured_output, metrics, dummy_weights ...

    def command(self, plan: LaunchPlan) -> Command:
        """Return the command line that serves the plan's model."""

    def phases(self, log: Sequence[tuple[float, str]]) -> list[Phase]:
        """Read start-up phases from (seconds since start, line) pairs."""

    def memory(self, log: Sequence[str]) -> list[MemoryPart]:
        """Read what the engine says of its own memory."""

    def settled(self, log: Sequence[str]) -> dict[str, Any]:
        """Read which options the engine settled on, by their common names."""

    def version_code(self) -> str:
        """Return Python source that prints the engine's version in its own environment."""

    def check_options(self, options: EngineOptions, *, where: str = "") -> None:
        """Raise InputError for an unknown or wrong option; ``where`` names the file."""

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return extra request-body fields that force the answer's length (greedy, no stop).

        ``prefix_cache=False`` adds the field that turns reuse off for this request, for engines
        that decide it per request.
        """
