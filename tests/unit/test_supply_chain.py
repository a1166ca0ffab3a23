"""Audit, licences, bill of materials and dead code: what the tools say, and when they must fail."""

from __future__ import annotations

import json
import sys
from datetime import date
from email.message import Message
from pathlib import Path

import pytest

from enginebook.paths import project_root

ROOT = project_root()
sys.path.insert(0, str(ROOT / "tools"))

import audit  # noqa: E402
import dead_code  # noqa: E402
import licences  # noqa: E402
import sbom  # noqa: E402
from locked import Locked, read_lock  # noqa: E402

TODAY = date(2026, 12, 1)
ONE = Locked("alpha", "1.0", "")
TWO = Locked("beta", "2.0", "")


def answer(*packages):
    return audit.understood("osv", json.dumps({"dependencies": packages, "fixes": []}), "")


def known(name, *ids):
    return {"name": name, "version": "1.0", "vulns": [{"id": i, "aliases": []} for i in ids]}


def skipped(name):
    return {"name": name, "skip_reason": "not found and could not be audited"}


# ---- audit


def test_a_client_that_reports_success_without_an_answer_has_not_audited():
    found = answer(skipped("alpha"), skipped("beta"))
    report = audit.judged(found, [ONE, TWO], [], TODAY)
    assert found.trouble == "osv: it knew none of 2 packages"
    assert (report.audited, report.unanswered) == (0, ["alpha==1.0", "beta==2.0"])
    assert report.status(strict=False) == audit.DONE
    assert report.status(strict=True) == audit.NOT_AUDITED


def test_a_client_that_breaks_down_has_not_audited():
    found = audit.understood("osv", "", "Traceback ...\nrequests.ConnectionError: (host) no\n")
    assert found.known == frozenset()
    assert found.trouble == "osv: requests.ConnectionError"


def test_a_vulnerability_fails_with_and_without_strict():
    report = audit.judged(answer(known("alpha", "CVE-1"), known("beta")), [ONE, TWO], [], TODAY)
    assert report.open == ["alpha==1.0: CVE-1"]
    assert report.status(strict=False) == report.status(strict=True) == audit.FOUND


@pytest.mark.parametrize(
    ("until", "status"), [(date(2026, 12, 1), audit.DONE), (date(2026, 11, 30), audit.FOUND)]
)
def test_an_exception_counts_until_its_last_day(until, status):
    allowed = [audit.Allowed("CVE-1", "alpha", until, "not used")]
    report = audit.judged(answer(known("alpha", "CVE-1")), [ONE], allowed, TODAY)
    assert report.status(strict=True) == status
    assert ("ended on" in "".join(report.open)) == (status == audit.FOUND)


def test_an_exception_is_for_one_package_only():
    allowed = [audit.Allowed("CVE-1", "beta", date(2030, 1, 1), "not used")]
    report = audit.judged(answer(known("alpha", "CVE-1")), [ONE], allowed, TODAY)
    assert report.status(strict=False) == audit.FOUND


@pytest.mark.parametrize(
    "text",
    [
        '[[exception]]\nid = "CVE-1"\npackage = "a"\nuntil = 2027-01-01\n',
        '[[exception]]\nid = "CVE-1"\npackage = "a"\nreason = "r"\nuntil = "some day"\n',
    ],
)
def test_an_exception_without_reason_or_day_is_refused(tmp_path, text):
    (tmp_path / "audit.toml").write_text(text)
    with pytest.raises(audit.BadExceptionsError, match="wanted in"):
        audit.exceptions(tmp_path / "audit.toml")


def test_the_exceptions_of_this_project_are_in_order():
    for one in audit.exceptions(audit.EXCEPTIONS):
        assert one.package in {e.name for e in read_lock()}


