"""Archives that somebody else made: what they name stays below the folder that they are given."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from enginebook import store
from enginebook.errors import InputError
from enginebook.lifecycle import bundles
from enginebook.lifecycle.bundles_unpack import (
    FACTS,
    FORMAT,
    BundleError,
    read_facts,
    sites_of,
    unpack,
)

NAMES = ("../evil", "/tmp/evil", "a/b", "..", ".", ".hidden", "", "a\x00b", "a\nb", "x" * 300)
PLACES = [*(("archive", n) for n in NAMES), *(("part", n) for n in (*NAMES, 7, None, ["a"]))]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))


def facts(archive: object = "a", part: object = "part.000") -> dict[str, object]:
    return {
        "format": FORMAT,
        "parts": [{"name": part, "bytes": 1, "sha256": "0" * 64}],
        "archives": {archive: {"offset": 0, "bytes": 1, "members_sha256": "0" * 64}},
        "recipes": {"r": {"archives": [archive]}},
    }


@pytest.mark.parametrize(("key", "name"), PLACES, ids=lambda n: repr(n)[:20])
def test_a_bundles_facts_name_no_path(tmp_path, key, name):
    (tmp_path / FACTS).write_text(json.dumps(facts(**{key: name})))
    with pytest.raises(BundleError, match="is no file of a bundle"):
        unpack(tmp_path, ["a"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "said",
    ["", "[]", "7", "{", "[" * 5000, '{"format": 2}', '{"format": 2, "parts": 5, "archives": 5}',
     '{"format": 2, "parts": [5], "archives": {}}', '{"format": [2]}'],
    ids=lambda s: s[:24],
)  # fmt: skip
def test_facts_of_any_form_are_told(tmp_path, said):
    (tmp_path / FACTS).write_text(said)
    with pytest.raises(BundleError):
        read_facts(tmp_path)


def test_an_archive_that_is_not_there_is_told(tmp_path):
    (tmp_path / FACTS).write_text(json.dumps(facts()))
    with pytest.raises(BundleError, match="has no archive"):
        unpack(tmp_path, ["../b"], tmp_path / "out")
    with pytest.raises(BundleError, match="and not x"):
        sites_of(facts(), "x")


# -- bundles of wheels, in one tar


def packed(place: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(place, "w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return place


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "evil",
    [
        member("../evil"), member("/evil"), member("b/../../evil"),
        member("b/evil", tarfile.SYMTYPE, "/etc/passwd"),
        member("b/evil", tarfile.SYMTYPE, "../../../etc/passwd"),
        member("b/evil", tarfile.LNKTYPE, "../../evil"), member("b/evil", tarfile.FIFOTYPE),
        member("b/evil", tarfile.CHRTYPE),
    ],
    ids=lambda m: f"{m.name} {m.type!r}",
)  # fmt: skip
def test_a_tar_writes_below_its_folder_alone(tmp_path, evil):
    data = b"evil" if evil.isfile() else b""
    archive = packed(tmp_path / "b.tar", (member("b", tarfile.DIRTYPE), b""), (evil, data))
    with pytest.raises(InputError), bundles.opened(archive):
        pass
    assert not list(tmp_path.rglob("evil"))
    assert not Path("/evil").exists()


@pytest.mark.parametrize(
    "names", [(), ("a",), ("a", "b")], ids=["empty", "no bundle", "two folders"]
)
def test_a_tar_of_anything_else_is_told(tmp_path, names):
    archive = packed(tmp_path / "b.tar", *((member(n, tarfile.DIRTYPE), b"") for n in names))
    with pytest.raises(InputError), bundles.opened(archive):
        pass


@pytest.mark.parametrize(
    ("sums", "said"),
    [
        ("no sums at all", "{}"), ("\xff", "{}"), ("", "{}"),
        (None, "[]"), (None, "7"), (None, "{"), (None, '{"format": 1}'), (None, "[" * 5000),
    ],
)  # fmt: skip
def test_a_folder_of_anything_else_is_told(tmp_path, sums, said):
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / bundles.FACTS).write_text(said)
    digest = store.sha256_of_file(folder / bundles.FACTS)
    text = f"{digest}  {bundles.FACTS}\n" if sums is None else sums
    (folder / bundles.SUMS).write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError), bundles.opened(folder):
        pass
