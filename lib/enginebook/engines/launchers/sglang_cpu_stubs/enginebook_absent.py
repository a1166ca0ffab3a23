# noqa: INP001 - found through PYTHONPATH, in no package
"""Stand-ins for packages that SGLang imports but a dense model on a CPU never calls.

Importing any name from an absent package works; calling one raises and names it, so that a wrong
result cannot come from here. Used through PYTHONPATH by the CPU recipe of SGLang alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn


class Absent:
    """A name of an absent package: it can be imported and compared, not called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Say which name was called."""
        raise RuntimeError(f"{self._name} is not there on this CPU, but was called")

    def __getattr__(self, attribute: str) -> Absent:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Absent(f"{self._name}.{attribute}")

    def __iter__(self) -> Iterator[Absent]:
        return iter(())


class AbsentModule(ModuleType):
    """A module, every public name of which is absent."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, attribute: str) -> Absent:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Absent(f"{self.__name__}.{attribute}")


class AbsentFinder(MetaPathFinder, Loader):
    """Answers imports of any submodule of one package."""

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for submodules of the package, None for all others."""
        del path, target
        return ModuleSpec(name, self, is_package=True) if name.startswith(self._prefix) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the empty module."""
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: there is no code."""


def stand_in_for(package: str) -> None:
    """Turn the package's own module object into an absent one and answer for its submodules."""
    sys.modules[package].__class__ = AbsentModule
    sys.meta_path.insert(0, AbsentFinder(package))
