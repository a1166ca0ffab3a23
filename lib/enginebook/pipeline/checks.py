"""What is checked before anything starts: the model, the port, the disk, the outputs folder."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

import psutil

from enginebook.engines.recipes import Recipe, recipe_for
from enginebook.errors import InputError
from enginebook.lifecycle.environments import installed
from enginebook.lifecycle.requirements import obstacles
from enginebook.paths import cache_dir, params_dir
from enginebook.study import ModelSpec, Study
from enginebook.study_file import closest, read_yaml

GB = 1e9
OUTPUTS_GB = 0.2


def check_before_start(study: Study, outputs: Path, params: Path) -> None:
    """Raise InputError for what would fail later, naming the study file's key and the remedy."""
    for engine in study.engines:
        check_model(study.model_of(engine), params)
    check_port(study.port, params)
    check_outputs(outputs)
    check_disk([recipe_for(e) for e in study.engines], outputs)


def check_model(model: ModelSpec, params: Path) -> None:
    """Check that a named model is known and that a model path is there."""
    if model.name is not None:
        known = read_yaml(params_dir() / "models.yaml")
        names = list(known.get("models", known))
        if model.name not in names:
            raise InputError(
                f"{params}: key model: no model {model.name!r} in params/models.yaml",
                closest(model.name, names),
            )
    if model.path is not None and not Path(model.path).expanduser().exists():
        raise InputError(
            f"{params}: key model.path: {model.path} does not exist",
            "give a Hugging Face model folder or a GGUF file",
        )


def check_port(port: int, params: Path) -> None:
    """Check that a fixed port is free (0 takes a free one at each start)."""
    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(
                f"{params}: key port: {port} cannot be used ({error.strerror}{_holder(port)})",
                "stop that process, give another port, or port: 0 for a free one",
            ) from None


def _holder(port: int) -> str:
    for connection in psutil.net_connections("tcp"):
        address = connection.laddr
        if connection.status == psutil.CONN_LISTEN and address and address.port == port:
            return f"; held by process {connection.pid}"
    return ""


def check_outputs(outputs: Path) -> None:
    """Check that the outputs folder can be made and written to."""
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=outputs) as file:
            file.write(b"x")
    except OSError as error:
        raise InputError(
            f"outputs folder {outputs} cannot be written: {error.strerror}",
            "give another one with --output",
        ) from None


def check_disk(recipes: list[Recipe], outputs: Path) -> None:
    """Check that what is still to be installed, and the results, fit on their disks."""
    # Recipes that differ in options alone share one environment; what cannot run gets none.
    missing = {
        str(r.lock_path or r.name): float(getattr(r.environment, "disk_gb", 0.0))
        for r in recipes
        if installed(r) is None and not obstacles(r.environment.requires)
    }
    wanted = sum(missing.values())
    for folder, need in ((cache_dir(), wanted), (outputs, OUTPUTS_GB)):
        free = shutil.disk_usage(folder).free / GB
        if free < need:
            raise InputError(
                f"{folder} has {free:.1f} GB free; this study needs about {need:.1f} GB there",
                "free some space, or put the cache elsewhere with ENGINEBOOK_CACHE",
            )
