"""What stands in a study file is data: no code of it runs, no path of it leaves its folder."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
import yaml
from hostile_support import EVIL, HTML, LONG, TERMINAL, VEGA
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook
from papermill.parameterize import parameterize_notebook

from enginebook import cli
from enginebook.claims import register
from enginebook.claims.register import read_claims
from enginebook.engines.base import LaunchPlan, ModelFiles
from enginebook.engines.exposure import refuse_secret_words
from enginebook.engines.recipes import load_recipe, recipe_for, recipe_names
from enginebook.engines.registry import ALL, adapter
from enginebook.errors import BAD_INPUT, EnginebookError, InputError
from enginebook.lifecycle import owned
from enginebook.lifecycle.containers import Box
from enginebook.paths import inside, params_dir
from enginebook.pipeline.executors import Wishes
from enginebook.pipeline.parameters import check_parameters
from enginebook.pipeline.runner import Prepared
from enginebook.report.runs import render_run
from enginebook.store import write_json
from enginebook.study import EngineSpec, slug
from enginebook.study_file import load_study, parse_yaml, study_from_parameters

SHELL = (
    "; touch pwned", "$(touch pwned)", "`touch pwned`", "| touch pwned", "&& touch pwned",
    "> pwned", "'; touch pwned; '", '" touch pwned "', "line\nbreak", "--flag=value", "{x}", "%s",
    "\\", "*", "~", "#", "!history",
)  # fmt: skip
STUDY = {
    "study": "mini",
    "question": "Which?",
    "model": "smollm2-135m-instruct",
    "engines": ["simulated"],
    "scenarios": [{"name": "s", "concurrency": 1}],
}

# -- notebooks

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["'''", '"""', "\\", '\\"', "\n", "\r", "\u2028", "{{x}}", "#", "f'{1}'"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=10,
)


def injected(parameters: dict[str, object]) -> str:
    """Return the source that papermill puts into a notebook."""
    declared = "\n".join(f"{name}: object = None" for name in parameters)
    notebook = new_notebook(cells=[new_code_cell(declared, metadata={"tags": ["parameters"]})])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "x", "language": "python"}
    notebook.metadata.papermill = {}
    made = parameterize_notebook(notebook, parameters, kernel_name="python3", language="python")
    return next(c.source for c in made.cells if "injected-parameters" in c.metadata.tags)


@given(values, values)
@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
def test_parameters_come_out_as_they_went_in_and_nothing_else_happens(first, second):
    parameters = {"question": first, "engines": second}
    names: dict[str, object] = {"__builtins__": {"True": True, "False": False, "None": None}}
    exec(injected(parameters), names)
    names.pop("__builtins__")
    assert names == parameters


@pytest.mark.parametrize("text", [*SHELL, *HTML, *TERMINAL, *VEGA, EVIL, LONG])
def test_hostile_words_stay_words(text):
    names: dict[str, object] = {}
    exec(injected({"question": text, "engines": [{text: text}]}), names)
    assert names["question"] == text
    assert names["engines"] == [{text: text}]


@pytest.mark.parametrize(
    "name", ["x\nimport os", "question; import os", "__import__('os')", "", "a b"]
)
def test_a_name_that_is_code_is_refused(tmp_path, name):
    cell = new_code_cell("question: str = 'x'", metadata={"tags": ["parameters"]})
    nbformat.write(new_notebook(cells=[cell]), tmp_path / "n.ipynb")
    with pytest.raises(InputError, match="does not declare"):
        check_parameters(tmp_path / "n.ipynb", {name: 1})
    with pytest.raises(InputError, match="unknown"):
        study_from_parameters({**STUDY, name: 1})


# -- YAML

