"""Which model an engine serves."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator, model_validator

from enginebook.fields import Frozen, HubId, PathText, Revision, Slug


class ModelSpec(Frozen):
    """Which model is served; exactly one source is given.

    ``name`` is an entry of params/models.yaml (fetched as a package file), ``path`` a local
    Hugging Face folder or GGUF file, ``hub`` a hub id for hosts with internet, ``dummy`` a shape
    whose weights the engine invents (for engines that can).
    """

    name: Slug | None = None
    path: PathText | None = None
    hub: HubId | None = None
    dummy: Slug | None = None
    revision: Revision | None = None

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


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


model_from_text = BeforeValidator(_named)
"""A model's name alone stands for ``{name: ...}``."""
