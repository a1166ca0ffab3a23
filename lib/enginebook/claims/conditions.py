"""On what a run was measured, as far as host facts and manifest say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from enginebook.claims.model import Setting
from enginebook.errors import InputError
from enginebook.physics import hardware_named
from enginebook.physics.models import canonical_model
from enginebook.store import digest_of

_FAMILIES: Final = {
    "tensorrt_llm": ("tensorrt", "trtllm", "trt-llm", "trt_llm"),
    "llamacpp": ("llamacpp", "llama.cpp", "llama-cpp", "xllamacpp"),
    "lmdeploy": ("lmdeploy",),
    "sglang": ("sglang",),
    "vllm": ("vllm",),
    "ollama": ("ollama",),
    "mlx": ("mlx",),
}
_DEVICE_OPTIONS: Final = ("tensor_parallel_size", "tensor-parallel-size", "tp_size", "tp")


def family_of(engine: str, recipe: str = "") -> str:
    """Return which engine a label stands for: `vllm-cpu` is vllm; unknown labels stand alone."""
    for text in (recipe.lower(), engine.lower()):
        for family, marks in _FAMILIES.items():
            if any(mark in text for mark in marks):
                return family
    return engine


@dataclass(frozen=True)
class Conditions:
    """Hardware, model and engines of a run; None where nothing says."""

    hardware: str | None = None
    has_gpu: bool | None = None
    devices: int = 1
    model: str | None = None
    precision: str | None = None
    families: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    digest: str | None = None

    def family(self, engine: str) -> str:
        """Return the engine that a label of this run stands for."""
        return self.families.get(engine) or family_of(engine)

    def differences(self, setting: Setting | None) -> list[str]:
        """Return in what this run differs from a claim's setting; unknown counts as different."""
        if setting is None:
            return ["the claim does not state its hardware and model"]
        pairs = (
            ("hardware", setting.hardware, self.hardware, _hardware_key),
            ("devices", str(setting.devices), str(self.devices), str),
            ("model", setting.model, self.model, canonical_model),
            ("precision", setting.precision, self.precision, _precision_key),
        )
        return [
            f"{what} {ours or 'unknown'} instead of {theirs or 'unstated'}"
            for what, theirs, ours, key in pairs
            if theirs is None or ours is None or key(theirs) != key(ours)
        ]

    @property
    def label(self) -> str:
        """Return a short text for reasons: hardware and model."""
        where = f"{self.devices} x {self.hardware}" if self.has_gpu else self.hardware
        return f"{self.model or 'an unknown model'} on {where or 'unknown hardware'}"


def _hardware_key(name: str) -> str:
    try:
        return hardware_named(name).name
    except InputError:
        return name.strip().lower()


def _precision_key(name: str) -> str:
    return {"fp16": "bf16", "float16": "bf16", "bfloat16": "bf16"}.get(name.lower(), name.lower())


def conditions_of(
    host: Mapping[str, Any] | None,
    manifest: Mapping[str, Any] | None,
    installs: pl.DataFrame | None = None,
) -> Conditions:
    """Return the conditions that a host's facts, a manifest (or a study) and installs describe."""
    facts, whole = host or {}, manifest or {}
    known = [] if installs is None else installs.select("engine", "version").rows()
    versions = {str(engine): str(version) for engine, version in known if version}
    inner = whole.get("study")
    study: Mapping[str, Any] = inner if isinstance(inner, Mapping) else whole
    named = [e for e in study.get("engines") or () if isinstance(e, Mapping)]
    engines = [_with_recipe(e, whole) for e in named]
    gpus = facts.get("gpus") or []
    cpu = facts.get("cpu") or {}
    return Conditions(
        hardware=gpus[0].get("name") if gpus else cpu.get("model"),
        has_gpu=bool(gpus) if facts else None,
        devices=max((_devices(e) for e in engines), default=1),
        model=_model(study),
        precision=_precision(study, engines),
        families={str(e["name"]): family_of(e["name"], str(e.get("recipe", ""))) for e in engines},
        versions=versions,
        digest=digest_of(dict(study)) if study else None,
    )


def _devices(engine: Mapping[str, Any]) -> int:
    options = engine.get("options") or {}
    return max((int(options[k]) for k in _DEVICE_OPTIONS if options.get(k)), default=1)


def _model(study: Mapping[str, Any]) -> str | None:
    spec = study.get("model")
    if isinstance(spec, Mapping):
        spec = next((spec[k] for k in ("name", "hub", "dummy", "path") if spec.get(k)), None)
    return str(spec) if spec else None


def _precision(study: Mapping[str, Any], engines: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the precision when all engines are told the same one."""
    spec = study.get("model")
    named = [spec.get("precision")] if isinstance(spec, Mapping) else []
    for engine in engines:
        options = engine.get("options") or {}
        named.append(options.get("quantization") or options.get("dtype"))
    known = {str(v) for v in named if v}
    return known.pop() if len(known) == 1 else None


def _with_recipe(engine: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return an engine of a study whose options stand over those of its recipe, where known."""
    facts = manifest.get("engines")
    entry = facts.get(engine["name"]) if isinstance(facts, Mapping) else None
    recipe = (entry or {}).get("recipe")
    base = recipe.get("options") if isinstance(recipe, Mapping) else None
    return {**engine, "options": {**(base or {}), **(engine.get("options") or {})}}
