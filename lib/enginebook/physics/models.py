"""Shapes of models that published figures speak of, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import yaml

from enginebook.errors import InputError
from enginebook.physics.shapes import ModelShape

_ENDINGS = ("-instruct", "-chat", "-it", "-base", "-fp8", "-awq", "-bf16")


@cache
def model_table() -> Mapping[str, ModelShape]:
    """Return the models of physics/data/models.yaml by their key."""
    text = files("enginebook.physics").joinpath("data/models.yaml").read_text(encoding="utf-8")
    return {k: ModelShape.from_hf(v, k) for k, v in yaml.safe_load(text)["models"].items()}


def model_named(name: str) -> ModelShape:
    """Return a shape by its key or hub id (`meta-llama/Llama-3.3-70B-Instruct`)."""
    key = canonical_model(name)
    found = model_table().get(key)
    if found is None:
        known = ", ".join(model_table())
        raise InputError(
            f"the shape of model {name!r} is not known",
            f"give the path of its config.json, or use one of: {known}",
        )
    return found


def canonical_model(name: str) -> str:
    """Return a model's name without owner, case and the endings that leave its shape alone."""
    key = name.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-").replace(" ", "-")
    while key.endswith(_ENDINGS):
        key = key[: key.rindex("-")]
    return key.removeprefix("meta-")
