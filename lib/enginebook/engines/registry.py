"""The adapters by id."""

from __future__ import annotations

from enginebook.engines.apple import Mlx, Omlx
from enginebook.engines.base import Adapter
from enginebook.engines.llamacpp import LlamaCpp
from enginebook.engines.lmdeploy import Lmdeploy
from enginebook.engines.names import did_you_mean, listing
from enginebook.engines.ollama import Ollama
from enginebook.engines.sglang import Sglang
from enginebook.engines.simulated import Simulated
from enginebook.engines.tensorrt_llm import TensorrtLlm
from enginebook.engines.vllm import Vllm
from enginebook.errors import InputError

ALL: tuple[Adapter, ...] = (
    LlamaCpp(),
    Vllm(),
    Sglang(),
    TensorrtLlm(),
    Lmdeploy(),
    Mlx(),
    Omlx(),
    Ollama(),
    Simulated(),
)
ADAPTERS: dict[str, Adapter] = {a.id: a for a in ALL}


def adapter(engine_id: str) -> Adapter:
    """Return the adapter with this id.

    Raises
    ------
    InputError
        When there is none; the message lists the known ids.
    """
    try:
        return ADAPTERS[engine_id]
    except KeyError:
        raise InputError(
            f"no adapter for engine {engine_id!r}",
            f"{did_you_mean(engine_id, ADAPTERS)}known engines: {listing(ADAPTERS)}",
        ) from None
