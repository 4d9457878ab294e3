"""Read GGUF files: header, metadata, tensor table, and tensors as float32.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The header is read by
the few lines below; block formats are dequantised by the `gguf` package.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.errors import ModelError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
_SCALARS |= {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_SAMPLE = 4096  # bytes hashed at either end of a tensor
_ROWS_AT_A_TIME = 4096  # bounds the temporaries of dequantising a large table


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies.

    Attributes:
        shape: rows first, as numpy counts; the file counts the other way round.
        kind: ggml type number.
        start: byte offset in the file.
    """

    shape: tuple[int, ...]
    kind: int
    start: int


class GgufFile:
    """One open GGUF file.

    Attributes:
        path: the file.
        metadata: key -> number, text, bool, or list of these.
        tensors: name -> where it lies.

    Raises:
        ModelError: no GGUF file, an unknown version, or a header that ends too early.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelError(f"{path} does not exist.") from None
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise ModelError(f"{path} cannot be read: {error}.") from error
        try:
            self.metadata, self.tensors = _Header(self._bytes, path).read()
        except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
            raise ModelError(
                f"{path} is damaged: its header ends or breaks off ({error}). Fetch it again."
            ) from error

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """A metadata value of a given type; ModelError where it is missing or of another."""
        value = self.metadata.get(key, default)
        if kind is float and isinstance(value, int):
            value = float(value)
        if value is None:
            raise ModelError(f"{self.path} has no {key} in its metadata; is it a language model?")
        if not isinstance(value, kind):
            raise ModelError(f"{self.path} holds {key} = {value!r}, which is no {kind.__name__}.")
        return value

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """One tensor, dequantised.

        Args:
            name: the tensor's name in the file.
            shape: what the model needs, rows first.

        Returns:
            shape float32, an array of its own.

        Raises:
            ModelError: names the file and the tensor: missing, of another shape, of a
                format that cannot be read, or cut off.
        """
        entry = self.tensors.get(name)
        if entry is None:
            raise ModelError(
                f"{self.path} has no tensor {name}. The file is incomplete or of another model."
            )
        if entry.shape != shape:
            raise ModelError(
                f"{self.path}: tensor {name} has shape {list(entry.shape)}, the model needs"
                f" {list(shape)}. The file and its metadata do not belong together."
            )
        return self._dequantise(name, entry)

    def fingerprint(self) -> str:
        """Hex digest of the header and of both ends of every tensor."""
        starts = sorted(entry.start for entry in self.tensors.values())
        digest = hashlib.sha256(self._bytes[: starts[0] if starts else None])
        for start, stop in zip(starts, [*starts[1:], len(self._bytes)], strict=True):
            digest.update(self._bytes[start : min(start + _SAMPLE, stop)])
            digest.update(self._bytes[max(start, stop - _SAMPLE) : stop])
        return digest.hexdigest()

    def _dequantise(self, name: str, entry: TensorEntry) -> npt.NDArray[np.float32]:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            kind = GGMLQuantizationType(entry.kind)
            block, block_bytes = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise self._unreadable(name, f"type {entry.kind}") from None
        width = entry.shape[-1]
        if width % block:
            raise ModelError(
                f"{self.path}: tensor {name} is {width} wide, no multiple of the {block} weights"
                f" of a {kind.name} block. The file is damaged; fetch it again."
            )
        rows, row_bytes = math.prod(entry.shape[:-1]), width // block * block_bytes
        if entry.start + rows * row_bytes > len(self._bytes):
            raise ModelError(
                f"{self.path} is cut off: tensor {name} ends at byte"
                f" {entry.start + rows * row_bytes:,}, the file at {len(self._bytes):,}."
                " Fetch it again."
            )
        packed = np.frombuffer(self._bytes, np.uint8, rows * row_bytes, entry.start)
        packed = packed.reshape(rows, row_bytes)
        out = np.empty((rows, width), dtype=np.float32)
        try:
            for first in range(0, rows, _ROWS_AT_A_TIME):
                part = slice(first, first + _ROWS_AT_A_TIME)
                out[part] = dequantize(packed[part], kind)
        except NotImplementedError:
            raise self._unreadable(name, kind.name) from None
        return out.reshape(entry.shape)

    def _unreadable(self, name: str, kind: str) -> ModelError:
        return ModelError(
            f"{self.path}: tensor {name} is stored as {kind}, which cannot be dequantised here."
            " Use a file quantised as Q8_0, Q4_1, Q4_K or the like, or safetensors."
        )


class _Header:
    """A cursor over the start of the file."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self._at = 0

    def read(self) -> tuple[dict[str, Any], dict[str, TensorEntry]]:
        if self._data[:4] != b"GGUF":
            raise ModelError(f"{self._path} is not a GGUF file: it does not begin with GGUF.")
        self._at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            raise ModelError(
                f"{self._path} is GGUF version {version}; Covey reads little-endian 2 and 3."
            )
        tensor_count, key_count = self._scalar("Q"), self._scalar("Q")
        metadata = {}
        for _ in range(key_count):
            key = self._string()
            metadata[key] = self._value(self._scalar("I"))
        entries = [self._entry() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", 32)
        base = -(-self._at // alignment) * alignment
        return metadata, {
            name: TensorEntry(shape, kind, base + offset) for name, shape, kind, offset in entries
        }

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = self._scalar("I")
        if dimensions > 8:
            raise IndexError(f"{dimensions} dimensions")
        shape = tuple(self._scalar("Q") for _ in range(dimensions))[::-1]
        return name, shape, self._scalar("I"), self._scalar("Q")

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        end = self._at + length
        if end > len(self._data):
            raise IndexError(f"a text of {length:,} bytes")
        text = self._data[self._at : end].decode()
        self._at = end
        return text

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise IndexError(f"value type {kind}")
        item, count = self._scalar("I"), self._scalar("Q")
        if item not in _SCALARS:
            return [self._value(item) for _ in range(count)]
        code = f"<{count}{_SCALARS[item]}"
        values = struct.unpack_from(code, self._data, self._at)
        self._at += struct.calcsize(code)
        return list(values)
