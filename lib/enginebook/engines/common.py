"""What most adapters share: typed options, marks in the log, the version of a distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from enginebook.engines.base import EngineOptions, MemoryPart, ModelFormat, Phase
from enginebook.engines.logs import Mark, MemoryLine, memory_from_lines, phases_from_marks
from enginebook.engines.options import CommonOptions, parse_options
from enginebook.engines.settings import Setting, settled

T = TypeVar("T", bound=CommonOptions)

FEATURES = (
    "prefix_cache",
    "structured_output",
    "speculative_decoding",
    "metrics",
    "dummy_weights",
    "tensor_parallel",
    "force_length",
)


def features(*names: str) -> Mapping[str, bool]:
    """Return all features, true for the named ones."""
    return {name: name in names for name in FEATURES}


class EngineAdapter(Generic[T]):
    """Base of the adapters; a subclass states data and writes the command line.

    Attributes
    ----------
    options_type
        The engine's own options.
    distribution
        Whose version is the engine's.
    marks, memory_lines, settings
        How its log tells phases, memory, and the options that it settled on.
    """

    id: str
    title: str
    options_type: type[T]
    distribution: str
    model_format: ModelFormat = "hf"
    ready_path: str = "/health"
    metrics_path: str = "/metrics"
    memory_share: float = 1.0
    prelude: Path | None = None
    metrics: Mapping[str, str] = {}
    features: Mapping[str, bool] = features()
    marks: ClassVar[Sequence[Mark]] = ()
    memory_lines: ClassVar[Sequence[MemoryLine]] = ()
    settings: ClassVar[Sequence[Setting]] = ()

    def options(self, given: EngineOptions, *, where: str = "") -> T:
        """Return options as the engine's own type; InputError for unknown or wrong ones."""
        return parse_options(self.options_type, given, title=self.title, where=where)

    def check_options(self, options: EngineOptions, *, where: str = "") -> None:
        """Raise InputError for an unknown or wrong option."""
        self.options(options, where=where)

    def phases(self, log: Sequence[tuple[float, str]]) -> list[Phase]:
        """Read start-up phases from (seconds since start, line) pairs."""
        return phases_from_marks(log, self.marks)

    def memory(self, log: Sequence[str]) -> list[MemoryPart]:
        """Read what the engine says of its own memory."""
        return memory_from_lines(log, self.memory_lines)

    def settled(self, log: Sequence[str]) -> dict[str, Any]:
        """Read which options the engine settled on, by their common names."""
        return settled(log, self.settings)

    def version_code(self) -> str:
        """Return source that prints the version in the engine's own environment."""
        return f"from importlib.metadata import version; print(version({self.distribution!r}))"

    def sampling_fields(self, output_tokens: int, *, prefix_cache: bool = True) -> dict[str, Any]:
        """Return body fields that force the length; reuse is decided at start, not by request."""
        del prefix_cache
        return {"ignore_eos": True, "min_tokens": output_tokens}


def flags(values: Mapping[str, object]) -> list[str]:
    """Return ``--flag value`` words for the values that are given."""
    return [word for flag, v in values.items() if v is not None for word in (flag, str(v))]


LINKED_MODEL = Path(__file__).parent / "launchers" / "linked_model.py"


def in_folder(python: str, links: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command line that runs ``argv`` in a folder of links and files.

    For servers that name a model after its folder: see launchers/linked_model.py.
    """
    parts = [f"{name}={value}" for name, value in links.items()]
    return (python, str(LINKED_MODEL), *parts, "--", *argv)
