"""Where things live: the project's own folders and the user's cache.

Environment variables override each place: ``ENGINEBOOK_ROOT`` (the checkout),
``ENGINEBOOK_CACHE`` (engine environments, models, downloads).
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from enginebook.errors import InputError

MARKER = "pyproject.toml"


def project_root(start: Path | None = None) -> Path:
    """Return the checkout that holds notebooks/, params/ and outputs/.

    Raises
    ------
    InputError
        When neither ``ENGINEBOOK_ROOT`` nor a parent folder nor the package's own place is one.
    """
    given = os.environ.get("ENGINEBOOK_ROOT")
    if given:
        return Path(given).resolve()
    here = (start or Path.cwd()).resolve()
    package = Path(__file__).resolve()
    for folder in (here, *here.parents, *package.parents):
        if (folder / MARKER).is_file() and (folder / "notebooks").is_dir():
            return folder
    raise InputError(
        f"no Enginebook checkout at or above {here}",
        "change into the checkout, or set ENGINEBOOK_ROOT to it",
    )


def cache_dir() -> Path:
    """Return the user's cache folder for environments, models and downloads (made when missing)."""
    given = os.environ.get("ENGINEBOOK_CACHE")
    folder = Path(given) if given else Path(platformdirs.user_cache_dir("enginebook"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def params_dir() -> Path:
    """Return params/ of the checkout."""
    return project_root() / "params"


def engine_recipes_dir() -> Path:
    """Return params/engines/, the folder of recipes and locks."""
    return params_dir() / "engines"


def notebooks_dir() -> Path:
    """Return notebooks/ of the checkout."""
    return project_root() / "notebooks"


def default_outputs_dir() -> Path:
    """Return ``ENGINEBOOK_OUTPUTS``, which a batch run sets, or outputs/ of the checkout."""
    given = os.environ.get("ENGINEBOOK_OUTPUTS")
    return Path(given).resolve() if given else project_root() / "outputs"


def inside(root: Path, folder: Path, name: object) -> Path:
    """Return the file that a name in a manifest means, seen from the manifest's folder.

    A run may come from somebody else: what its manifest names is read and written here, so it must
    lie below ``root``. Links are taken as they are; a folder of results may lie on another disk.

    Raises
    ------
    InputError
        When the name leads elsewhere.
    """
    path = Path(os.path.normpath(folder.absolute() / str(name)))
    if "\0" in str(name) or not path.is_relative_to(os.path.normpath(root.absolute())):
        raise InputError(
            f"the manifest in {folder} names {str(name)!r}, which is not below {root}",
            "do not use this run, or correct its manifest.json",
        )
    return path
