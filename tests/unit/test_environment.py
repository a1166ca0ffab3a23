"""environment.yml, pyproject.toml and requirements.lock agree."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from enginebook.paths import project_root

ROOT = project_root()


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def conda() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def test_conda_names_only_python_and_installers(conda: dict[str, Any]) -> None:
    names = {re.split(r"[=<>]", d)[0] for d in conda["dependencies"] if isinstance(d, str)}
    assert names == {"python", "pip", "uv"}


def test_conda_python_is_one_the_project_supports(
    conda: dict[str, Any], project: dict[str, Any]
) -> None:
    (python,) = [
        m[1]
        for d in conda["dependencies"]
        if isinstance(d, str) and (m := re.match(r"python=([\d.]+)\.\*", d))
    ]
    assert SpecifierSet(project["requires-python"]).contains(f"{python}.0")
    for minor in ("3.11", "3.12", "3.13"):
        assert SpecifierSet(project["requires-python"]).contains(f"{minor}.0")


def test_conda_installs_the_project_with_extras_that_exist(
    conda: dict[str, Any], project: dict[str, Any]
) -> None:
    (pip,) = [d["pip"] for d in conda["dependencies"] if isinstance(d, dict)]
    (editable,) = pip
    found = re.fullmatch(r"-e \.\[([a-z,]+)\]", editable)
    assert found is not None
    assert set(found[1].split(",")) == set(project["optional-dependencies"])


def test_the_lock_answers_every_requirement_with_hashes(project: dict[str, Any]) -> None:
    text = (ROOT / "requirements.lock").read_text()
    pins: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", text, re.MULTILINE):
        pins.setdefault(canonicalize_name(name), []).append(version)
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(line for extra in extras for line in extra)]
    for line in wanted:
        requirement = Requirement(line)
        versions = pins.get(canonicalize_name(requirement.name), [])
        assert versions, f"{requirement.name} is not locked: run `make lock`"
        assert all(requirement.specifier.contains(v) for v in versions), line
    entries = re.split(r"^(?=[A-Za-z0-9_.-]+==)", text, flags=re.MULTILINE)
    assert all("--hash=sha256:" in e for e in entries if re.match(r"[A-Za-z0-9_.-]+==", e))


def test_the_lock_names_no_place_to_fetch_from() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"https?://|file:|--index-url|--find-links", text)
