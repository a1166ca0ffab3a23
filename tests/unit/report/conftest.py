"""The sample study, read once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import sample_study

from enginebook import report


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_study.write(tmp_path_factory.mktemp("outputs"))


@pytest.fixture(scope="session")
def data(run_folder: Path) -> report.StudyData:
    return report.StudyData.read(run_folder)


@pytest.fixture(scope="session")
def one_block(tmp_path_factory: pytest.TempPathFactory) -> report.StudyData:
    folder = sample_study.write(tmp_path_factory.mktemp("one"), blocks=1, flagged=False)
    return report.StudyData.read(folder)


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> report.StudyData:
    engines = ("llamacpp", "vllm", "sglang")
    return report.StudyData.read(
        sample_study.write(tmp_path_factory.mktemp("three"), engines=engines)
    )


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> report.StudyData:
    folder = tmp_path_factory.mktemp("nothing")
    (folder / "manifest.json").write_text('{"run": "empty", "study": {"question": "Nothing yet?"}}')
    return report.StudyData.read(folder)


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> report.StudyData:
    """Return a study with the scenarios beyond throughput and length."""
    root = tmp_path_factory.mktemp("parts")
    folder = sample_study.write(root, engines=sample_study.FULL, parts=True)
    return report.StudyData.read(folder)
