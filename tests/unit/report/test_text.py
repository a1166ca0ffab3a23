"""Nothing is missing in either language, and nothing is kept that nobody says."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginebook import report
from enginebook.report.text import LANGUAGES, catalogue, count, known, listing, say
from enginebook.study import Study

PACKAGE = Path(report.__file__).parent
SAYING = {"say", "count", "known", "no_data", "_facts", "texts"}
# Groups whose keys are made from data, or that the template takes whole
BY_DATA = (
    "advice.", "arm.", "axis.", "because.", "brief.", "cellname.", "chart.ecdf.",
    "component.", "count.",
    "fact.", "feature.", "flag.", "format.", "frame.", "guide.", "index.", "install.", "kind.",
    "list.", "metric.", "page.", "pair.", "part.", "phase.", "probed.", "section.",
    "series.", "short.", "side.", "state.", "topic.", "verdict.", "word.", "yesno.",
)  # fmt: skip


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def literals() -> Iterator[str]:
    """Yield every string in the package's source that looks like a key of the catalogue."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and re.fullmatch(r"[a-z_]+(\.[a-z0-9_]+)+", value):
                yield value


def test_both_languages_hold_the_same_keys() -> None:
    assert set(catalogue("en")) == set(catalogue("zh"))


@pytest.mark.parametrize("key", sorted(catalogue("en")))
def test_a_text_has_the_same_fields_in_both_languages(key: str) -> None:
    english, chinese = catalogue("en")[key], catalogue("zh")[key]
    assert english.strip()
    assert chinese.strip()
    assert fields(english) == fields(chinese)


def test_chinese_is_chinese() -> None:
    """A text of several words that holds no Chinese character was forgotten."""
    forgotten = [
        key
        for key, text in catalogue("zh").items()
        if len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\{\w+\}", "", text))) > 2
        and not re.search(r"[\u4e00-\u9fff]", text)
    ]
    assert forgotten == []


def test_every_key_that_the_code_names_is_there() -> None:
    groups = {key.split(".")[0] for key in catalogue("en")}
    named = {k for k in literals() if k.split(".")[0] in groups}
    data_like = re.compile(r"\.(parquet|json|html|js|css|ipynb|png|j2)$|^frame\.")
    missing = [k for k in named if k not in catalogue("en") and not data_like.search(k)]
    assert missing == []


def test_every_key_is_used() -> None:
    used = set(literals())
    idle = [k for k in catalogue("en") if k not in used and not k.startswith(BY_DATA)]
    assert sorted(k for k in idle if not k.startswith("outcome.wins.")) == []


def test_templates_name_only_known_texts() -> None:
    for template, group in (("page.html.j2", "page"), ("index.html.j2", "index")):
        source = (PACKAGE / "template" / template).read_text(encoding="utf-8")
        for name in re.findall(r"text\.(\w+)", source):
            assert f"{group}.{name}" in catalogue("en"), name


def test_a_missing_field_is_a_fault_and_not_a_blank() -> None:
    with pytest.raises(KeyError):
        say("doubt.few_blocks", "en")
    with pytest.raises(KeyError):
        say("no.such.key", "en")


def test_numbers_take_the_right_form() -> None:
    assert count(1, "block", "en") == "1 block"
    assert count(1200, "block", "en") == "1,200 blocks"
    assert count(3, "block", "zh") == "3 个区组"


@pytest.mark.parametrize(
    ("items", "shown"),
    [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
)
def test_lists_read_like_sentences(items: list[str], shown: str) -> None:
    assert listing(items, "en") == shown


def test_words_of_the_data_are_kept_when_unknown() -> None:
    assert known("phase.weights", "zh", "weights") == "加载权重"
    assert known("phase.warp", "zh", "warp") == "warp"


def test_the_languages_are_those_of_the_study_file() -> None:
    assert set(LANGUAGES) == set(Study.model_fields["language"].annotation.__args__)  # type: ignore[union-attr]
