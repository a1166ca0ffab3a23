"""Unpack a bundle of package folders and check every byte of it. Standard library only.

A copy of this file travels in each bundle as ``unpack.py``, because the host that it is made for
may have nothing but Python:

    python3 unpack.py FOLDER                        all packages, below FOLDER
    python3 unpack.py FOLDER --venv .venv --path lib    and an environment that sees those of the
                                                    workbook, the folder lib, and the host's own

The bundle is one stream of .tar.xz archives, one for each set of engines that share packages, cut
into parts. bundle.json holds the sha256 of every part and of each archive's member list; the list
holds the sha256 of every file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

FACTS = "bundle.json"
MEMBERS = ".members.sha256"
WORKBOOK = "workbook"
FORMAT = 2
_STEP = 1 << 20
# Names become paths: nothing that climbs, is absolute or is hidden.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_DATA = ("share", "etc")
_PROGRAM = "#!{python}\nimport sys\n\nfrom enginebook.cli import main\n\nsys.exit(main())\n"
_SITES = """
import json, os, sys
found = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
print(json.dumps([found, sys.version_info[:2]]))
"""


class BundleError(Exception):
    """A bundle that is not whole, or not for this host."""


def read_facts(bundle: Path) -> dict[str, Any]:
    """Return a bundle's facts.

    Raises
    ------
    BundleError
        When the folder holds none, or those of another format.
    """
    try:
        facts = json.loads((bundle / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{bundle} is not a bundle: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise BundleError(f"{bundle / FACTS} is not of format {FORMAT}")
    try:
        names = [*facts["archives"], *(part["name"] for part in facts["parts"])]
    except (KeyError, TypeError) as error:
        raise BundleError(f"{bundle / FACTS} is not whole: {error!r}") from None
    odd = [n for n in names if not isinstance(n, str) or not _PLAIN_NAME.fullmatch(n)]
    if odd:
        raise BundleError(f"{bundle / FACTS} names {odd[0]!r}, which is no file of a bundle")
    return facts


def unpack(bundle: Path, names: list[str], destination: Path) -> None:
    """Unpack archives into ``destination/<name>``, each whole or not at all.

    Raises
    ------
    BundleError
        For a part that is missing or changed, a member outside of the folder, or a file whose
        bytes are not the listed ones.
    """
    facts = read_facts(bundle)
    wanted = [n for n in names if not (destination / n).is_dir()]
    _check_parts(bundle, facts, wanted)
    destination.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        part = destination / f".{name}.unpacking-{os.getpid()}"
        try:
            _extract(bundle, facts, name, part)
            _check_members(part, facts["archives"][name])
            part.rename(destination / name)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _covering(facts: dict[str, Any], name: str) -> Iterator[tuple[str, int, int]]:
    """Yield (part, first byte in it, count) of the slices that make up one archive."""
    start, left = facts["archives"][name]["offset"], facts["archives"][name]["bytes"]
    base = 0
    for part in facts["parts"]:
        inside = start - base
        if left and 0 <= inside < part["bytes"]:
            count = min(left, part["bytes"] - inside)
            yield part["name"], inside, count
            start, left = start + count, left - count
        base += part["bytes"]


def _check_parts(bundle: Path, facts: dict[str, Any], names: list[str]) -> None:
    unknown = [n for n in names if n not in facts["archives"]]
    if unknown:
        raise BundleError(f"{bundle} has no archive {unknown[0]!r}")
    needed = {part for n in names for part, _, _ in _covering(facts, n)}
    parts = [p for p in facts["parts"] if p["name"] in needed]
    missing = [p["name"] for p in parts if not (bundle / p["name"]).is_file()]
    if missing:
        raise BundleError(f"{bundle} lacks {', '.join(missing)}: copy every part")
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        found = list(pool.map(lambda p: _sha256(bundle / p["name"]), parts))
    changed = [p["name"] for p, digest in zip(parts, found, strict=True) if p["sha256"] != digest]
    if changed:
        raise BundleError(f"{bundle}: {', '.join(changed)} is changed: copy it again")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_STEP):
            digest.update(piece)
    return digest.hexdigest()


def _extract(bundle: Path, facts: dict[str, Any], name: str, folder: Path) -> None:
    folder.mkdir()
    try:
        with (
            _decompressed(bundle, facts, name) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            for member in tar:
                _require_plain(member)
                tar.extract(member, folder, filter="data")
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise BundleError(f"{bundle}: archive {name} cannot be read: {error}") from error


def _require_plain(member: tarfile.TarInfo) -> None:
    """Refuse what could write elsewhere: links, devices, absolute paths and those that climb."""
    path = Path(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
        raise BundleError(f"the archive holds {member.name!r}, which is no file below its folder")


@contextmanager
def _decompressed(bundle: Path, facts: dict[str, Any], name: str) -> Iterator[IO[bytes]]:
    """Yield an archive's tar stream; by ``xz`` where there is one, which uses every core."""
    program = shutil.which("xz")
    if program is None:
        yield cast("IO[bytes]", _Unxz(_pieces(bundle, facts, name)))
        return
    argv = [program, "--decompress", "--stdout", "--threads=0"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_feed, process.stdin, _pieces(bundle, facts, name))
            try:
                yield process.stdout
            finally:
                process.stdout.close()  # ends xz, and the feeder with it, after a failure
    if process.returncode not in (0, -13):  # -13: the tar's end was reached before xz's
        raise BundleError(f"{bundle}: archive {name} cannot be decompressed")


