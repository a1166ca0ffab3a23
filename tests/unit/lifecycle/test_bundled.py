"""An engine from a bundle on a host that has its PyTorch: installed and proved, or refused."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from site_support import OPS, bundle_made_once, copied, make_host

from enginebook import store
from enginebook.commands import bundle as command
from enginebook.engines import recipes, registry
from enginebook.engines.bundled import Slimming, find_bundle, load_slimming
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle import bundled
from enginebook.lifecycle.environments import install, installed
from enginebook.study import EngineSpec


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    with bundle_made_once(tmp_path_factory.mktemp("original")) as made:
        yield made


@pytest.fixture
def made(original, tmp_path):
    return copied(original, tmp_path)


def ask(python, code):
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_engine_sees_its_own_packages_and_the_hosts(made):
    found = install(made.recipe_from())
    assert (found.kind, found.version, found.packages, found.reused) == ("bundle", "1.0", 2, False)
    assert found.torch == f"the host's own ({made.host})"
    assert [s.name for s in found.steps] == [
        "unpack and check", "bytecode of tiny", "environment", "proof by import",
    ]  # fmt: skip
    version, helper = ask(found.python, "import json, tiny; print(json.dumps(tiny.SEEN))")
    assert version == "2.11"  # the host's, not the locked 2.10
    assert Path(helper).is_relative_to(Path(found.directory).parents[1] / "bundles")
    assert list(Path(helper).parent.glob("__pycache__/helper.*.pyc"))
    where = ask(found.python, "import json, tiny_lib; print(json.dumps(list(tiny_lib.__path__)))")
    assert (Path(where[0]) / "ops.so").read_bytes() == OPS.replace(b"old!", bytes(4))


def test_children_of_the_engine_see_the_same(made):
    found = install(made.recipe_from())
    code = (
        "import json, subprocess, sys\n"
        "run = subprocess.run([sys.executable, '-c', 'import tiny; print(tiny.SEEN[0])'],"
        " capture_output=True, text=True, check=True)\n"
        "print(json.dumps(run.stdout.strip()))"
    )
    assert ask(found.python, code) == "2.11"


def test_what_is_there_is_reused_and_never_unpacked_again(made):
    first = install(made.recipe_from())
    assert installed(made.recipe_from()) == replace(first, reused=True)
    for part in made.bundle.glob("part.*"):
        part.unlink()  # only bundle.json must stay
    assert install(made.recipe_from()).reused
    assert not install(made.recipe_from(), force=True).reused


def test_a_removed_folder_of_packages_is_noticed(made, own_cache):
    install(made.recipe_from())
    (folder,) = (own_cache / "bundles").glob("*/tiny")
    folder.rename(folder.with_name("gone"))
    assert installed(made.recipe_from()) is None
    assert not install(made.recipe_from()).reused


def test_a_host_with_another_version_is_refused(made, tmp_path, own_cache):
    other = make_host(tmp_path / "other", tmp_path / "index", "2.13")
    with pytest.raises(InstallError, match=r"bigtorch 2\.11 \(here: 2\.13\)") as raised:
        install(made.recipe_from(python=str(other)))
    assert "pip list --format=freeze" in raised.value.remedy
    assert not list((own_cache / "engines").glob("tiny*/bin"))


def test_a_host_that_lacks_it_is_refused(made, tmp_path):
    with pytest.raises(InstallError, match=r"bigtorch 2\.11 \(here: None\)"):
        install(made.recipe_from(python=sys.executable))


def test_an_engine_that_cannot_be_imported_leaves_nothing(made, own_cache):
    with pytest.raises(InstallError, match="cannot be imported"):
        install(made.recipe_from(imports=("tiny", "absent")))
    assert not list((own_cache / "engines").glob("tiny*/bin"))
    assert install(made.recipe_from()).version == "1.0"


def test_a_version_that_is_not_the_recipes_is_refused(made):
    wrong = made.recipe_from().model_copy(update={"version": "1.1"})
    with pytest.raises(InstallError, match=r"holds tiny 1\.0, the recipe says 1\.1"):
        install(wrong)


def test_a_changed_part_is_refused(made, own_cache):
    part = made.bundle / "part.000"
    part.write_bytes(b"x" + part.read_bytes()[1:])
    with pytest.raises(InstallError, match=r"part\.000 is changed"):
        install(made.recipe_from())
    assert not list((own_cache / "bundles").glob("*/tiny"))


def test_a_bundle_of_another_lock_is_refused(made, tmp_path):
    lock = tmp_path / "engines" / "tiny.lock"
    lock.parent.mkdir()
    lock.write_text(made.recipe.lock_path.read_text() + "# changed\n")
    other = made.recipe_from().model_copy(update={"directory": lock.parent})
    with pytest.raises(InputError, match=r"was not made from tiny\.lock: it holds tiny"):
        install(other)


def test_a_bundle_for_another_python_is_refused(made):
    store.write_json(made.bundle / "bundle.json", {**made.facts, "python": "3.99"})
    with pytest.raises(InputError, match=r"is for Python 3\.99"):
        install(made.recipe_from())


def test_what_is_no_bundle_is_told(made, tmp_path):
    with pytest.raises(InputError, match="is not a bundle"):
        install(made.recipe_from(path=str(tmp_path)))


def test_the_hosts_python_is_not_the_workbooks(tmp_path, monkeypatch):
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.symlink_to("/bin/true")
    own = Path(sys.prefix, "bin")
    monkeypatch.setenv("PATH", f"{own}:{other.parent}")
    assert bundled.host_python("python3") == other
    monkeypatch.setenv("PATH", str(own))
    with pytest.raises(InputError, match="no interpreter 'python3' outside"):
        bundled.host_python("python3")


@pytest.fixture
def known(made, monkeypatch):
    """Let the recipe's file and adapter be found as those of the checkout are."""

    class Anything:
        def check_options(self, options, *, where=""):
            pass

    monkeypatch.setitem(registry.ADAPTERS, "tiny", Anything())
    monkeypatch.setattr(recipes, "load_recipe", lambda name, directory=None: made.recipe)
    return made


