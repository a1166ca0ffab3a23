"""Locks: each answers its recipe, and the tool that makes them."""

import sys

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from enginebook import paths
from enginebook.engines import lock
from enginebook.engines.recipes import load_recipe, recipe_names
from enginebook.errors import InputError, InstallError

FOLDER = paths.engine_recipes_dir()
LOCKED = [n for n in recipe_names() if load_recipe(n).lock_path is not None]
FILES = sorted(FOLDER.glob("*.lock"))
HASH = "sha256:" + "0" * 64


def entries(path):
    return lock.parse_lock(path.read_text(encoding="utf-8"))


def installed_on(path, platform, python):
    """Return name -> version of what this host would install."""
    where = lock.marker_environment(platform, python)
    chosen = [
        e.requirement
        for e in entries(path)
        if e.requirement.marker is None or e.requirement.marker.evaluate(where)
    ]
    names = [canonicalize_name(r.name) for r in chosen]
    assert len(names) == len(set(names)), "two versions of one package on one host"
    return {canonicalize_name(r.name): str(r.specifier) for r in chosen}


def direct(path):
    text = path.with_suffix(".in").read_text()
    return [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]


def left_out(path):
    file = path.with_suffix(".overrides.txt")
    lines = file.read_text().splitlines() if file.is_file() else []
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(r.name) for r in found if "never" in str(r.marker)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_entry_is_pinned_and_hashed(path):
    found = entries(path)
    assert found
    for entry in found:
        assert [s.operator for s in entry.requirement.specifier] == ["=="], entry.requirement
        assert not entry.requirement.url
        assert entry.hashes, entry.requirement
        assert all(h.startswith("sha256:") and len(h) == 71 for h in entry.hashes)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_no_lock_names_a_host_or_a_path(path):
    text = path.read_text(encoding="utf-8")
    for word in ("://", "file:", "/", "--index", "--find-links", "never"):
        assert word not in text


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_lock_belongs_to_a_recipe_and_has_its_input(path):
    named = {p for n in LOCKED for p in (load_recipe(n).lock_path, load_recipe(n).torch_lock_path)}
    assert path in named
    assert path.with_suffix(".in").is_file()


@pytest.mark.parametrize("python", lock.PYTHONS)
@pytest.mark.parametrize("name", LOCKED)
def test_a_lock_answers_its_recipe_on_every_host_it_serves(name, python):
    recipe = load_recipe(name)
    if not SpecifierSet(recipe.environment.python).contains(python):
        pytest.skip(f"the recipe does not serve Python {python}")
    for platform in recipe.environment.requires.platforms:
        found = installed_on(recipe.lock_path, platform, python)
        wanted = canonicalize_name(recipe.environment.distribution)
        assert found[wanted] == f"=={recipe.version}"
        for requirement in direct(recipe.lock_path):
            pin = found[canonicalize_name(requirement.name)].removeprefix("==")
            assert requirement.specifier.contains(pin, prereleases=True)


@pytest.mark.parametrize("name", LOCKED)
def test_what_overrides_leave_out_is_not_there(name):
    recipe = load_recipe(name)
    found = {canonicalize_name(e.requirement.name) for e in entries(recipe.lock_path)}
    assert not found & left_out(recipe.lock_path)
    if recipe.environment.torch is not None:
        assert "torch" in left_out(recipe.lock_path)
        assert not [n for n in found if n.startswith("nvidia-") and n != "nvidia-ml-py"]


@pytest.mark.parametrize("name", [n for n in LOCKED if load_recipe(n).torch_lock_path])
def test_the_ordinary_pytorch_is_the_version_asked_for(name):
    recipe = load_recipe(name)
    for python in lock.PYTHONS:
        found = installed_on(recipe.torch_lock_path, "linux-x86_64", python)
        assert found["torch"] == f"=={recipe.environment.torch.version}"


@pytest.mark.parametrize("name", [n for n in LOCKED if load_recipe(n).environment.torch])
def test_what_pytorch_itself_needs_is_locked(name):
    """PyTorch is installed without its requirements; those that are no CUDA must come from here."""
    recipe = load_recipe(name)
    needed = {"filelock", "fsspec", "jinja2", "networkx", "sympy", "mpmath", "typing-extensions"}
    assert needed <= set(installed_on(recipe.lock_path, "linux-x86_64", "3.11"))