def test_the_tool_says_not_audited_where_no_service_answers(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(audit, "ask", lambda service, _: audit.Answer(trouble=f"{service}: away"))
    lock = tmp_path / "a.lock"
    lock.write_text("alpha==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    assert audit.main([str(lock)]) == audit.DONE
    assert audit.main(["--strict", str(lock)]) == audit.NOT_AUDITED
    assert "a.lock: not audited: 1 packages (alpha==1.0): pypi: away; osv: away" in (
        capsys.readouterr().out
    )
    assert audit.main([str(tmp_path / "none.lock")]) == audit.WRONG


def test_the_second_service_is_asked_when_the_first_is_away(monkeypatch, capsys, tmp_path):
    def ask(service, _entries):
        return audit.Answer(trouble="away") if service == "pypi" else answer(known("alpha", "X-1"))

    monkeypatch.setattr(audit, "ask", ask)
    (tmp_path / "a.lock").write_text("alpha==1.0\n")
    assert audit.main([str(tmp_path / "a.lock")]) == audit.FOUND
    assert "VULNERABLE: alpha==1.0: X-1" in capsys.readouterr().out


# ---- licences


@pytest.fixture(scope="module")
def found():
    return licences.licences(read_lock(), licences.read_rules())


def test_every_locked_package_has_a_known_and_accepted_licence(found):
    rules = licences.read_rules()
    assert [t for v in found if (t := licences.refused(v, rules))] == []


def test_the_page_names_every_locked_package(found):
    text = licences.PAGE.read_text(encoding="utf-8")
    missing = [v.package.name for v in found if f"| {v.package.name} |" not in text]
    assert missing == [], "run `make sbom`"


def test_unknown_and_unwanted_licences_are_refused():
    rules = licences.read_rules()
    unknown = licences.Licence(ONE, None, "not installed here")
    strange = licences.Licence(ONE, "MIT AND AGPL-3.0-only", "its metadata")
    assert "licence unknown" in licences.refused(unknown, rules)
    assert licences.refused(strange, rules) == "alpha: AGPL-3.0-only is not accepted"


def about(**fields):
    message = Message()
    for key, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            message[key.replace("_", "-")] = value
    return message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"License_Expression": "MIT OR Apache-2.0"}, "MIT OR Apache-2.0"),
        ({"License": "Apache License, Version 2.0"}, "Apache-2.0"),
        ({"License": "UNKNOWN", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, None),
        (
            {
                "Classifier": [
                    "License :: OSI Approved :: MIT License",
                    "License :: X :: ISC License",
                ]
            },
            None,
        ),
        ({"License": "Copyright 2020\nAll rights"}, None),
        ({}, None),
    ],
)
def test_metadata_counts_only_when_it_means_one_licence(fields, expected):
    assert licences.from_metadata(about(**fields), licences.read_rules()) == expected


def test_licence_texts_are_told_apart():
    bsd2 = "Redistribution and use in source and binary forms, with or without"
    assert licences.from_text(bsd2) == "BSD-2-Clause"
    assert licences.from_text(bsd2 + " ...\nNeither the name of X") == "BSD-3-Clause"
    assert licences.from_text("All rights reserved.") is None


# ---- bill of materials


def test_the_bill_holds_the_whole_lock_and_is_the_same_twice(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    text = sbom.make()  # the schema has accepted it
    assert sbom.make() == text
    bom = json.loads(text)
    entries = read_lock()
    assert {c["bom-ref"] for c in bom["components"]} == {e.pin for e in entries}
    assert all(c["licenses"] and c["hashes"] for c in bom["components"])
    needed = {d["ref"]: d.get("dependsOn", []) for d in bom["dependencies"]}
    assert any(ref.startswith("polars==") for ref in needed["enginebook"])
    assert any(
        n.startswith("nbclient==") for r in needed if r.startswith("papermill") for n in needed[r]
    )


# ---- dead code


def test_what_only_a_test_calls_is_found_and_what_a_notebook_calls_is_not():
    finder = dead_code.finder()
    finder.scan(
        "def nobody_calls_this():\n    pass\n\ndef install_engine():\n    pass\n", Path("new.py")
    )
    names = {item.name for item in finder.get_unused_code()}
    assert "nobody_calls_this" in names
    assert "install_engine" not in names
    assert dead_code.unneeded() == []


def test_notebook_code_counts_as_use_and_magics_do_not(tmp_path):
    source = ["%load_ext x\n", "from enginebook import a\n", "a.b()"]
    cells = [{"cell_type": "code", "source": source}, {"cell_type": "markdown", "source": ["c()"]}]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    assert dead_code.cells(tmp_path / "n.ipynb").split("\n")[:2] == [
        "from enginebook import a",
        "a.b()",
    ]
