"""Reading a GGUF file, and writing it again with float32 weights; numpy only, no PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray

from enginebook.errors import InputError

Float32 = NDArray[np.float32]
MAGIC = b"GGUF"
ALL_F32 = 0  # value of general.file_type for a file with float32 tensors only


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

    def is_float32(self) -> bool:
        """Return whether all tensors are float32 already."""
        return all(t.tensor_type == gguf.GGMLQuantizationType.F32 for t in self._reader.tensors)


def write_float32(source: GgufFile, target: Path) -> None:
    """Write the same model with float32 tensors; all other metadata stays as it is."""
    writer = gguf.GGUFWriter(target, source.architecture)
    for key, kind, value in source.fields():
        if key in ("general.architecture", "general.file_type"):
            continue  # the writer sets the one, we set the other
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, kind)
    writer.add_file_type(ALL_F32)
    for name, values in source.tensors():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