def spec(**environment):
    return EngineSpec(name="t", recipe="tiny", environment=environment)


def test_a_study_names_a_bundle_and_the_recipe_fills_the_rest(known):
    given = {"kind": "bundle", "path": str(known.bundle), "python": str(known.host)}
    recipe = recipes.recipe_for(spec(**given))
    assert recipe.environment == known.recipe_from().environment
    assert recipe.env == {"TINY_QUIET": "1"}
    assert install(recipe).version == "1.0"


def test_a_bundle_in_the_variable_takes_the_place_of_the_network(known, monkeypatch, tmp_path):
    assert recipes.recipe_for(spec()).environment.kind == "venv"
    for place in (known.bundle, known.bundle.parent):
        monkeypatch.setenv("ENGINEBOOK_BUNDLES", str(place))
        recipe = recipes.recipe_for(spec())
        assert recipe.environment.kind == "bundle"
        assert recipe.environment.path == str(known.bundle)
        assert recipe.env == {"TINY_QUIET": "1"}
    kept = recipes.recipe_for(spec(kind="existing", python=sys.executable))
    assert kept.environment.kind == "existing"


def test_bundles_of_other_locks_are_passed_over(made, monkeypatch, tmp_path):
    monkeypatch.setenv("ENGINEBOOK_BUNDLES", str(tmp_path))
    other = tmp_path / "other.lock"
    other.write_text("a==1\n")
    assert find_bundle(other) is None
    assert find_bundle(made.recipe.lock_path) == made.bundle
    (made.bundle / "bundle.json").write_text("[]")
    assert find_bundle(made.recipe.lock_path) is None


def test_a_wrong_key_under_params_bundles_is_told(tmp_path):
    path = tmp_path / "x.yaml"
    assert load_slimming(path) == Slimming()
    path.write_text("leave_outt: [a]\n")
    with pytest.raises(InputError, match="leave_outt"):
        load_slimming(path)


def test_those_of_the_checkout_are_read_and_name_packages_of_their_locks():
    for name in ("vllm-0.26-cuda", "sglang-0.5.17-cuda"):
        recipe = recipes.load_recipe(name)
        slimming = recipes.slimming_of(recipe)
        locked = recipe.lock_path.read_text()
        wrong = [n for n in (*slimming.leave_out, *slimming.accept) if f"\n{n}==" not in locked]
        assert wrong == []
        assert slimming.drop


def arguments(*argv):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(a) for a in argv])


def test_the_command_makes_and_installs(known, tmp_path, monkeypatch, capsys):
    listed = tmp_path / "pip.txt"
    listed.write_text("bigtorch==2.11\n")
    out = tmp_path / "b" / "made"
    argv = ["tiny", "--have", listed, "--arch", "sm_90a", "--part-size", "4KiB", "--output", out]
    assert command.run(arguments(*argv, "--without", "*.bin", "--json", tmp_path / "o.json")) == 0
    facts = json.loads((tmp_path / "o.json").read_text())
    assert facts["architecture"] == "sm_90"
    assert max(p["bytes"] for p in facts["parts"]) <= 4096
    changed = {c["path"] for c in facts["changed_files"]["tiny"]}
    assert {"helper.bin", "tiny_lib/ops.so", "tiny_lib/tests/t.py"} <= changed
    assert f"ENGINEBOOK_BUNDLES={out}" in capsys.readouterr().out
    monkeypatch.setenv("PATH", str(known.host.parent))
    assert command.run(arguments("tiny", "--install", out, "--json", tmp_path / "i.json")) == 0
    assert json.loads((tmp_path / "i.json").read_text())["kind"] == "bundle"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("56MiB", 56 << 20), ("2GB", 2 * 10**9), ("1.5 KiB", 1536), ("4096", 4096)],
)
def test_sizes(text, expected):
    assert command.bytes_of(text) == expected


@pytest.mark.parametrize("text", ["0", "12", "56 apples", "-1MiB", "MiB", "1TiB"])
def test_what_is_no_size_is_told(text):
    with pytest.raises(InputError, match="no size of a part"):
        command.bytes_of(text)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["a", "--arch", "h100"], "no GPU architecture"),
        (["a", "--arch", "sm_90", "--python", "312"], "no version of two numbers"),
        (["a", "b", "--install", "x"], "one engine at a time"),
    ],
)
def test_wrong_arguments_are_told(known, argv, words):
    with pytest.raises(InputError, match=words):
        command.run(arguments(*argv))
