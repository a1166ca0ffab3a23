"""Which CPUs lie next to which GPU, and how several stages divide one machine between them.

Reading is apart from deciding: `read_host` looks at Linux's /sys, `divide` is a pure function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SYS = Path("/sys")


@dataclass(frozen=True)
class Gpu:
    """A GPU's place: its number in PCI order, its NUMA node, and the PCIe port above it."""

    index: int
    bus_id: str
    numa: int
    port: str = ""


@dataclass(frozen=True)
class Host:
    """A machine's GPUs and, by NUMA node, its cores; a core is a tuple of hardware threads."""

    gpus: tuple[Gpu, ...]
    cores: dict[int, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Part:
    """What one stage has for itself."""

    gpus: tuple[int, ...]
    cpus: tuple[int, ...]
    numa: tuple[int, ...]


def bus_ids() -> list[str]:
    """Return the PCI addresses of all GPUs in PCI order; empty without driver or library."""
    try:
        import pynvml  # noqa: PLC0415 - a host without GPUs need not load it

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no library, no driver: no GPU
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        found = [pynvml.nvmlDeviceGetPciInfo(h).busId for h in handles]
    finally:
        pynvml.nvmlShutdown()
    return [b.decode() if isinstance(b, bytes) else str(b) for b in found]


def read_host(
    addresses: Sequence[str], allowed: Sequence[int] | None = None, sys: Path = SYS
) -> Host:
    """Return the topology of this machine.

    Parameters
    ----------
    addresses
        PCI addresses of the GPUs, in PCI order.
    allowed
        CPUs that this process may use; None means all.
    sys
        Root of Linux's /sys.
    """
    cores = {n: _cores(sys, cpus) for n, cpus in _nodes(sys, allowed).items()}
    first = min(cores, default=0)
    return Host(tuple(_gpu(sys, i, a, first) for i, a in enumerate(addresses)), cores)


def _nodes(sys: Path, allowed: Sequence[int] | None) -> dict[int, list[int]]:
    found = {}
    for folder in sorted((sys / "devices/system/node").glob("node[0-9]*")):
        cpus = parse_list((folder / "cpulist").read_text(encoding="ascii"))
        usable = [c for c in cpus if allowed is None or c in allowed]
        if usable:
            found[int(folder.name.removeprefix("node"))] = usable
    if found:
        return found
    online = sys / "devices/system/cpu/online"
    cpus = parse_list(online.read_text(encoding="ascii")) if online.is_file() else [0]
    return {0: [c for c in cpus if allowed is None or c in allowed]}


def _cores(sys: Path, cpus: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    found: dict[tuple[int, ...], None] = {}
    for cpu in cpus:
        path = sys / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        threads = [cpu]
        with suppress(OSError):
            threads = [c for c in parse_list(path.read_text(encoding="ascii")) if c in cpus]
        found[tuple(threads)] = None
    return tuple(found)


def _gpu(sys: Path, index: int, address: str, default_numa: int) -> Gpu:
    # NVML writes eight digits for the domain, /sys four.
    short = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", address.lower())
    device = sys / "bus/pci/devices" / short
    numa = default_numa
    with suppress(OSError, ValueError):
        numa = int((device / "numa_node").read_text(encoding="ascii"))
    return Gpu(index, short, numa if numa >= 0 else default_numa, _root_port(device.resolve()))


def _root_port(device: Path) -> str:
    """Return the port of the processor above a device: what lies below one shares its lanes."""
    parts = device.parts
    at = next((n for n, part in enumerate(parts) if part.startswith("pci")), len(parts))
    above = parts[at + 1 : -1]
    return above[0] if above else ""


def parse_list(text: str) -> list[int]:
    """Return the numbers of a list such as ``0-3,8``."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            low, _, high = part.partition("-")
            found.extend(range(int(low), int(high or low) + 1))
    return found


def divide(host: Host, each: int) -> list[Part]:
    """Return the parts into which a machine falls for stages that want so many GPUs each.

    GPUs of one part lie on one NUMA node where they can, and below one PCIe port. The cores of
    a NUMA node are divided evenly between its GPUs, whole cores only, so that no two parts share a
    core. GPUs of a node without cores of its own get cores of the node that has most to spare.

    Parameters
    ----------
    each
        GPUs of one stage, at least 1. GPUs that are left over belong to no part.
    """
    ordered = sorted(host.gpus, key=lambda g: (g.numa, g.port, g.index))
    shares = _core_shares(host)
    parts = []
    for start in range(0, len(ordered) - each + 1, each):
        chosen = ordered[start : start + each]
        cpus = sorted(c for g in chosen for core in shares[g.index] for c in core)
        numa = tuple(sorted({g.numa for g in chosen}))
        parts.append(Part(tuple(sorted(g.index for g in chosen)), tuple(cpus), numa))
    return parts


def _core_shares(host: Host) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return each GPU's own cores."""
    home: dict[int, list[int]] = {node: [] for node in host.cores}
    for g in host.gpus:
        # A node may have GPUs and no cores that we may use.
        node = g.numa if g.numa in home else _roomiest(host, home)
        home[node].append(g.index)
    shares: dict[int, tuple[tuple[int, ...], ...]] = {}
    for node, indexes in home.items():
        cores = host.cores[node]
        for place, index in enumerate(indexes):
            low = len(cores) * place // len(indexes)
            high = len(cores) * (place + 1) // len(indexes)
            shares[index] = cores[low:high]
    return shares


def _roomiest(host: Host, home: dict[int, list[int]]) -> int:
    return max(home, key=lambda n: len(host.cores[n]) / (len(home[n]) + 1))


LEAST_CORES = 3
"""An engine's scheduler, its front end, and the load generator each keep a core busy."""


def shared_parts(host: Host, jobs: int, each: int = 1) -> list[str]:
    """Return in sentences what stages side by side have in common, and so can disturb."""
    parts = divide(host, each)[:jobs]
    found = []
    crowded = sorted({n for p in parts for n in p.numa if sum(n in q.numa for q in parts) > 1})
    if crowded:
        named = ", ".join(map(str, crowded))
        found.append(
            f"stages side by side share the memory channels and last-level cache of NUMA node "
            f"{named}; --exclusive measures one at a time"
        )
    poor = [p for p in parts if len(p.cpus) < LEAST_CORES]
    if poor:
        found.append(
            f"{len(poor)} of {len(parts)} stages side by side get fewer than {LEAST_CORES} CPUs: "
            "engine and load generator will wait for each other"
        )
    chosen = {i: n for n, p in enumerate(parts) for i in p.gpus}
    ports: dict[str, set[int]] = {}
    for g in host.gpus:
        if g.index in chosen and g.port:
            ports.setdefault(g.port, set()).add(chosen[g.index])
    shared = sorted(b for b, users in ports.items() if len(users) > 1)
    if shared:
        found.append(f"stages side by side share the lanes of PCIe port {', '.join(shared)}")
    return found