LETTERS = "abcdefghi"
BAD_YAML = {
    "call": '!!python/object/apply:os.system ["touch pwned"]',
    "new": "!!python/object/new:os.system [touch pwned]",
    "module": "study: !!python/module:os",
    "name": "study: !!python/name:os.system",
    "tuple": "study: !!python/tuple [1]",
    "unknown tag": "study: !x 1",
    "binary": "study: !!binary aGFsbG8=",
    "set": "study: !!set {a, b}",
    "list as key": "? [a, b]\n: 1",
    "mapping as key": "? {a: b}\n: 1",
    "twice": "study: a\nstudy: b",
    "deep": "study: " + "[" * 3000 + "]" * 3000,
    "deeper": "study: " + "{a: " * 20_000,
    "itself": "study: &a [*a]",
    "laughs": "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "\n".join(f"{n}: &{n} [{','.join([f'*{p}'] * 9)}]" for p, n in pairwise(LETTERS)),
    "laughs in pairs": "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "\n".join(f"{n}: &{n} !!pairs [{','.join([f'k: *{p}'] * 9)}]" for p, n in pairwise(LETTERS)),
    "laughs in order": "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "\n".join(f"{n}: &{n} !!omap [{','.join([f'k: *{p}'] * 9)}]" for p, n in pairwise(LETTERS)),
    "pairs": "study: !!pairs [a: b]",
    "omap": "study: !!omap [a: b]",
    "date": "study: 2026-13-45",
    "time": "study: 2026-01-01T00:00:00Z",
    "not a number": "margin: .nan",
    "infinite": "hourly_price: .inf",
    "huge": "seed: " + "9" * 6000,
    "nul": "study: a\x00b",
    "escape": "study: a\x1b[31mb",
    "half a character": 'study: "\\ud800"',
    "bom and rubbish": "\ufeff: : :",
    "a list": "[1, 2]",
    "empty": "",
    "text": "just words",
    "long": "study: " + "a" * 200_000,
    "slashes": "study: ../../etc/passwd",
}  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("text", BAD_YAML.values(), ids=BAD_YAML)
def test_a_study_file_that_is_no_plain_data_is_refused(here, capsys, text):
    file = here / "x.yaml"
    file.write_text(text, encoding="utf-8")
    status = cli.main(["run", str(file), "--dry-run", "--output", str(here / "outputs")])
    said = capsys.readouterr().err
    assert status == BAD_INPUT
    assert "Traceback" not in said
    assert len(said) < 3000
    assert "\x1b" not in said
    assert not (here / "pwned").exists()
    assert not (here / "outputs").exists()


@pytest.mark.parametrize(
    "name", ["laughs", "laughs in pairs", "laughs in order", "pairs", "omap", "set"]
)
def test_what_is_not_counted_is_not_read(name):
    with pytest.raises(yaml.YAMLError):
        parse_yaml(BAD_YAML[name])


def test_a_large_value_is_not_written_out_to_be_cut_short():
    class Seen:
        times = 0

        def __repr__(self) -> str:
            Seen.times += 1
            return "x"

    with pytest.raises(InputError, match=r"key question: .*given: \[x, x"):
        study_from_parameters({**STUDY, "question": [Seen()] * 1000})
    assert Seen.times < 100


@pytest.mark.parametrize("data", [b"\xff\xfea\x00", b"study: \xe9", bytes(range(256))])
def test_a_study_file_that_is_no_text_is_refused(here, capsys, data):
    (here / "x.yaml").write_bytes(data)
    assert cli.main(["run", "x.yaml", "--dry-run"]) == BAD_INPUT
    assert "x.yaml" in capsys.readouterr().err


def test_json_is_read_as_json_means_it():
    value = {"a": "😀 \u00e9", "b": [1, 2.5, None, True, "\n\\"], "c": {}}
    assert parse_yaml(json.dumps(value)) == value
    assert parse_yaml(json.dumps(value, ensure_ascii=False)) == value


@given(st.text(max_size=80) | st.text("[]{}:,*&!|>-?'\"#%@ \na1", max_size=60))
@settings(deadline=None, max_examples=300)
def test_any_text_is_yaml_or_is_refused(text):
    try:
        parse_yaml(text)
    except yaml.YAMLError:
        return


@pytest.mark.parametrize("name", ["call", "module", "deep", "laughs", "itself", "list as key"])
def test_claims_recipes_and_models_are_read_with_the_same_care(here, monkeypatch, name):
    with pytest.raises(InputError):
        read_claims(BAD_YAML[name], "x.yaml")
    (here / "evil.yaml").write_text(BAD_YAML[name])
    with pytest.raises(InputError):
        load_recipe("evil", here)
    assert not (here / "pwned").exists()


FILLS = ("{name} has {value:g} at {row}", "{engine}")
OVERFILLS = (
    "{value:>999999999}", "{row.__class__}", "{name[0]}", "{engine!r:>99999999}", "{}", "{0}", "{",
    "{value:{row}}",
)  # fmt: skip


def test_a_claims_text_can_show_its_words_and_nothing_else():
    words = {"name": "vLLM", "engine": "vllm", "row": 1, "value": 2.5}
    assert [register._filled(t, words) for t in FILLS] == ["vLLM has 2.5 at 1", "vllm"]
    for template in OVERFILLS:
        with pytest.raises(InputError, match="cannot be filled"):
            register._filled(template, words)


# -- names and paths

