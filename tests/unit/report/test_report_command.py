"""``enginebook report``: by id or folder, again and again, with an index of all runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import nbformat
import pytest
import sample_study
from bs4 import BeautifulSoup
from nbformat.v4 import new_markdown_cell, new_notebook

from enginebook.commands import report as command
from enginebook.errors import InputError
from enginebook.report.index import read_entries, write_index
from enginebook.report.runs import find_run, render_run


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    folder = sample_study.write(tmp_path)
    (folder / "report").mkdir()
    notebook = new_notebook(cells=[new_markdown_cell("# Own\n\n## Part\n\nWords.")])
    nbformat.write(notebook, folder / "report" / "notebook.ipynb")
    return tmp_path


def call(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.mark.parametrize("form", ["id", "beginning", "folder"])
def test_a_run_is_rendered_again(
    form: str, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = {
        "id": sample_study.RUN,
        "beginning": "sample",
        "folder": str(outputs / "runs" / sample_study.RUN),
    }
    result = outputs / "result.json"
    assert call(name[form], "--output", str(outputs), "--json", str(result)) == 0
    html = outputs / "reports" / f"{sample_study.RUN}.html"
    assert "Which engine serves SmolLM2-135M better" in html.read_text(encoding="utf-8")
    assert json.loads(result.read_text())["reports"][0]["html"] == str(html)
    printed = capsys.readouterr().out
    assert f"report: {html}" in printed
    assert str(outputs / "reports" / "index.html") in printed


def test_the_language_can_be_chosen(outputs: Path) -> None:
    assert call(sample_study.RUN, "--output", str(outputs), "--language", "zh") == 0
    html = outputs / "reports" / f"{sample_study.RUN}.html"
    assert 'lang="zh-Hans"' in html.read_text(encoding="utf-8")


def test_unknown_and_ambiguous_runs_are_input_errors(outputs: Path) -> None:
    with pytest.raises(InputError, match="no run 'sampel'") as found:
        find_run("sampel", outputs)
    assert sample_study.RUN in found.value.remedy
    other = outputs / "runs" / "sample-other"
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="several runs begin with 'sample'"):
        find_run("sample", outputs)
    with pytest.raises(InputError, match="no run") as found:
        find_run("x", outputs / "empty")
    assert "run a study first" in found.value.remedy


def test_a_run_without_a_report_says_what_to_do(outputs: Path) -> None:
    folder = outputs / "runs" / sample_study.RUN
    (folder / "report" / "notebook.ipynb").unlink()
    with pytest.raises(InputError, match="no executed report notebook"):
        render_run(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "report": None}))
    with pytest.raises(InputError, match="names no report"):
        render_run(folder)


def test_the_index_lists_all_runs_newest_first(outputs: Path) -> None:
    render_run(outputs / "runs" / sample_study.RUN)
    later = outputs / "runs" / "later"
    later.mkdir()
    value = {
        "study": {"study": "later", "question": "<b>Later?</b>"},
        "starts_unix": [1.9e9],
        "outcome": None,
    }
    (later / "manifest.json").write_text(json.dumps(value))
    broken = outputs / "runs" / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    assert {e.run for e in read_entries(outputs)} == {"later", "broken", sample_study.RUN}
    soup = BeautifulSoup(write_index(outputs).read_text(encoding="utf-8"), "html.parser")
    headings = [h.get_text(strip=True) for h in soup.find_all("h2")]
    assert headings[0] == "<b>Later?</b>"
    assert headings[2] == "broken"
    (link,) = soup.select("main a")
    assert link["href"] == f"{sample_study.RUN}.html"
    assert (outputs / "reports" / str(link["href"])).is_file()
    assert "no report yet" in soup.get_text()
    assert "not finished" in soup.get_text()


def test_an_empty_folder_has_an_index_that_says_so(tmp_path: Path) -> None:
    text = write_index(tmp_path, "zh").read_text(encoding="utf-8")
    assert "这里还没有运行过研究" in text
