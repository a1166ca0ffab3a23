"""Wheels of a bundle: fetched by hash for another host, their metadata read, safely unpacked."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from enginebook import store
from enginebook.engines.lock import Entry
from enginebook.errors import InstallError
from enginebook.lifecycle.bundles_pins import Target, pinned_version, subset_lock
from enginebook.lifecycle.logged import Log

_OLDEST_MINOR = 5  # manylinux_2_5 is manylinux1
_NO_WHEEL = re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)==")
_LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
# Of a wheel's .data folder. "data" (share/jupyter ...) is meant for the environment's own folder;
# it goes beside the packages, from where bundles_unpack links it. Scripts and headers stay out.
_INSTALLED = ("purelib", "platlib", "data")
_REGULAR = {0, 0o100000}  # Unix file types that a member may have; 0 where the maker set none


@dataclass
class Wheels:
    """A folder of wheels for one target, filled on demand; a wheel needs a hash of the lock."""

    folder: Path
    target: Target
    log: Log
    _read: dict[str, Path] = field(default_factory=dict)

    def fetch(self, entries: Mapping[str, Entry]) -> None:
        """Fetch the wheels of these entries that are not there yet.

        A package that is published as source alone is built here, if that gives a wheel for any
        platform.

        Raises
        ------
        InstallError
            When one cannot be had for the target, or has another hash than the lock.
        """
        missing = {n: e for n, e in entries.items() if self._key(n, e) not in self._read}
        if not missing:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.say(f"fetching {len(missing)} wheels for Python {self.target.python}")
        while self.log.run("wheels", self._command(self._lock(missing))):
            name = self._without_wheel()
            if name not in missing:
                raise self.log.failure("the wheels could not be fetched", "check the network")
            self._build(name, missing.pop(name))
        self._scan()

    def _lock(self, entries: Mapping[str, Entry]) -> Path:
        lock = self.folder.parent / "wanted.lock"
        store.write_text(lock, subset_lock(entries.values()))
        return lock

    def _without_wheel(self) -> str:
        """Return which package pip found no wheel of, from the end of its output; "" if none."""
        found = _NO_WHEEL.findall(self.log.tail())
        return canonicalize_name(found[-1]) if found else ""

    def _build(self, name: str, entry: Entry) -> None:
        self.log.say(f"{name} has no wheel: building one from its source")
        lock = self._lock({name: entry})
        argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
        argv += ["--require-hashes", "--wheel-dir", str(self.folder), "--requirement", str(lock)]
        failed = self.log.run(f"wheel of {name}", argv)
        made = list(self.folder.glob(f"{name.replace('-', '_')}-*.whl"))
        if failed or not all(path.name.endswith("-none-any.whl") for path in made):
            raise self.log.failure(
                f"{entry.requirement} has no wheel for Python {self.target.python}, and none that "
                "runs everywhere can be built",
                "leave it out under params/bundles, if it is not needed",
            )

    def _command(self, lock: Path) -> list[str]:
        python = self.target.python
        argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        argv += ["--no-deps", "--progress-bar", "off", "--only-binary", ":all:"]
        argv += ["--require-hashes", "--implementation", "cp", "--python-version", python]
        for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
            argv += ["--abi", abi]
        for platform in platforms(self.target.glibc):
            argv += ["--platform", platform]
        return [*argv, "--dest", str(self.folder), "--requirement", str(lock)]

    def _scan(self) -> None:
        for path in self.folder.glob("*.whl"):
            try:
                name, version, _, _ = parse_wheel_filename(path.name)
            except InvalidWheelFilename:
                continue
            self._read[f"{name}=={version}"] = path

    @staticmethod
    def _key(name: str, entry: Entry) -> str:
        return f"{canonicalize_name(name)}=={Version(pinned_version(entry))}"

    def path(self, name: str, entry: Entry) -> Path:
        """Return the wheel of an entry.

        Raises
        ------
        InstallError
            When it was not fetched.
        """
        try:
            return self._read[self._key(name, entry)]
        except KeyError:
            raise InstallError(f"{entry.requirement} came as no wheel", "leave it out") from None

    def requires(self, name: str, entry: Entry) -> list[str]:
        """Return ``Requires-Dist`` of an entry's wheel."""
        return requires_dist(self.path(name, entry))


def platforms(glibc: str) -> list[str]:
    """Return pip's names of Linux on x86_64 up to a glibc, newest first."""
    newest = int(glibc.split(".")[1])
    names = []
    for minor in range(newest, _OLDEST_MINOR - 1, -1):
        names.append(f"manylinux_2_{minor}_x86_64")
        if minor in _LEGACY:
            names.append(f"{_LEGACY[minor]}_x86_64")
    return [*names, "linux_x86_64"]


def requires_dist(wheel: Path) -> list[str]:
    """Return the values of ``Requires-Dist`` in a wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = PurePosixPath(name)
            if path.name == "METADATA" and path.parent.suffix == ".dist-info":
                text = archive.read(name).decode("utf-8", "replace")
                return HeaderParser().parsestr(text).get_all("Requires-Dist", [])
    raise InstallError(f"{wheel.name} has no METADATA: it is no wheel", "fetch it again")


def unpack_wheel(wheel: Path, folder: Path) -> list[str]:
    """Unpack a wheel as an installer would, without scripts; returns the paths below ``folder``.

    Raises
    ------
    InstallError
        For a member that would be written outside of the folder, or that is a link.
    """
    written = []
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            inside = _place(wheel, member)
            if inside is None:
                continue
            target = folder.joinpath(*inside.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            with archive.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            target.chmod(0o755 if (member.external_attr >> 16) & 0o100 else 0o644)
            written.append(inside.as_posix())
    return written


def _place(wheel: Path, member: zipfile.ZipInfo) -> PurePosixPath | None:
    """Return where a member goes, or None for folders and what is not for the package folder."""
    if member.is_dir():
        return None
    path = PurePosixPath(member.filename)
    kind = (member.external_attr >> 16) & 0o170000
    climbs = path.is_absolute() or ".." in path.parts or "\\" in member.filename
    if climbs or not path.parts or kind not in _REGULAR:
        raise InstallError(
            f"{wheel.name} holds {member.filename!r}, which is no file below its folder",
            "do not use this wheel",
        )
    if path.parts[0].endswith(".data"):
        installed = len(path.parts) > 2 and path.parts[1] in _INSTALLED  # noqa: PLR2004
        return PurePosixPath(*path.parts[2:]) if installed else None
    return path