CLIMBING = (
    "../x", "..", "/etc/passwd", "a/../../b", "a\x00b", "x" * 300, "x" * 5000, "", ".", "-rf",
    "a\nb", "~", "a b", "\u202ea", "C:\\x", "%2e%2e%2f",
)  # fmt: skip
NAMED: dict[str, object] = {
    "study": lambda v: {"study": v},
    "engine": lambda v: {"engines": [{"name": v, "recipe": "simulated"}]},
    "recipe": lambda v: {"engines": [{"name": "a", "recipe": v}]},
    "arm": lambda v: {"engines": [{"name": "a", "recipe": "simulated", "arm": v}]},
    "scenario": lambda v: {"scenarios": [{"name": v, "concurrency": 1}]},
    "use": lambda v: {"scenarios": [{"use": v}]},
    "model": lambda v: {"model": {"name": v}},
    "dummy": lambda v: {"model": {"dummy": v}},
    "hub": lambda v: {"model": {"hub": v}},
    "revision": lambda v: {"model": {"hub": "a/b", "revision": v}},
}


@pytest.mark.parametrize("value", CLIMBING, ids=[repr(v)[:20] for v in CLIMBING])
@pytest.mark.parametrize("key", NAMED)
def test_a_name_is_no_path(key, value):
    with pytest.raises(InputError) as told:
        study_from_parameters({**STUDY, **NAMED[key](value)})  # type: ignore[operator]
    assert len(str(told.value)) < 3000


@pytest.mark.parametrize("value", ["a\x00b", "x" * 300, "x" * 5000, "a\nb", "", "\u202ea"])
@pytest.mark.parametrize("key", ["path", "noise_floor"])
def test_a_path_is_one_that_can_be(here, capsys, key, value):
    changed = {"model": {"path": value}} if key == "path" else {"noise_floor": value}
    (here / "x.yaml").write_text(json.dumps({**STUDY, **changed}))
    assert cli.main(["run", "x.yaml", "--dry-run", "--output", "o"]) == BAD_INPUT
    assert "Traceback" not in capsys.readouterr().err


@given(st.text(max_size=60))
def test_a_slug_is_a_name_in_a_folder(text):
    name = slug(text)
    assert name
    assert "/" not in name
    assert not name.startswith((".", "-"))
    assert name.isascii()


@pytest.mark.parametrize("name", ["../../../x", "/etc/passwd", "a/../../../../x", "a\x00b"])
def test_a_manifest_names_files_of_its_outputs_alone(tmp_path, name):
    folder = tmp_path / "outputs" / "runs" / "r"
    with pytest.raises(InputError, match="is not below"):
        inside(tmp_path / "outputs", folder, name)
    assert inside(tmp_path / "outputs", folder, "../../stages/x") == tmp_path / "outputs/stages/x"


@pytest.mark.parametrize("key", ["html", "notebook", "data", "claims", "host_file"])
def test_a_foreign_run_neither_reads_nor_writes_elsewhere(tmp_path, key):
    folder = tmp_path / "outputs" / "runs" / "r"
    names = {"html": "../../reports/r.html", "notebook": "n.ipynb"}
    manifest: dict[str, object] = {"run": "r", "study": {}, "report": names}
    victim = tmp_path / "victim.html"
    victim.write_text("{}")
    if key in names:
        names[key] = f"../../../{victim.name}"
    else:
        manifest[key] = f"../../../{victim.name}"
    write_json(folder / "manifest.json", manifest)
    nbformat.write(new_notebook(), folder / "n.ipynb")
    with pytest.raises(InputError, match="is not below"):
        render_run(folder)
    assert victim.read_text() == "{}"


# -- command lines


def plan(name: str, options: dict[str, object]) -> LaunchPlan:
    form = adapter(name).model_format
    model = ModelFiles("m", Path("/models/m"), form, Path("/models/m"))
    return LaunchPlan(Path("/env/bin/python"), model, "127.0.0.1", 4000, options, Path("/tmp/x"))


STARTED = [a.id for a in ALL if a.id != "ollama"]


@pytest.mark.parametrize("word", SHELL)
@pytest.mark.parametrize("name", STARTED)
def test_an_argument_is_one_word_of_the_command_line(name, word):
    command = adapter(name).command(plan(name, {"extra_args": [word]}))
    assert command.argv.count(word) == 1
    model = ModelFiles("m", Path("/models/m"), "hf", Path("/models/m"))
    for runtime in ("docker", "podman", "apptainer"):
        box = Box.of(runtime, "image", "t", gpu=False, model=model, work=Path("/tmp/x"))
        assert box.wrap(command).argv.count(word) == 1


def test_words_arrive_as_they_were_given(tmp_path):
    """Through the guard, as an engine's own process sees them."""
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    words = [w for w in (*SHELL, *TERMINAL, "", "é\u202e") if "\x00" not in w]
    process = owned.start([sys.executable, "-c", code, *words], env={}, directory=tmp_path)
    process.wait_report(20)
    process.stop()
    line = (tmp_path / "engine.log").read_text().split("] ", 1)[1]
    assert json.loads(line) == words
    assert not (tmp_path / "pwned").exists()