def _feed(sink: IO[bytes], pieces: Iterator[bytes]) -> None:
    try:
        for piece in pieces:
            sink.write(piece)
        sink.close()
    except OSError:
        return  # the reader stopped


def _pieces(bundle: Path, facts: dict[str, Any], name: str) -> Iterator[bytes]:
    for part, start, count in _covering(facts, name):
        with (bundle / part).open("rb") as file:
            file.seek(start)
            left = count
            while left > 0 and (piece := file.read(min(_STEP, left))):
                left -= len(piece)
                yield piece


class _Unxz:
    """A readable stream over compressed pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, bytearray()
        self._decompressor = lzma.LZMADecompressor()

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer only at the end."""
        while len(self._held) < size and not self._decompressor.eof:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._held += self._decompressor.decompress(piece)
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken


def _check_members(folder: Path, archive: dict[str, Any]) -> None:
    listing = folder / MEMBERS
    if not listing.is_file() or _sha256(listing) != archive["members_sha256"]:
        raise BundleError("the list of members is missing or changed: copy the bundle again")
    lines = listing.read_text(encoding="utf-8").splitlines()
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p != listing]
    odd = set(expected) ^ set(found)
    if odd:
        raise BundleError(f"{min(odd)} is missing or not listed ({len(odd)} files in all)")
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda n: _sha256(folder / n), found)
        wrong = [n for n, digest in zip(found, digests, strict=True) if digest != expected[n]]
    if wrong:
        raise BundleError(f"{wrong[0]} is changed ({len(wrong)} files in all)")


def host_sites(python: str) -> tuple[list[str], str]:
    """Return the package folders of an interpreter, and its version such as ``3.12``."""
    try:
        done = subprocess.run(
            [python, "-c", _SITES], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BundleError(f"{python} cannot be run: {error}") from error
    sites, version = json.loads(done.stdout)
    return sites, ".".join(map(str, version))


def write_paths(venv: Path, folders: list[Path], sites: list[str]) -> None:
    """Let an environment see folders first and a host's package folders after them.

    An environment with system packages would not do: where the host's own interpreter lies in an
    environment, it would see those of the system beneath it. ``addsitedir`` also reads the .pth
    files there.
    """
    (packages,) = (venv / "lib").glob("python3.*/site-packages")
    lines = [str(f.resolve()) for f in folders]
    lines += [f"import site; site.addsitedir({s!r})" for s in sites if Path(s).is_dir()]
    (packages / "enginebook-bundle.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for folder in folders:  # data of packages, such as the templates of nbconvert
        for name in _DATA:
            if (folder / name).is_dir():
                shutil.copytree(folder / name, venv / name, dirs_exist_ok=True)


def make_venv(python: str, venv: Path) -> None:
    """Make an empty environment of an interpreter, without pip."""
    done = subprocess.run(
        [python, "-m", "venv", "--without-pip", "--clear", str(venv)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BundleError(f"no environment can be made: {done.stdout}{done.stderr}".strip())


def sites_of(facts: dict[str, Any], recipe: str) -> list[str]:
    """Return the archives that one recipe (or the workbook) needs, in their order of search."""
    if recipe not in facts["recipes"]:
        held = ", ".join(facts["recipes"])
        raise BundleError(f"the bundle holds {held}, and not {recipe}")
    return list(facts["recipes"][recipe]["archives"])


def main() -> int:
    """Unpack the bundle beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="where to unpack")
    parser.add_argument("--only", action="append", metavar="RECIPE", help="only what this needs")
    parser.add_argument("--venv", type=Path, help="make an environment for the workbook")
    parser.add_argument("--path", type=Path, action="append", default=[], help="it sees this, too")
    parser.add_argument("--python", default="python3", help="the host's interpreter")
    args = parser.parse_args()
    bundle = Path(__file__).resolve().parent
    try:
        _main(args, bundle)
    except BundleError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _main(args: argparse.Namespace, bundle: Path) -> None:
    facts = read_facts(bundle)
    names = [WORKBOOK] if args.venv else list(args.only or facts["recipes"])
    archives = list(dict.fromkeys(a for n in names for a in sites_of(facts, n)))
    if args.venv:
        sites, version = host_sites(args.python)
        if version != facts["python"]:
            raise BundleError(f"the bundle is for Python {facts['python']}, this is {version}")
    unpack(bundle, archives, args.folder)
    if args.venv:
        make_venv(args.python, args.venv)
        write_paths(args.venv, [*args.path, *(args.folder / a for a in archives)], sites)
        program = args.venv / "bin" / "enginebook"
        python = (args.venv / "bin" / "python").absolute()
        program.write_text(_PROGRAM.format(python=python), encoding="utf-8")
        program.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
