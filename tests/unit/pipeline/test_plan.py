"""Digests change with what they cover, and with nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from enginebook.pipeline.plan import Plan, cell_digest, make_plan
from enginebook.store import read_json, write_json
from enginebook.study_file import load_study

HOST = "host-a"


def plan_of(root: Path, host: str = HOST, **changes: Any) -> Plan:
    file = root / "params" / "mini.yaml"
    values = yaml.safe_load(file.read_text()) | changes
    file.write_text(yaml.safe_dump(values))
    study, parameters = load_study(file)
    return make_plan(study, parameters, host)


def changed(before: Plan, after: Plan) -> set[str]:
    digests = {s.name: s.digest for s in before.stages}
    return {s.name for s in after.stages if digests.get(s.name) != s.digest}


DERIVED = {"compare", "claims", "report"}


def test_stages_come_in_running_order_and_need_only_earlier_ones(checkout: Path) -> None:
    plan = plan_of(checkout)
    names = [s.name for s in plan.stages]
    assert names == [
        *("host", "install-one", "install-two", "launch-one", "launch-two"),
        *("load-one-b0", "load-two-b0", "load-two-b1", "load-one-b1"),
        *("compare", "claims", "report"),
    ]
    for index, stage in enumerate(plan.stages):
        assert set(stage.needs) <= set(names[:index])
        assert stage.order == index


def test_the_same_study_gives_the_same_plan(checkout: Path) -> None:
    assert plan_of(checkout) == plan_of(checkout)


def test_a_plan_survives_its_file(checkout: Path, tmp_path: Path) -> None:
    plan = plan_of(checkout)
    write_json(tmp_path / "plan.json", plan.to_json())
    assert Plan.read(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"margin": 0.1}, DERIVED),
        ({"question": "Why?"}, DERIVED),
        ({"seed": 9}, DERIVED | {f"load-{e}-b{b}" for e in ("one", "two") for b in (0, 1)}),
        ({"blocks": 3}, DERIVED | {"load-one-b2", "load-two-b2"}),
    ],
)
def test_a_changed_parameter_touches_only_what_depends_on_it(
    checkout: Path, changes: dict[str, Any], wanted: set[str]
) -> None:
    before = plan_of(checkout)
    assert changed(before, plan_of(checkout, **changes)) == wanted


def test_an_option_of_one_engine_leaves_the_other_engine_alone(checkout: Path) -> None:
    before = plan_of(checkout)
    engines = [
        {"name": "one", "recipe": "fake"},
        {"name": "two", "recipe": "fake", "options": {"max_num_seqs": 4}},
    ]
    touched = changed(before, plan_of(checkout, engines=engines))
    assert {n for n in touched if "one" in n} == set()
    assert {"install-two", "launch-two", "load-two-b0", "load-two-b1"} <= touched


def test_another_host_shares_nothing(checkout: Path) -> None:
    assert len(changed(plan_of(checkout), plan_of(checkout, host="host-b"))) == 12


def test_a_notebook_counts_by_its_source_not_by_its_outputs(checkout: Path) -> None:
    before = plan_of(checkout)
    path = checkout / "notebooks" / "20_launch.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["something"] = "else"
    nbformat.write(notebook, path)
    assert changed(before, plan_of(checkout)) == set()
    notebook.cells[-1].source += "\n# a word more"
    nbformat.write(notebook, path)
    assert changed(before, plan_of(checkout)) == DERIVED | {"launch-one", "launch-two"}


def test_cells_are_shared_between_studies_that_ask_for_the_same(checkout: Path) -> None:
    study, _ = load_study(checkout / "params" / "mini.yaml")
    wider = study.model_copy(update={"study": "other", "blocks": 5, "question": "Else?"})
    one, two = study.engines[0], study.engines[1]
    ours = {cell_digest(c, one, study.model, HOST) for c in study.cells("one", 0)}
    theirs = {cell_digest(c, one, wider.model, HOST) for c in wider.cells("one", 0)}
    assert ours == theirs
    assert len(ours) == 2
    (cell, *_) = study.cells("one", 0)
    # In an A/A study the same recipe runs under two labels, and each is measured on its own.
    assert cell_digest(cell, two, study.model, HOST) not in ours
    slower = one.model_copy(update={"options": {"max_num_seqs": 4}})
    assert cell_digest(cell, slower, study.model, HOST) not in ours
    assert cell_digest(cell, one, study.model, "host-b") not in ours


def test_plan_json_holds_plain_values(checkout: Path, tmp_path: Path) -> None:
    write_json(tmp_path / "plan.json", plan_of(checkout).to_json())
    assert read_json(tmp_path / "plan.json")["study"]["model"]["name"] == "tiny"
