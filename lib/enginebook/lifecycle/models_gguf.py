"""Reading a GGUF file, and writing it again with weights of another type; numpy, no PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from enginebook.errors import InputError

Float32 = NDArray[np.float32]
MAGIC = b"GGUF"
GgufType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
# Values of general.file_type.
FILE_TYPES: dict[GgufType, int] = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "bf16": 32,
}  # fmt: skip
UNPACKED = frozenset({"f32", "f16", "bf16"})
OUTER = frozenset({"token_embd.weight", "output.weight"})
WRITTEN_ANEW = frozenset(
    {"general.architecture", "general.file_type", "general.quantization_version"}
)


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file that is read piece by piece."""

    path: Path

    @cached_property
    def _reader(self) -> Any:
        with self.path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InputError(f"{self.path} is not a GGUF file", "give a .gguf file")
        try:
            return gguf.GGUFReader(self.path)
        except (ValueError, IndexError) as error:
            raise InputError(
                f"{self.path} is damaged or cut short ({error})", "fetch it again"
            ) from error

    def value(self, key: str, default: Any = None) -> Any:
        """Return a metadata value, or the default when the key is not there."""
        field = self._reader.fields.get(key)
        return default if field is None else field.contents()

    def need(self, key: str) -> Any:
        """Return a metadata value that must be there."""
        found = self.value(key)
        if found is None:
            raise InputError(f"{self.path} has no {key}", "give a complete GGUF file")
        return found

    @property
    def architecture(self) -> str:
        """Return the name of the model's architecture, such as ``llama``."""
        return str(self.need("general.architecture"))

    def fields(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield (key, type of the value, value) of all metadata."""
        for key, field in self._reader.fields.items():
            if not key.startswith("GGUF."):
                yield key, field.types[0], field.contents()

    def tensor_names(self) -> list[str]:
        """Return the names of all tensors, in the file's order."""
        return [t.name for t in self._reader.tensors]

    def tensors(self) -> Iterator[tuple[str, Float32]]:
        """Yield (name, float32 values), with the outermost dimension first."""
        for tensor in self._reader.tensors:
            shape = tuple(int(n) for n in tensor.shape[::-1])
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
            yield tensor.name, values.reshape(shape)

    def weight_bits(self) -> float:
        """Return the bits that a weight takes on the average, scales of blocks included."""
        held = sum(int(t.n_bytes) for t in self._reader.tensors)
        return 8 * held / sum(int(t.n_elements) for t in self._reader.tensors)

    def is_float32(self) -> bool:
        """Return whether all tensors are float32 already."""
        return all(t.tensor_type == gguf.GGMLQuantizationType.F32 for t in self._reader.tensors)


def write_as(source: GgufFile, target: Path, kind: GgufType) -> None:
    """Write the same model with weights of another type; all other metadata stays as it is.

    As llama.cpp's own quantiser does: vectors stay float32, and below 8 bits the table of
    embeddings gets 8, since it also makes the logits where it is tied. Rows that cannot be divided
    into blocks become float16.
    """
    writer = gguf.GGUFWriter(target, source.architecture)
    for key, value_type, value in source.fields():
        if key in WRITTEN_ANEW:
            continue
        if value_type == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, value_type)
    writer.add_file_type(FILE_TYPES[kind])
    if kind not in UNPACKED:
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, values in source.tensors():
        of = _tensor_type(name, values.shape, kind)
        writer.add_tensor(name, np.ascontiguousarray(quantize(values, of)), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensor_type(name: str, shape: tuple[int, ...], kind: GgufType) -> Any:
    types = gguf.GGMLQuantizationType
    if len(shape) == 1:
        return types.F32
    wanted = types[kind.upper()]
    if name in OUTER and kind not in UNPACKED:
        wanted = types.Q8_0
    block, _ = gguf.GGML_QUANT_SIZES[wanted]
    return wanted if shape[-1] % block == 0 else types.F16
