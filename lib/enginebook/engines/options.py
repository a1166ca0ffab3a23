"""Options of an engine's command line: common names, typed, and checked before anything starts."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from enginebook.engines.base import EngineOptions
from enginebook.engines.exposure import refuse_exposure, refuse_secret_words
from enginebook.engines.names import did_you_mean, listing
from enginebook.engines.speculation import Speculative
from enginebook.errors import InputError
from enginebook.study import Frozen, NonNegativeInt, PositiveFloat, PositiveInt

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Fraction = Annotated[float, Field(gt=0, le=1)]

T = TypeVar("T", bound="CommonOptions")

COMMON = {
    "max_model_len": "longest prompt plus answer, in tokens",
    "max_num_seqs": "most sequences in a batch",
    "dtype": "arithmetic of weights and activations",
    "threads": "CPU threads that compute",
    "prefix_cache": "reuse of the KV of shared prefixes",
    "kv_tokens": "size of the KV pool, in tokens",
    "kv_space": "size of the KV pool, in GiB",
    "prefill_budget": "most tokens in one step",
    "graphs": "CUDA graphs or compilation",
    "tensor_parallel": "number of devices that share each layer",
    "devices": "which GPUs it may use",
    "speculative": "speculative decoding: method, tokens, model",
    "quantization": "weight format made at load time",
    "extra_args": "arguments passed through as given",
}


class CommonOptions(Frozen):
    """Options that every adapter knows; None leaves the engine's own default in force."""

    max_model_len: PositiveInt = 2048
    max_num_seqs: PositiveInt | None = None
    prefix_cache: bool | None = None
    extra_args: tuple[str, ...] = ()

    @field_validator("extra_args")
    @classmethod
    def _keep_to_this_host(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        refuse_secret_words(words)
        refuse_exposure(words)
        return words


class TorchOptions(CommonOptions):
    """Options of engines that run a Hugging Face model on PyTorch.

    ``devices`` are GPUs by NVML's index or by UUID.
    """

    dtype: Dtype = "auto"
    kv_tokens: PositiveInt | None = None
    prefill_budget: PositiveInt | None = None
    graphs: bool | None = None
    tensor_parallel: PositiveInt = 1
    quantization: str | None = None
    speculative: Speculative | None = None
    devices: tuple[NonNegativeInt | str, ...] | None = Field(default=None, min_length=1)
    memory_fraction: Fraction | None = None
    seed: NonNegativeInt | None = None

    @model_validator(mode="after")
    def _enough_devices(self) -> TorchOptions:
        if self.devices is not None and len(self.devices) < self.tensor_parallel:
            raise ValueError(
                f"tensor_parallel {self.tensor_parallel} needs as many devices; "
                f"there are {len(self.devices)}"
            )
        return self

    def device_variables(self) -> dict[str, str]:
        """Return the variables that show an engine these GPUs alone, numbered as NVML does."""
        if self.devices is None:
            return {}
        shown = ",".join(map(str, self.devices))
        return {"CUDA_VISIBLE_DEVICES": shown, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


class CpuTorchOptions(TorchOptions):
    """Options of PyTorch engines that also run on CPUs."""

    device: Literal["cpu", "cuda"] = "cuda"
    threads: PositiveInt | None = None
    kv_space: PositiveFloat | None = None

    @model_validator(mode="after")
    def _devices_are_gpus(self) -> CpuTorchOptions:
        if self.device == "cpu" and self.devices is not None:
            raise ValueError("devices are GPUs; on CPUs give threads")
        return self


def parse_options(kind: type[T], options: EngineOptions, *, title: str, where: str = "") -> T:
    """Return an engine's options as its own type.

    Raises
    ------
    InputError
        For a misspelt name, a name that the engine has no counterpart for, or a wrong value.
    """
    place = f"{where}: " if where else ""
    for name in options:
        if name not in kind.model_fields:
            raise InputError(f"{place}{_unknown(name, title)}", _remedy(name, kind))
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "options"
        raise InputError(
            f"{place}option {key}: {first['msg']}", f"correct options.{key}"
        ) from error


def _unknown(name: str, title: str) -> str:
    if name in COMMON:
        return f"{title} has no counterpart of the option {name!r} ({COMMON[name]})"
    return f"{title} has no option {name!r}"


def _remedy(name: str, kind: type[CommonOptions]) -> str:
    known = list(kind.model_fields)
    return (
        f"{did_you_mean(name, known)}known options: {listing(known)}; "
        "anything else goes as given under extra_args: [...]"
    )
