# noqa: INP001 - found through PYTHONPATH, in no package
"""Invented FP8 weights that are no zeros; Python runs this file when the engine's process starts.

vLLM and SGLang invent weights (``--load-format dummy``) between -0.001 and 0.001. In FP8 (e4m3)
the smallest step is 2^-9, about 0.002, so that nearly all of them round to zero; products of zeros
draw less power and run faster than those of any real model. Here FP8 weights get values over the
whole range of the format, and their scales a value that makes the product as small as the engine
meant it. Weights of more than 8 bits stay as the engine made them.

The folder of this file is put on PYTHONPATH, which children inherit: in both engines it is a child
that loads the weights.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LOADERS = (
    "sglang.srt.model_loader.weight_utils",
    "vllm.model_executor.model_loader.weight_utils",
)
FUNCTION = "initialize_dummy_weights"
LARGEST = 1e-3  # of a weight, after it was scaled
SPREAD = 400.0  # e4m3 reaches 448, e5m2 further; a margin for engines that change the scale
SEED = 1234
SMALL_BITS = 16


def refill(model: Any) -> None:
    """Give a module's FP8 weights values over their range, and their scales the matching one."""
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - the engine's, not ours

    for name, weight in model.state_dict().items():
        if not torch.is_floating_point(weight) or weight.device.type == "meta":
            continue
        if torch.finfo(weight.dtype).bits < SMALL_BITS:
            generator = torch.Generator(device=weight.device).manual_seed(SEED)
            wide = torch.empty(weight.shape, dtype=torch.float16, device=weight.device)
            weight.data.copy_(wide.uniform_(-SPREAD, SPREAD, generator=generator))
        elif name.rsplit(".", 1)[-1] in {"weight_scale", "weight_scale_inv"}:
            weight.data.fill_(LARGEST / SPREAD)


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the engine's function with the correction after it."""

    def initialize_dummy_weights(model: Any, *args: Any, **options: Any) -> Any:
        made = function(model, *args, **options)
        refill(model)
        return made

    return initialize_dummy_weights


class Patch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets the engine's module be found as ever, and wraps its function once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec with this class as its loader; None for all others."""
        if fullname not in LOADERS:
            return None
        for finder in sys.meta_path:
            found = None if finder is self else finder.find_spec(fullname, path, target)
            if found is not None and found.loader is not None:
                self._own = found.loader
                return importlib.util.spec_from_loader(fullname, self, origin=found.origin)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the module's own loader."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then wrap the function that it defines."""
        module.__file__ = module.__spec__.origin if module.__spec__ else None
        self._own.exec_module(module)
        setattr(module, FUNCTION, wrapped(getattr(module, FUNCTION)))


sys.meta_path.insert(0, Patch())