def test_what_users_are_told_to_type_is_quoted(here):
    place = here / "it's; touch pwned"
    prepared = Prepared(place / "a b.yaml", None, None, place, _Local(), {}, Wishes())  # type: ignore[arg-type]
    words = shlex.split(prepared.resume)
    assert words[:2] == ["enginebook", "run"]
    assert words[2] == str(place / "a b.yaml")
    assert words[-1] == str(place)


class _Local:
    name = "local"


@pytest.mark.parametrize("name", recipe_names())
def test_no_recipe_trusts_code_that_comes_with_a_model(name):
    recipe = load_recipe(name)
    assert "trust" not in (params_dir() / "engines" / f"{name}.yaml").read_text().lower()
    if recipe.engine in STARTED:
        command = adapter(recipe.engine).command(plan(recipe.engine, dict(recipe.options)))
        shown = " ".join([*command.argv, *command.env, *recipe.env]).lower()
        assert "trust_remote_code" not in shown.replace("-", "_")


@pytest.mark.parametrize("name", STARTED)
def test_no_adapter_trusts_code_that_comes_with_a_model(name):
    command = adapter(name).command(plan(name, {}))
    words = " ".join([*command.argv, *map("=".join, command.env.items())])
    assert "trust_remote_code" not in words.replace("-", "_").lower()
    assert "127.0.0.1" in words or name == "lmdeploy"


@pytest.mark.parametrize(
    "words", [["--api-key", "abc"], ["--api-key=abc"], ["--hf-token", "x"], ["--ssl-password=x"]]
)
def test_a_key_on_a_command_line_is_refused_without_being_repeated(words):
    with pytest.raises(ValueError, match="secret") as told:
        refuse_secret_words(words)
    assert "abc" not in str(told.value)
    for name in STARTED:
        with pytest.raises(InputError, match="secret"):
            adapter(name).check_options({"extra_args": words})


def test_counts_of_tokens_are_no_secrets():
    refuse_secret_words(["--max-total-tokens", "99", "--tokenizer", "x", "--api-key-header"])
    refuse_secret_words(["--speculative-token-map", "x", "--stop-token-ids", "1"])
    refuse_secret_words(["--pad-token-id=0"])


def test_a_value_that_looks_like_a_name_with_a_value_is_a_value():
    refuse_secret_words(["--chat-template-kwargs", '{"a":"token=b"}', "a b token=c"])
    with pytest.raises(ValueError, match="secret"):
        refuse_secret_words(["token=b"])


@pytest.mark.parametrize("user", ["bob:secret", ":secret", "bob"])
def test_a_password_in_an_address_is_refused_before_anything_is_written(here, capsys, user):
    place = {"kind": "external", "base_url": f"http://{user}@localhost:9/v1"}
    engine = {"name": "e", "recipe": "simulated", "environment": place}
    (here / "x.yaml").write_text(yaml.safe_dump({**STUDY, "engines": [engine]}))
    assert cli.main(["run", "x.yaml", "--output", str(here / "outputs")]) == BAD_INPUT
    said = capsys.readouterr().err
    assert "secret" not in said.replace("looks like a secret", "")
    assert not (here / "outputs").exists()
    with pytest.raises(InputError, match="user name or a password"):
        recipe_for(EngineSpec(**engine))


def test_a_password_in_any_text_of_a_study_is_refused():
    url = "see https://bob:hunter22@example.org/x"
    for changes in ({"question": url}, {"engines": ["simulated", url]}):
        with pytest.raises(InputError, match=f"key {next(iter(changes))}.*secret") as told:
            study_from_parameters({**STUDY, **changes})
        assert "hunter22" not in str(told.value)
    parameters = {**STUDY, "question": "Is http://host:80/a@b open?"}
    assert study_from_parameters(parameters).question.startswith("Is")


def test_studies_of_the_checkout_still_load():
    for file in sorted(params_dir().glob("*.yaml")):
        if file.name != "models.yaml":
            load_study(file)


def test_snakemake_has_no_wildcards_and_asks_no_shell_to_read_names(tmp_path):
    """A plan's names become rules; odd folders reach Snakemake as they are."""
    source = (Path(cli.__file__).parent / "pipeline" / "Snakefile").read_text()
    shell = source.split("shell:", 1)[1]
    assert "{params.python:q}" in shell
    assert "{params.plan:q}" in shell
    assert "{params.stage:q}" in shell
    assert "wildcards." not in source
    for bad in ("../x", "{x}", "a;b", "$(x)"):
        with pytest.raises((InputError, EnginebookError)):
            study_from_parameters({**STUDY, "engines": [{"name": bad, "recipe": "simulated"}]})


def test_nothing_in_the_library_asks_a_shell():
    found = subprocess.run(
        ["grep", "-rnE", r"shell=True|os\.system|os\.popen|getoutput", "--include=*.py",
         str(Path(cli.__file__).parent)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout == ""
