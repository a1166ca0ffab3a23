"""A fake engine as recipe and adapter, so that the lifecycle is tested without a real one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from enginebook.engines import registry
from enginebook.engines.base import Command, LaunchPlan, MemoryPart, ModelFiles, Phase
from enginebook.engines.recipes import ExistingEnvironment, Recipe
from enginebook.lifecycle import server
from enginebook.study import EngineSpec, ModelSpec

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


class FakeAdapter:
    id = "fake"
    title = "Fake engine"
    model_format = "hf"
    ready_path = "/health"
    memory_share = 1.0
    metrics: ClassVar[dict[str, str]] = {}

    def command(self, plan: LaunchPlan) -> Command:
        o = dict(plan.options)
        program = str(o.pop("program", plan.python))
        served = str(o.pop("served", plan.model.model_id))
        argv = [program, str(FAKE_ENGINE), "--port", str(plan.port), "--model", served]
        argv += [f"--{name.replace('_', '-')}={value}" for name, value in o.items()]
        return Command(tuple(argv), {"FAKE_SECRET_TOKEN": "hunter2", "FAKE_THREADS": "1"})

    def phases(self, log: Sequence[tuple[float, str]]) -> list[Phase]:
        return [Phase("weights", 0.0, t, "log") for t, line in log if "listening" in line]

    def memory(self, log: Sequence[str]) -> list[MemoryPart]:
        return [MemoryPart("weights", 1000, "log") for line in log if "loading" in line]

    def settled(self, log: Sequence[str]) -> dict[str, object]:
        return {"threads": 1} if log else {}

    def version_code(self) -> str:
        return "print('9.9')"

    def check_options(self, options: object, where: str = "") -> None:
        pass


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keep every test away from the user's cache."""
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return a function that makes an engine of a study with these options and environment."""
    monkeypatch.setitem(registry.ADAPTERS, "fake", FakeAdapter())
    model = ModelFiles("tiny-model", tmp_path, "hf", tmp_path)
    monkeypatch.setattr(server, "prepare_model", lambda spec, form, on_progress=None: model)

    def recipe_for(spec: EngineSpec) -> Recipe:
        environment = ExistingEnvironment(kind="existing", python=sys.executable)
        if spec.environment:
            environment = dict(spec.environment)
        return Recipe(
            name="fake",
            directory=tmp_path,
            engine="fake",
            title="Fake",
            version="9.9",
            environment=environment,
            options=spec.options,
            model_format="hf",
        )

    monkeypatch.setattr(server, "recipe_for", recipe_for)

    def make(environment: dict | None = None, **options: object) -> EngineSpec:
        return EngineSpec(
            name="fake-1", recipe="fake", options=options, environment=environment or {}
        )

    return make


@pytest.fixture
def model() -> ModelSpec:
    return ModelSpec(name="tiny-model")
