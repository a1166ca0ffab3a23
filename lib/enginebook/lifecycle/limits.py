"""What the machine really lets this process use: CPU affinity, cgroup quotas, container kind."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 1 << 60


def _read(path: Path) -> str | None:
    with suppress(OSError):
        return path.read_text(encoding="utf-8").strip()
    return None


def own_cgroup(proc: Path = Path("/proc/self/cgroup"), mount: Path = CGROUP) -> list[Path]:
    """Return the folders of this process's cgroup and its parents, innermost first (cgroup v2)."""
    text = _read(proc) or ""
    inside = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "/")
    folder = mount / inside.lstrip("/")
    if not folder.is_dir():
        folder = mount
    return [f for f in (folder, *folder.parents) if f == mount or mount in f.parents]


def cpu_quota_cores(folders: list[Path] | None = None) -> float | None:
    """Return how many cores' worth of time the tightest cgroup allows; None without a limit."""
    found = [_quota_v2(f) for f in (own_cgroup() if folders is None else folders)]
    if folders is None:
        found.append(_quota_v1(CGROUP / "cpu"))
    limits = [q for q in found if q is not None]
    return min(limits) if limits else None


def _quota_v2(folder: Path) -> float | None:
    quota, _, period = (_read(folder / "cpu.max") or "max 1").partition(" ")
    return int(quota) / int(period) if quota != "max" else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


def memory_limit_bytes(folders: list[Path] | None = None) -> int | None:
    """Return the tightest cgroup's memory limit; None without one."""
    places = own_cgroup() if folders is None else folders
    texts = [_read(f / "memory.max") for f in places]
    if folders is None:
        texts.append(_read(CGROUP / "memory" / "memory.limit_in_bytes"))
    limits = [int(t) for t in texts if t is not None and t.isdigit()]
    small = [limit for limit in limits if limit < UNLIMITED_BYTES]
    return min(small) if small else None


def usable_cores() -> int:
    """Return the number of logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def effective_cores() -> float:
    """Return the cores that a program here can keep busy: affinity, cut by the cgroup's quota."""
    quota = cpu_quota_cores()
    cores = usable_cores()
    return min(float(cores), quota) if quota is not None else float(cores)


def container_kind() -> str | None:
    """Return what kind of container this is, or None when no sign of one is seen."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    if os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    return None
