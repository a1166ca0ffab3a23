"""Which CPUs engines compute on."""

import pytest

from enginebook.engines import cpus


def topology(tmp_path, siblings):
    for cpu, text in siblings.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{text}\n")
    return tmp_path


@pytest.fixture
def available(monkeypatch):
    def give(ids):
        monkeypatch.setattr(cpus, "available_cpus", lambda: sorted(ids))

    return give


def test_two_cores_leave_one_to_the_client(tmp_path, available):
    available([0, 1])
    assert cpus.compute_cpus(sysfs=topology(tmp_path, {0: "0", 1: "1"})) == [0]


def test_hardware_threads_of_a_core_are_not_used_twice(tmp_path, available):
    available(range(8))
    sysfs = topology(tmp_path, {c: f"{c % 4},{c % 4 + 4}" for c in range(8)})
    assert cpus.compute_cpus(sysfs=sysfs) == [0, 1, 2]


def test_ranges_of_siblings_are_read(tmp_path, available):
    available(range(4))
    sysfs = topology(tmp_path, {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"})
    assert cpus.compute_cpus(sysfs=sysfs) == [0]
    assert cpus.compute_cpus(3, sysfs=sysfs) == [0, 2, 1]


def test_one_core_with_two_threads_leaves_one(tmp_path, available):
    available([0, 1])
    assert cpus.compute_cpus(sysfs=topology(tmp_path, {0: "0-1", 1: "0-1"})) == [0]


def test_a_single_cpu_is_still_used(tmp_path, available):
    available([3])
    assert cpus.compute_cpus(sysfs=tmp_path) == [3]


def test_no_more_than_there_are(tmp_path, available):
    available([0, 1])
    assert cpus.compute_cpus(64, sysfs=tmp_path) == [0, 1]


def test_only_cpus_of_the_affinity_mask_are_used(tmp_path, available):
    available([2, 5, 7])
    assert set(cpus.compute_cpus(sysfs=tmp_path)) < {2, 5, 7}


def test_real_host():
    assert set(cpus.compute_cpus()) <= set(cpus.available_cpus())


@pytest.mark.parametrize(
    ("text", "able"),
    [
        ("flags\t: fpu avx2 avx512_bf16\n", True),
        ("flags\t: fpu amx_bf16 amx_tile\n", True),
        ("flags\t: fpu avx2 avx512f\n", False),
        ("model name : avx512_bf16\nflags : avx2\n", False),
        ("", False),
    ],
)
def test_bfloat16(tmp_path, text, able):
    (tmp_path / "cpuinfo").write_text(text)
    assert cpus.computes_bfloat16(tmp_path / "cpuinfo") is able


def test_bfloat16_where_nothing_can_be_read(tmp_path):
    assert cpus.computes_bfloat16(tmp_path / "none") is False
