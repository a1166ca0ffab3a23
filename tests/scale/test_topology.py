"""GPUs and the CPUs beside them, read from trees like Linux's /sys, and divided between stages."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from enginebook.errors import EngineError
from enginebook.pipeline.executors_claims import own_part
from enginebook.pipeline.executors_node import ranges
from enginebook.pipeline.executors_topology import (
    Gpu,
    Host,
    divide,
    parse_list,
    read_host,
    shared_parts,
)

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Write a /sys: NUMA nodes with their CPUs, threads of a core, GPUs with node and port."""

    def write(
        nodes: dict[int, str], threads: dict[int, str], gpus: dict[str, tuple[int, str]]
    ) -> Path:
        for node, cpus in nodes.items():
            put(tmp_path / f"devices/system/node/node{node}/cpulist", cpus)
        for cpu, siblings in threads.items():
            put(tmp_path / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)
        for address, (node, port) in gpus.items():
            real = tmp_path / f"devices/pci0000:00/{port}/{address}"
            put(real / "numa_node", str(node))
            link = tmp_path / f"bus/pci/devices/{address}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(real)
        return tmp_path

    return write


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text + "\n")


def dgx(tree: Tree) -> Host:
    """Two sockets of 8 cores with 2 threads each, 8 GPUs, two GPUs a port."""
    threads = {c: f"{c % 16},{c % 16 + 16}" for c in range(32)}
    gpus = {f"0000:{n:02x}:00.0": (n // 4, f"0000:{n // 2}0:01.0") for n in range(8)}
    sys = tree({0: "0-7,16-23", 1: "8-15,24-31"}, threads, gpus)
    # NVML writes addresses in capitals and with eight digits of domain.
    return read_host([f"00000000:{n:02X}:00.0" for n in range(8)], sys=sys)


def test_a_host_is_read(tree: Tree) -> None:
    host = dgx(tree)
    assert [g.numa for g in host.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [g.port for g in host.gpus][:4] == ["0000:00:01.0"] * 2 + ["0000:10:01.0"] * 2
    assert host.cores[0][:2] == ((0, 16), (1, 17))
    assert len(host.cores[1]) == 8


@pytest.mark.parametrize("each", [1, 2, 3, 4, 8])
def test_parts_share_neither_gpu_nor_core(tree: Tree, each: int) -> None:
    host = dgx(tree)
    parts = divide(host, each)
    assert len(parts) == 8 // each
    gpus = [g for p in parts for g in p.gpus]
    cpus = [c for p in parts for c in p.cpus]
    assert len(gpus) == len(set(gpus))
    assert len(cpus) == len(set(cpus))
    for part in parts:
        assert len(part.gpus) == each
        # Whole cores: both threads or none.
        assert {c % 16 for c in part.cpus} == {c % 16 for c in part.cpus if c < 16}
        assert len(part.cpus) == 4 * each
    if each in {1, 2, 4}:
        assert all(len(p.numa) == 1 for p in parts)
        beside = {0: set(range(8)), 1: set(range(8, 16))}
        assert all({c % 16 for c in p.cpus} <= beside[p.numa[0]] for p in parts)


def test_pairs_of_gpus_lie_below_one_port(tree: Tree) -> None:
    assert [p.gpus for p in divide(dgx(tree), 2)] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_gpus_below_one_switch_share_its_port(tmp_path: Path) -> None:
    for n in range(2):
        switch = "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
        real = tmp_path / switch / f"0000:02:0{n}.0" / f"0000:0{n + 3}:00.0"
        put(real / "numa_node", "0")
        link = tmp_path / f"bus/pci/devices/0000:0{n + 3}:00.0"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(real)
    put(tmp_path / "devices/system/node/node0/cpulist", "0-15")
    host = read_host(["0000:03:00.0", "0000:04:00.0"], sys=tmp_path)
    assert {g.port for g in host.gpus} == {"0000:00:01.0"}
    assert "lanes of PCIe port 0000:00:01.0" in " ".join(shared_parts(host, 2))


def test_cores_that_do_not_divide_are_all_used(tree: Tree) -> None:
    sys = tree({0: "0-6"}, {}, {f"0000:0{n}:00.0": (0, "0000:00:01.0") for n in range(3)})
    parts = divide(read_host([f"0000:0{n}:00.0" for n in range(3)], sys=sys), 1)
    assert [len(p.cpus) for p in parts] == [2, 2, 3]


def test_only_allowed_cpus_are_given(tree: Tree) -> None:
    sys = tree({0: "0-7", 1: "8-15"}, {}, {"0000:01:00.0": (0, "0000:00:01.0")})
    (part,) = divide(read_host(["0000:01:00.0"], range(4, 12), sys=sys), 1)
    assert part.cpus == (4, 5, 6, 7)


def test_a_gpu_whose_node_has_no_cpus_of_ours_gets_others(tree: Tree) -> None:
    gpus = {"0000:01:00.0": (0, "0000:00:01.0"), "0000:02:00.0": (1, "0000:00:02.0")}
    sys = tree({0: "0-3", 1: "4-7"}, {}, gpus)
    parts = divide(read_host(sorted(gpus), range(4), sys=sys), 1)
    assert sorted(c for p in parts for c in p.cpus) == [0, 1, 2, 3]
    assert all(p.cpus for p in parts)


def test_a_machine_that_tells_nothing(tree: Tree, tmp_path: Path) -> None:
    put(tmp_path / "devices/system/cpu/online", "0-1")
    host = read_host(["0000:01:00.0"], sys=tmp_path)
    assert divide(host, 1)[0].cpus == (0, 1)
    assert host.gpus[0].numa == 0
    gpus = {"0000:02:00.0": (-1, "0000:00:01.0")}  # a virtual machine's answer
    assert read_host(list(gpus), sys=tree({0: "0-1"}, {}, gpus)).gpus[0].numa == 0


@pytest.mark.parametrize("text", ["0-3,8", "5", "", "0,2,4-6"])
def test_lists_of_cpus_there_and_back(text: str) -> None:
    assert ranges(parse_list(text)) == text


def test_what_is_shared_is_said(tree: Tree) -> None:
    host = dgx(tree)
    two = " ".join(shared_parts(host, 2))
    assert "NUMA node 0" in two
    assert "PCIe port 0000:00:01.0" in two
    apart = Host((host.gpus[0], host.gpus[4]), host.cores)
    assert shared_parts(apart, 2) == []
    assert shared_parts(host, 2, each=4) == []


def test_too_few_cpus_are_said(tree: Tree) -> None:
    gpus = tuple(Gpu(n, "", n) for n in range(2))
    host = Host(gpus, {0: ((0,), (1,)), 1: ((2,), (3,))})
    assert "fewer than 3 CPUs" in " ".join(shared_parts(host, 2))


# -- parts of this machine


def here(gpus: int) -> Host:
    cpus = sorted(os.sched_getaffinity(0))
    return Host(tuple(Gpu(n, "", 0) for n in range(gpus)), {0: tuple((c,) for c in cpus)})


def test_a_stage_holds_its_part_and_gives_it_back(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with own_part(tmp_path, here(2), 1) as one:
        assert one is not None
        assert os.environ["CUDA_VISIBLE_DEVICES"] == str(one.gpus[0])
        assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert os.sched_getaffinity(0) == set(one.cpus or before)
        with own_part(tmp_path, here(2), 1) as two:
            assert two is not None
            assert set(one.gpus).isdisjoint(two.gpus)
            nothing_left = own_part(tmp_path, here(2), 1, wait_s=0.0)
            with pytest.raises(EngineError, match="no GPUs became free"), nothing_left:
                pass
    assert os.sched_getaffinity(0) == before
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    with own_part(tmp_path, here(2), 2, wait_s=0.0) as both:
        assert both is not None
        assert both.gpus == (0, 1)


def test_a_stage_that_dies_gives_its_gpus_back(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        own_part(tmp_path, here(1), 1, wait_s=0.0).__enter__()
        os._exit(0)  # without any tidying
    os.waitpid(child, 0)
    assert (tmp_path / ".gpus" / f"{socket.gethostname()}-0.lock").exists()
    with own_part(tmp_path, here(1), 1, wait_s=5.0) as part:
        assert part is not None


def test_stages_without_gpus_take_nothing(tmp_path: Path) -> None:
    with own_part(tmp_path, here(1), 0) as part:
        assert part is None
    assert not (tmp_path / ".gpus").exists()