SAMPLE = f"""# a comment
alpha==1.0 \\
    --hash={HASH} \\
    --hash={HASH}
beta==2.0 ; sys_platform == 'win32' \\
    --hash={HASH}
gamma==3.0 ; python_full_version >= '3.12' \\
    --hash={HASH}
torch==9 ; sys_platform == 'never' \\
    --hash={HASH}
"""


def test_parsing_a_lock():
    found = lock.parse_lock(SAMPLE)
    assert [e.requirement.name for e in found] == ["alpha", "beta", "gamma", "torch"]
    assert [len(e.hashes) for e in found] == [2, 1, 1, 1]
    assert found[0].hashes[0] == HASH


def test_trimming_keeps_what_some_host_installs():
    text = lock.trimmed(SAMPLE, ("linux-x86_64",))
    assert [e.requirement.name for e in lock.parse_lock(text)] == ["alpha", "gamma"]
    assert text.endswith(f"--hash={HASH}\n")
    both = lock.trimmed(SAMPLE, ("linux-x86_64", "windows-amd64"))
    assert [e.requirement.name for e in lock.parse_lock(both)] == ["alpha", "beta", "gamma"]


def test_the_command_resolves_for_all_platforms_with_hashes(tmp_path):
    command = lock.compile_command(tmp_path / "a.in", tmp_path / "a.overrides.txt", tmp_path / "a")
    assert command[:4] == [sys.executable, "-m", "uv", "pip"]
    assert {"--universal", "--generate-hashes", "--no-emit-index-url"} <= set(command)
    assert command[-1].endswith("overrides.txt")


def test_a_lock_needs_its_input(tmp_path):
    with pytest.raises(InputError, match=r"a\.in is not there"):
        lock.make_lock(tmp_path / "a.lock", ("linux-x86_64",))


@pytest.fixture
def uv_writes(monkeypatch):
    """Stand in for uv: write a text to the file it was given, and end with a status."""

    def prepare(text, status=0, trouble=""):
        def command(_source, _overrides, output):
            code = "import sys; open(sys.argv[1], 'w').write(sys.argv[2]); "
            code += "sys.stderr.write(sys.argv[3]); sys.exit(int(sys.argv[4]))"
            return [sys.executable, "-c", code, str(output), text, trouble, str(status)]

        monkeypatch.setattr(lock, "compile_command", command)

    return prepare


def test_a_failed_resolution_leaves_the_old_lock(tmp_path, uv_writes):
    (tmp_path / "a.in").write_text("alpha\n")
    (tmp_path / "a.lock").write_text("old\n")
    uv_writes("", status=1, trouble="no such version")
    with pytest.raises(InstallError, match="no such version"):
        lock.make_lock(tmp_path / "a.lock", ("linux-x86_64",))
    assert (tmp_path / "a.lock").read_text() == "old\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.in", "a.lock"]


def test_a_lock_with_a_host_in_it_is_not_written(tmp_path, uv_writes):
    (tmp_path / "a.in").write_text("alpha\n")
    uv_writes(f"alpha @ https://example.org/a.whl \\\n    --hash={HASH}\n")
    with pytest.raises(InstallError, match="host or a path"):
        lock.make_lock(tmp_path / "a.lock", ("linux-x86_64",))
    assert not (tmp_path / "a.lock").exists()


def test_a_made_lock_is_trimmed(tmp_path, uv_writes):
    (tmp_path / "a.in").write_text("alpha\n")
    uv_writes(SAMPLE)
    assert lock.make_lock(tmp_path / "a.lock", ("linux-x86_64",)) == 2
    assert "torch" not in (tmp_path / "a.lock").read_text()


def test_locks_of_a_recipe_are_found_before_they_exist(tmp_path):
    (tmp_path / "r.yaml").write_text(
        "environment: {lock: a.lock, torch: {fallback_lock: t.lock},"
        " requires: {platforms: [linux-aarch64]}}\n"
    )
    assert lock.recipe_locks("r", tmp_path) == [
        (tmp_path / "a.lock", ("linux-aarch64",)),
        (tmp_path / "t.lock", ("linux-aarch64",)),
    ]
    with pytest.raises(InputError, match="no engine recipe 's'"):
        lock.recipe_locks("s", tmp_path)


def test_the_tool_says_what_is_wrong_and_exits_2(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lock", "no-such-recipe"])
    assert lock.main() == 2
    assert "known recipes" in capsys.readouterr().err
