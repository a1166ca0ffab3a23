"""What would fail later is refused before anything starts."""

from __future__ import annotations

import os
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest

from enginebook.errors import InputError
from enginebook.pipeline import checks
from enginebook.study import ModelSpec
from enginebook.study_file import load_study

PARAMS = Path("x.yaml")


def test_an_unknown_model_is_named_with_what_is_near(checkout: Path) -> None:
    with pytest.raises(InputError, match=r"x\.yaml: key model: no model 'tini'") as caught:
        checks.check_model(ModelSpec(name="tini"), PARAMS)
    assert "did you mean 'tiny'" in caught.value.remedy


def test_a_missing_model_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        checks.check_model(ModelSpec(path=str(tmp_path / "no")), PARAMS)
    checks.check_model(ModelSpec(path=str(tmp_path)), PARAMS)


def test_a_port_in_use_names_its_holder() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(InputError, match=rf"key port: {port}.*process {os.getpid()}"):
            checks.check_port(port, PARAMS)
    checks.check_port(port, PARAMS)
    checks.check_port(0, PARAMS)


def test_outputs_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written") as caught:
        checks.check_outputs(tmp_path / "file" / "outputs")
    assert "--output" in caught.value.remedy


def test_a_full_disk_is_refused_before_anything_starts(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 10**7))
    study, _ = load_study(checkout / "params" / "mini.yaml")
    with pytest.raises(InputError, match=r"0\.0 GB free; this study needs about 0\.2 GB"):
        checks.check_before_start(study, checkout / "outputs", PARAMS)
