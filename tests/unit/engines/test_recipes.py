"""Recipes: what is read, what is refused, and how a study changes them."""

import shutil

import pytest
import yaml

from enginebook import paths
from enginebook.engines.recipes import Recipe, load_recipe, recipe_for, recipe_names
from enginebook.errors import InputError
from enginebook.study import EngineSpec

GOOD = {
    "engine": "vllm",
    "title": "vLLM",
    "version": "1.2.3",
    "environment": {
        "kind": "venv",
        "lock": "x.lock",
        "distribution": "vllm",
        "imports": ["vllm"],
        "disk_gb": 1,
    },
    "model_format": "hf",
}


def changed(**changes):
    return {**GOOD, **changes}


@pytest.fixture
def written(tmp_path):
    def write(data, name="mine"):
        (tmp_path / "x.lock").write_text("vllm==1.2.3\n")
        text = data if isinstance(data, str) else yaml.safe_dump(data)
        (tmp_path / f"{name}.yaml").write_text(text)
        return load_recipe(name, tmp_path)

    return write


def spec(**changes):
    return EngineSpec(name="mine", recipe="vllm-cpu", **changes)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_of_the_project_is_whole(name):
    recipe = load_recipe(name)
    assert recipe.labels
    text = (paths.engine_recipes_dir() / f"{name}.yaml").read_text()
    assert text.startswith("#"), "a recipe begins with what it is and where it runs"
    for lock in (recipe.lock_path, recipe.torch_lock_path):
        assert lock is None or lock.is_file()


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(
        InputError, match=r"did you mean 'vllm-cpu'\? known recipes: .*llamacpp-cpu"
    ):
        load_recipe("vllm_cpu")


def test_a_good_recipe_is_read(written):
    recipe = written(GOOD)
    assert (recipe.name, recipe.version, recipe.arm) == ("mine", "1.2.3", "defaults")
    assert recipe.lock_path.read_text() == "vllm==1.2.3\n"
    assert recipe.torch_lock_path is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("- a list", "not a mapping"),
        ("a: [", "cannot be read"),
        (changed(titel="x"), "titel"),
        (changed(engine="vlm"), "did you mean 'vllm'"),
        (changed(version="latest"), "version"),
        (changed(model_format="onnx"), "model_format"),
        (changed(environment={"kind": "conda"}), "environment"),
        (changed(environment={**GOOD["environment"], "lock": "../x.lock"}), "lock"),
        (changed(environment={**GOOD["environment"], "lock": "y.lock"}), "engines.lock mine"),
        (changed(environment={**GOOD["environment"], "disk_gb": -1}), "disk_gb"),
        (changed(options={"max_modellen": 1}), "did you mean 'max_model_len'"),
        (changed(options={"max_model_len": "2048"}), "option max_model_len"),
        (changed(options={"gpu_layers": 1}), "no option 'gpu_layers'"),
        (changed(labels=["fast"]), "labels"),
    ],
)
def test_bad_recipes_name_file_key_and_remedy(written, data, problem):
    with pytest.raises(InputError) as caught:
        written(data)
    assert problem in str(caught.value)
    assert caught.value.exit_status == 2
    assert caught.value.remedy


def test_options_of_a_study_go_over_the_recipe_s():
    recipe = recipe_for(spec(options={"max_num_seqs": 2, "prefix_cache": False}))
    assert recipe.options["max_num_seqs"] == 2
    assert recipe.options["prefix_cache"] is False
    assert recipe.options["dtype"] == "float32"
    assert recipe.lock_path == load_recipe("vllm-cpu").lock_path


def test_a_study_without_changes_gets_the_file():
    assert recipe_for(spec()) == load_recipe("vllm-cpu")


def test_a_misspelt_option_of_a_study_names_its_engine():
    with pytest.raises(InputError, match=r"engine mine.*no option 'max_num_seq'"):
        recipe_for(spec(options={"max_num_seq": 2}))


def test_an_option_without_counterpart_says_what_it_means():
    with pytest.raises(InputError, match=r"llama.cpp has no counterpart of .*'tensor_parallel'"):
        recipe_for(EngineSpec(name="l", recipe="llamacpp-cpu", options={"tensor_parallel": 2}))


def test_another_kind_of_environment_replaces_the_recipe_s():
    given = {"kind": "external", "base_url": "http://127.0.0.1:8000"}
    recipe = recipe_for(spec(environment=given))
    assert recipe.environment.kind == "external"
    assert recipe.lock_path is None


def test_the_same_kind_of_environment_is_changed_key_by_key():
    recipe = recipe_for(spec(environment={"python": ">=3.12,<3.13"}))
    assert recipe.environment.python == ">=3.12,<3.13"
    assert recipe.environment.lock == "vllm-cpu.lock"


def test_an_existing_python_needs_no_lock():
    recipe = recipe_for(spec(environment={"kind": "existing", "python": "/opt/vllm/bin/python"}))
    assert recipe.environment.python == "/opt/vllm/bin/python"


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "external"},
        {"kind": "external", "base_url": "not a url"},
        {"kind": "venv", "locks": "x.lock"},
        {"kind": "existing"},
    ],
)
def test_wrong_environments_are_refused(given):
    with pytest.raises(InputError, match="environment"):
        recipe_for(spec(environment=given))


def test_recipes_are_frozen():
    recipe = load_recipe("llamacpp-cpu")
    with pytest.raises(ValueError, match="frozen"):
        recipe.version = "2"
    assert isinstance(recipe, Recipe)


def test_names_are_those_of_the_files(tmp_path):
    source = paths.engine_recipes_dir()
    shutil.copy(source / "llamacpp-cpu.yaml", tmp_path / "b.yaml")
    shutil.copy(source / "llamacpp-cpu.yaml", tmp_path / "a.yaml")
    assert recipe_names(tmp_path) == ["a", "b"]
