"""What goes into a bundle: a lock's entries, what the host has, and whose requirements it meets."""

from __future__ import annotations

import pytest
from wheel_support import lock_of, make_wheel, only_from

from enginebook.engines.bundled import Slimming
from enginebook.engines.lock import parse_lock
from enginebook.errors import InputError
from enginebook.lifecycle.bundles_choice import choose
from enginebook.lifecycle.bundles_pins import (
    LeftOut,
    Target,
    needs_of,
    pins,
    read_freeze,
    subset_lock,
)
from enginebook.lifecycle.bundles_wheels import Wheels
from enginebook.lifecycle.logged import Log

TARGET = Target("3.12")
FREEZE = "numpy==2.5.2\nHuggingface_Hub==1.33.0\ntorch==2.11.0+cu130\n"
COLUMNS = """\
Package           Version
----------------- ------------
numpy             2.5.2
Huggingface_Hub   1.33.0
torch             2.11.0+cu130
"""


@pytest.mark.parametrize(
    "text", [FREEZE, COLUMNS, FREEZE + "# note\n-e /src/mine\nx @ file:///y\n"]
)
def test_pip_lists_are_read_in_either_format(tmp_path, text):
    path = tmp_path / "pip.txt"
    path.write_text(text)
    expected = {"numpy": "2.5.2", "huggingface-hub": "1.33.0", "torch": "2.11.0+cu130"}
    assert read_freeze(path) == expected


def test_what_is_no_pip_list_is_told(tmp_path):
    path = tmp_path / "pip.txt"
    path.write_text("numpy==2.5.2\n<html>\n")
    with pytest.raises(InputError, match=r"pip\.txt:2: '<html>'") as raised:
        read_freeze(path)
    assert "pip list --format=freeze" in raised.value.remedy
    with pytest.raises(InputError, match="No such file"):
        read_freeze(tmp_path / "none.txt")


def test_entries_of_the_target_alone(tmp_path):
    lock = tmp_path / "x.lock"
    lock.write_text(
        "a==1 ; python_version < '3.12' \\\n    --hash=sha256:00\n"
        "B_c==2 ; sys_platform == 'linux' \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\n"
        "d==3 ; platform_machine == 'arm64' \\\n    --hash=sha256:33\n"
    )
    found = pins(lock, TARGET)
    assert list(found) == ["b-c"]
    assert parse_lock(subset_lock(found.values())) == parse_lock(
        "B_c==2 ; sys_platform == 'linux' \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\n"
    )


def test_requirements_follow_markers_and_extras():
    texts = [
        "numpy>=2",
        "old; python_version < '3.12'",
        "win; sys_platform == 'win32'",
        "loop; extra == 'fast'",
        "!!broken",
    ]
    assert [n.name for n in needs_of("p", texts, [], TARGET)] == ["numpy"]
    assert [n.name for n in needs_of("p", texts, ["fast"], TARGET)] == ["numpy", "loop"]


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Return a function that makes wheels and a lock of them, and a store to fetch them into."""
    folder = tmp_path / "index"
    only_from(monkeypatch, folder)

    def make(**packages):
        wheels = [
            make_wheel(folder, name, version, {f"{name}.py": b"x = 1\n"}, requires=requires)
            for name, (version, *requires) in packages.items()
        ]
        lock = tmp_path / "some.lock"
        lock.write_text(lock_of(*wheels))
        return lock, Wheels(tmp_path / "work" / "wheels", TARGET, Log(tmp_path / "log"))

    return make


def test_without_a_list_everything_is_carried(index):
    lock, wheels = index(engine=("1.0", "helper>=2"), helper=("2.0",))
    choice = choose(lock, Slimming(), None, {}, wheels)
    assert set(choice.carried) == {"engine", "helper"}
    assert choice.left_out == {}
    assert choice.unmet == []


def test_the_hosts_package_is_used_where_it_meets_every_requirement(index):
    lock, wheels = index(engine=("1.0", "helper>=2"), helper=("2.0",))
    choice = choose(lock, Slimming(), None, {"helper": "2.9"}, wheels)
    assert set(choice.carried) == {"engine"}
    assert choice.left_out == {"helper": LeftOut("helper", "2.0", "2.9", "host")}
    assert [p.name for p in wheels.folder.iterdir()] == ["engine-1.0-py3-none-any.whl"]


def test_the_lock_wins_where_the_hosts_package_breaks_one(index):
    lock, wheels = index(engine=("1.0", "helper<3"), helper=("2.0",))
    choice = choose(lock, Slimming(), None, {"helper": "3.0"}, wheels)
    assert set(choice.carried) == {"engine", "helper"}
    assert choice.left_out == {}


def test_what_is_carried_after_all_brings_its_own_requirements(index):
    """The host's base fits the engine, but not the helper that must be carried."""
    lock, wheels = index(
        engine=("1.0", "helper<3", "base"), helper=("2.0", "base==1.*"), base=("1.5",)
    )
    host = {"helper": "3.0", "base": "2.0"}
    assert set(choose(lock, Slimming(), None, host, wheels).carried) == {"engine", "helper", "base"}


def test_a_recipe_may_accept_a_version_that_breaks_one(index):
    lock, wheels = index(engine=("1.0", "helper==2.0"), helper=("2.0",))
    slimming = Slimming(accept={"helper": "the same API"})
    choice = choose(lock, slimming, None, {"helper": "2.1"}, wheels)
    assert choice.left_out == {
        "helper": LeftOut("helper", "2.0", "2.1", "accepted", "the same API")
    }
    fitting = choose(lock, slimming, None, {"helper": "2.0"}, wheels)
    assert fitting.left_out["helper"].reason == "host"


def test_what_is_not_needed_is_left_out_and_its_needs_do_not_count(index):
    lock, wheels = index(engine=("1.0", "big"), big=("9.0", "base==1"), base=("1",))
    choice = choose(lock, Slimming(leave_out=("big", "unknown")), None, {"base": "2"}, wheels)
    assert set(choice.carried) == {"engine"}
    assert choice.left_out["big"] == LeftOut("big", "9.0", None, "not needed")
    assert choice.left_out["base"].reason == "host"


def test_from_roots_only_what_they_reach_is_carried(index):
    lock, wheels = index(
        tool=("1.0", "helper; extra == 'fast'", "base"),
        helper=("1.0",),
        base=("1.0",),
        linter=("1.0",),
    )
    assert set(choose(lock, Slimming(), ["tool"], {}, wheels).carried) == {"tool", "base"}
    reached = choose(lock, Slimming(), ["tool[fast]"], {}, wheels)
    assert set(reached.carried) == {"tool", "base", "helper"}


def test_a_requirement_that_nothing_meets_is_told(index):
    lock, wheels = index(engine=("1.0", "driver>=5"))
    choice = choose(lock, Slimming(), None, {"driver": "4"}, wheels)
    assert [(n.by, str(n.requirement)) for n in choice.unmet] == [("engine", "driver>=5")]
