"""Bad parameters are refused with file, key and remedy, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginebook.errors import BAD_INPUT, InputError
from enginebook.paths import params_dir
from enginebook.study_file import load_study, read_yaml, study_from_parameters

GOOD: dict[str, Any] = {
    "study": "try",
    "question": "Which?",
    "model": "smollm2-135m-instruct",
    "engines": ["llamacpp-cpu"],
    "scenarios": [{"use": "throughput", "concurrency": [1, 2]}],
    "blocks": 2,
}


def problem(**changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        study_from_parameters({**GOOD, **changes}, "x.yaml")
    assert caught.value.exit_status == BAD_INPUT
    assert "x.yaml" in caught.value.message
    assert caught.value.remedy
    return str(caught.value)


def test_every_shipped_study_is_valid() -> None:
    files = sorted(params_dir().glob("*.yaml"))
    studies = [f for f in files if "study" in read_yaml(f)]
    assert {"quickstart.yaml", "quickstart_three.yaml"} <= {f.name for f in studies}
    for file in studies:
        study, _ = load_study(file)
        assert study.study == file.stem.replace("_", "-") or study.study == file.stem


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"enginess": 1}, "did you mean 'engines'"),
        ({"blocks": 0}, "key blocks"),
        ({"blocks": "1e3"}, "key blocks"),
        ({"blocks": True}, "key blocks"),
        ({"margin": 0}, "key margin"),
        ({"margin": float("nan")}, "key margin"),
        ({"language": "de"}, "key language"),
        ({"port": 70_000}, "key port"),
        ({"engines": []}, "key engines"),
        ({"engines": ["a", "a"]}, "given twice: a"),
        ({"engines": [{"name": "../x", "recipe": "y"}]}, "key engines.0.name"),
        ({"engines": [{"name": "a", "recipe": "b", "optoins": {}}]}, "did you mean 'options'"),
        ({"model": {"name": "a", "path": "b"}}, "exactly one of"),
        ({"model": {"pth": "a"}}, "did you mean 'path'"),
        ({"scenarios": ["troughput"]}, "did you mean 'throughput'"),
        ({"scenarios": [{"use": "../../etc/passwd"}]}, "no scenario"),
        ({"scenarios": [{"use": "throughput", "concurrency": [-4]}]}, "scenarios.0.concurrency.0"),
        ({"scenarios": [{"use": "throughput", "concurrency": 1.5}]}, "scenarios.0.concurrency.0"),
        ({"scenarios": [{"use": "throughput", "concurency": [1]}]}, "did you mean 'concurrency'"),
        ({"scenarios": "throughput"}, "key scenarios"),
        ({"scenarios": [7]}, "key scenarios.0"),
    ],
)
def test_a_wrong_value_names_its_key(changes: dict[str, Any], wanted: str) -> None:
    assert wanted in problem(**changes)


def test_a_missing_key_is_named() -> None:
    without = {k: v for k, v in GOOD.items() if k != "model"}
    with pytest.raises(InputError, match="key model: is missing"):
        study_from_parameters(without)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("study: a\nstudy: b\n", "given twice"),
        ("study: [a\n", "line 2"),
        ("- a\n- b\n", "no mapping"),
        ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        ("\x00", "not YAML"),
    ],
)
def test_broken_yaml_is_refused(tmp_path: Path, text: str, wanted: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=wanted) as caught:
        read_yaml(file)
    assert str(file) in caught.value.message


def test_a_missing_file_lists_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("a: 1\n")
    with pytest.raises(InputError, match="no such file") as caught:
        read_yaml(tmp_path / "x.yaml")
    assert "other.yaml" in caught.value.remedy


def test_own_keys_go_over_the_scenario_file() -> None:
    study = study_from_parameters(GOOD)
    (scenario,) = study.scenarios
    assert scenario.name == "throughput"
    assert scenario.title == "Throughput by concurrency"
    assert scenario.concurrency == [1, 2]
    assert scenario.input_tokens == [512]


def test_one_scenario_twice_needs_two_names() -> None:
    twice = [{"use": "throughput"}, {"use": "throughput", "name": "long", "input_tokens": 2048}]
    assert [s.name for s in study_from_parameters({**GOOD, "scenarios": twice}).scenarios] == [
        "throughput",
        "long",
    ]
    assert "given twice" in problem(scenarios=["throughput", "throughput"])
