"""Bundles of package folders: made, cut, checked, unpacked by Python alone."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace

import pytest
from site_support import (
    NOISE,
    OPS,
    PYTHON,
    bundle_made_once,
    copied,
    make_host,
    make_recipe,
    request,
    source,
)
from wheel_support import lock_of, make_wheel, only_from

from enginebook import store
from enginebook.engines.recipes import ExistingEnvironment
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle import bundles_site, bundles_unpack
from enginebook.lifecycle.bundles_unpack import MEMBERS, BundleError, unpack
from enginebook.paths import project_root


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    with bundle_made_once(tmp_path_factory.mktemp("original")) as made:
        yield made


@pytest.fixture
def made(original, tmp_path):
    return copied(original, tmp_path)


def contents(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_parts_and_sums(made):
    parts = [made.bundle / p["name"] for p in made.facts["parts"]]
    assert len(parts) > 1
    assert all(p.stat().st_size <= 8000 for p in parts)
    assert all(p.stat().st_size == 8000 for p in parts[:-1])
    names = {p.name for p in made.bundle.iterdir()}
    assert names == {"bundle.json", "unpack.py", "SHA256SUMS", *(p.name for p in parts)}
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=made.bundle, check=False)
    assert done.returncode == 0
    assert not made.bundle.with_name("bundle.work").exists()


def test_facts_say_what_differs_from_the_lock(made):
    about = made.facts["recipes"]["tiny"]
    assert about["lock_sha256"] == store.sha256_of_file(made.recipe.lock_path)
    reasons = {e["name"]: (e["reason"], e["locked"], e["host"]) for e in about["left_out"]}
    assert reasons == {
        "bigtorch": ("host", "2.10", "2.11"),
        "blackwell": ("not needed", "1.0", None),
    }
    locked = made.recipe.lock_path.read_text()
    assert {p["name"] for p in made.facts["packages"]} == {"tiny", "helper"}
    assert all(p["wheel_sha256"] in locked for p in made.facts["packages"])
    changes = {c["path"]: c for c in made.facts["changed_files"]["tiny"]}
    assert changes["tiny_lib/tests/t.py"]["how"] == "left out"
    trimmed = changes["tiny_lib/ops.so"]
    assert (trimmed["how"], trimmed["bytes"]) == ("trimmed", 32)
    assert trimmed["sha256_before"] == hashlib.sha256(OPS).hexdigest()
    assert json.loads((made.bundle / "bundle.json").read_text()) == made.facts


def test_unpacked_files_are_the_wheels_but_for_the_changes(made, tmp_path):
    unpack(made.bundle, ["tiny"], tmp_path / "out")
    found = contents(tmp_path / "out" / "tiny")
    assert found["helper.bin"] == NOISE
    assert found["tiny_lib/ops.so"] == OPS.replace(b"old!", bytes(4))
    assert "tiny_lib/tests/t.py" not in found
    assert len(found) == made.facts["archives"]["tiny"]["files"] + 1  # and the list of members


def test_the_copied_script_needs_python_alone(made, tmp_path):
    copied = tmp_path / "elsewhere"
    shutil.copytree(made.bundle, copied)
    argv = [sys.executable, "-I", "-S", str(copied / "unpack.py"), str(tmp_path / "out")]
    subprocess.run(argv, check=True)
    unpack(made.bundle, ["tiny"], tmp_path / "reference")
    assert contents(tmp_path / "out") == contents(tmp_path / "reference")
    (copied / "part.000").unlink()
    done = subprocess.run([*argv[:-1], str(tmp_path / "o2")], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"{copied} lacks part.000: copy every part\n".encode()


def test_without_xz_the_archive_is_the_same(made, tmp_path, monkeypatch):
    unpack(made.bundle, ["tiny"], tmp_path / "by-xz")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        unpack(made.bundle, ["tiny"], tmp_path / "by-python")
        bundles_site.make([source(made.recipe)], request(None), tmp_path / "again")
    assert contents(tmp_path / "by-python") == contents(tmp_path / "by-xz")
    unpack(tmp_path / "again", ["tiny"], tmp_path / "from-python")
    assert "helper.py" in contents(tmp_path / "from-python" / "tiny")


def test_what_is_there_is_not_unpacked_again(made, tmp_path):
    unpack(made.bundle, ["tiny"], tmp_path / "out")
    (made.bundle / "part.000").unlink()
    unpack(made.bundle, ["tiny"], tmp_path / "out")


@pytest.mark.parametrize("number", [0, -1])
def test_missing_and_changed_parts_are_told(made, tmp_path, number):
    part = made.bundle / made.facts["parts"][number]["name"]
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(BundleError, match=f"{part.name} is changed"):
        unpack(made.bundle, ["tiny"], tmp_path / "out")
    part.unlink()
    with pytest.raises(BundleError, match=f"lacks {part.name}"):
        unpack(made.bundle, ["tiny"], tmp_path / "out")
    assert not (tmp_path / "out" / "tiny").exists()


def forged(folder, members, *, listed=None):
    """Return a bundle whose sums are right and whose archive holds these members."""
    folder.mkdir()
    plain = {m.name: d for m, d in members if m.isfile()}
    if listed is None:
        listed = {n: hashlib.sha256(d).hexdigest() for n, d in plain.items()}
    listing = "".join(f"{digest}  {name}\n" for name, digest in listed.items()).encode()
    first = tarfile.TarInfo(MEMBERS)
    first.size = len(listing)
    with lzma.open(folder / "part.000", "wb") as xz, tarfile.open(fileobj=xz, mode="w|") as tar:
        for member, data in [(first, listing), *members]:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    size = (folder / "part.000").stat().st_size
    digest = store.sha256_of_file(folder / "part.000")
    facts = {
        "format": bundles_unpack.FORMAT,
        "parts": [{"name": "part.000", "bytes": size, "sha256": digest}],
        "archives": {
            "a": {"offset": 0, "bytes": size, "members_sha256": hashlib.sha256(listing).hexdigest()}
        },
    }
    store.write_json(folder / "bundle.json", facts)
    return folder


def member(name, kind=tarfile.REGTYPE, link=""):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "evil",
    [
        member("../evil"),
        member("/tmp/evil-absolute"),
        member("x/../../evil"),
        member("evil", tarfile.SYMTYPE, "/etc/passwd"),
        member("evil", tarfile.LNKTYPE, MEMBERS),
        member("evil", tarfile.FIFOTYPE),
    ],
)
def test_members_that_could_write_elsewhere_are_refused(tmp_path, evil):
    data = b"evil" if evil.isfile() else b""
    bundle = forged(tmp_path / "b", [(evil, data)])
    with pytest.raises(BundleError, match="no file below its folder"):
        unpack(bundle, ["a"], tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("evil*"))


def test_members_are_checked_one_by_one(tmp_path):
    good = hashlib.sha256(b"good").hexdigest()
    same = forged(tmp_path / "b1", [(member("x.py"), b"good")])
    unpack(same, ["a"], tmp_path / "o1")
    assert (tmp_path / "o1" / "a" / "x.py").read_bytes() == b"good"
    changed = forged(tmp_path / "b2", [(member("x.py"), b"evil")], listed={"x.py": good})
    with pytest.raises(BundleError, match=r"x\.py is changed"):
        unpack(changed, ["a"], tmp_path / "o2")
    more = forged(tmp_path / "b3", [(member("x.py"), b"good"), (member("y.py"), b"")],
                  listed={"x.py": good})  # fmt: skip
    with pytest.raises(BundleError, match=r"y\.py is missing or not listed"):
        unpack(more, ["a"], tmp_path / "o3")
    assert not [p for n in ("o2", "o3") for p in (tmp_path / n).iterdir()]


def test_a_broken_stream_is_told(tmp_path):
    bundle = forged(tmp_path / "b", [(member("x.py"), b"good")])
    facts = store.read_json(bundle / "bundle.json")
    facts["archives"]["a"]["bytes"] -= 40
    store.write_json(bundle / "bundle.json", facts)
    with pytest.raises(BundleError):
        unpack(bundle, ["a"], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_what_is_no_bundle_is_told(made, tmp_path):
    with pytest.raises(BundleError, match="is not a bundle"):
        unpack(tmp_path / "nowhere", ["tiny"], tmp_path / "out")
    with pytest.raises(BundleError, match="no archive 'huge'"):
        unpack(made.bundle, ["huge"], tmp_path / "out")
    store.write_json(made.bundle / "bundle.json", {"format": 1})
    with pytest.raises(BundleError, match="not of format"):
        unpack(made.bundle, ["tiny"], tmp_path / "out")


def test_packages_that_recipes_share_travel_once(tmp_path, monkeypatch):
    index = tmp_path / "index"
    only_from(monkeypatch, index)
    recipes = [make_recipe(tmp_path / "engines", index, name) for name in ("one", "two")]
    facts = bundles_site.make([source(r) for r in recipes], request(), tmp_path / "bundle")
    held = {p["name"]: p["archive"] for p in facts["packages"]}
    assert held == {"helper": "one+two", "one": "one", "two": "two"}
    assert list(facts["archives"]) == ["one+two", "one", "two"]
    assert facts["recipes"]["two"]["archives"] == ["two", "one+two"]
    unpack(tmp_path / "bundle", ["two", "one+two"], tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"two", "one+two"}


def test_recipes_of_one_engine_get_folders_of_their_own(tmp_path, monkeypatch):
    index = tmp_path / "index"
    only_from(monkeypatch, index)
    first = source(make_recipe(tmp_path / "engines", index, "one"))
    second = bundles_site.Source("one-old", "one", "1.0", first.lock, first.slimming)
    facts = bundles_site.make([first, second], request(), tmp_path / "bundle")
    assert list(facts["archives"]) == ["one+one-old"]


def test_equal_contents_give_equal_archives(made, tmp_path):
    facts = bundles_site.make(
        [bundles_site.recipe_source(made.recipe)], request(8000), tmp_path / "again"
    )
    assert facts["parts"] == made.facts["parts"]


def test_a_folder_that_is_there_is_not_touched(made):
    before = contents(made.bundle)
    with pytest.raises(InputError, match="is there already"):
        bundles_site.make([source(made.recipe)], request(), made.bundle)
    assert contents(made.bundle) == before


def test_a_failure_leaves_nothing(made, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(InstallError, match="tiny==1"):
        bundles_site.make([source(made.recipe)], request(), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "other.work").exists()


def test_a_recipe_without_a_lock_has_none(made):
    existing = ExistingEnvironment(kind="existing", python="python3")
    with pytest.raises(InputError, match="no lock to bundle"):
        bundles_site.recipe_source(made.recipe.model_copy(update={"environment": existing}))


def test_the_workbook_is_followed_from_its_own_requirements():
    found = bundles_site.workbook_source()
    assert found.name == "workbook"
    assert any(text.startswith("polars") for text in found.roots)
    assert not any(text.startswith("pytest") for text in found.roots)


def test_an_environment_for_the_workbook(tmp_path, original, monkeypatch):
    """As on a host that has nothing but Python: unpack.py makes what runs the command line."""
    page = {"tool-1.0.data/data/share/tool/page.html": b"<html>", "tool.py": b"import bigtorch\n"}
    tool = make_wheel(tmp_path / "index", "tool", "1.0", page, requires=["bigtorch"])
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    lock = tmp_path / "requirements.lock"
    lock.write_text(lock_of(tool))
    workbook = replace(bundles_site.workbook_source(), lock=lock, roots=("tool",))
    bundles_site.make([workbook], request(), tmp_path / "b")
    argv = [sys.executable, str(tmp_path / "b" / "unpack.py"), str(tmp_path / "out")]
    argv += ["--venv", str(tmp_path / "wb"), "--path", str(project_root() / "lib")]
    subprocess.run([*argv, "--python", str(original.host)], check=True)
    assert (tmp_path / "wb" / "share" / "tool" / "page.html").read_bytes() == b"<html>"
    code = (
        "import enginebook, json, tool; from importlib.metadata import entry_points, version; "
        "(found,) = entry_points(group='papermill.engine', name='enginebook'); "
        "print(json.dumps([tool.bigtorch.VERSION, version('enginebook'), found.value]))"
    )
    python = tmp_path / "wb" / "bin" / "python"
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    expected = "enginebook.pipeline.engine:TruthfulEngine"
    assert json.loads(shown.stdout) == ["2.11", workbook.version, expected]
    program = (tmp_path / "wb" / "bin" / "enginebook").read_text()
    assert program.startswith(f"#!{python}\n")


def test_sites_of_a_host_in_an_environment_are_its_own(made, tmp_path):
    sites, version = bundles_unpack.host_sites(str(made.host))
    assert version == PYTHON
    assert str(next((made.folder / "host" / "lib").glob("python3.*/site-packages"))) in sites
    with pytest.raises(BundleError, match="cannot be run"):
        bundles_unpack.host_sites(str(tmp_path / "none"))


def test_two_hosts_are_told_apart(tmp_path):
    other = make_host(tmp_path / "other", tmp_path / "index", "9.9")
    sites, _ = bundles_unpack.host_sites(str(other))
    assert sites[0].startswith(str(tmp_path / "other"))
