"""Read GGUF files: header, metadata, tensor table, and tensors as float32; torch is loaded late.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Block formats are dequantised
by the `gguf` package. Its reader is not used: it takes 4 s and 190 MB for the header of SmolLM2,
this one 0.1 s and 48 MB; it maps the file, so that one which shrinks ends the process (SIGBUS); it
goes on for ever in a list that says to have 2**62 values, and lets tensors overlap.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from covey.arrays import Float32, UInt8
from covey.errors import ModelError
from covey.models.file_reader import WeightFile
from covey.models.spec import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor
from covey.models.checkpoint import EMBEDDING, FINAL_NORM, HEAD, Checkpoint, StoredTensor

_OUTER = {"token_embd": EMBEDDING, "output_norm": FINAL_NORM, "output": HEAD}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(0|[1-9][0-9]*)\.)?(\w+)\.weight", re.ASCII)

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
_SCALARS |= {10: "Q", 11: "q", 12: "d"}
_STRUCTS = {code: struct.Struct("<" + code) for code in _SCALARS.values()}
_STRING, _ARRAY = 8, 9
_ROWS_AT_A_TIME = 4096  # bounds the temporaries of dequantising a large table
_AHEAD = 1 << 20  # bytes of a header read at a time
_MOST_HEADER = 256 << 20  # the largest vocabularies take some 20 MB
_MOST_KEYS, _MOST_TENSORS = 1 << 16, 1 << 20
_MOST_ITEMS = 1 << 22  # of an array: the largest vocabularies have a quarter million tokens
_MOST_DIMENSIONS = 4  # of the format
_MOST_ALIGNMENT = 1 << 20


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
        metadata: key -> number, text, bool, or list of these.
        tensors: name -> where it lies.

    Raises:
        ModelError: no GGUF file, an unknown version, or a header that ends too early.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = WeightFile(path)
        header = _Header(self._file)
        self.metadata, self.tensors = header.read()
        # What is hashed is what was read: the header's bytes stay those of this moment.
        self._header_end = header.end
        self._file.digest(0, header.end)

    @cached_property
    def stored(self) -> dict[str, StoredTensor]:
        """What the file says of each tensor.

        Raises:
            ModelError: tensors overlap, end behind the file, or are of an unknown format.
        """
        found = {name: self._stored(name, entry) for name, entry in self.tensors.items()}
        at, before = self._header_end, "the header"
        for name, tensor in sorted(found.items(), key=lambda item: item[1].start):
            if tensor.start < at:
                raise ModelError(
                    f"{self.path} is damaged: tensor {name} begins at byte {tensor.start:,}, within"
                    f" {before}. Fetch it again."
                )
            if tensor.stop > self._file.size:
                raise ModelError(
                    f"{self.path} is cut off: tensor {name} ends at byte {tensor.stop:,}, the file"
                    f" at {self._file.size:,}. Fetch it again."
                )
            at, before = tensor.stop, f"tensor {name}"
        return found

    def fingerprint(self) -> str:
        """See `Checkpoint.fingerprint`."""
        tensors = [(tensor.start, tensor.stop) for tensor in self.stored.values()]
        return self._file.fingerprint([(0, self._header_end), *tensors])

    def _stored(self, name: str, entry: TensorEntry) -> StoredTensor:
        kind, block, block_bytes = _format(entry.kind)
        if not block:
            raise _unreadable(self.path, name, kind)
        width = entry.shape[-1]
        if width % block:
            raise ModelError(
                f"{self.path}: tensor {name} is {width} wide, no multiple of the {block} weights"
                f" of a {kind} block. The file is damaged; fetch it again."
            )
        stop = entry.start + math.prod(entry.shape) // block * block_bytes
        return StoredTensor(entry.shape, kind, self._file, entry.start, stop)


class GgufCheckpoint(Checkpoint):
    """Dequantised tensors of a GGUF file, float32, their rows in Hugging Face's order.

    Raises:
        ModelError: its tensors overlap, end behind it, or are of an unknown format.
    """

    def __init__(self, file: GgufFile, spec: ModelSpec) -> None:
        self.path = file.path
        self._file = file
        self._spec = spec
        self._names = {_hugging_face_name(name): name for name in file.tensors}
        foreign = [name for name in file.tensors if name.startswith(("model.", "lm_head"))]
        if foreign:
            raise ModelError(f"{file.path} has a tensor {foreign[0]}, which is no name of GGUF's.")
        self.tensors = {name: file.stored[own] for name, own in self._names.items()}

    def fingerprint(self) -> str:
        """See `Checkpoint.fingerprint`."""
        return self._file.fingerprint()

    def _decoded(self, name: str, content: UInt8) -> Tensor:
        import torch

        own = self._names[name]
        entry = self._file.tensors[own]
        tensor = torch.from_numpy(_dequantised(self.path, own, entry, content))
        # llama.cpp stores a Llama's queries and keys for RoPE over neighbouring dimensions.
        if self._spec.architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            pairs = tensor.view(-1, self._spec.d_head // 2, 2, entry.shape[1])
            return pairs.transpose(1, 2).reshape(entry.shape)
        return tensor


def _hugging_face_name(name: str) -> str:
    """What Hugging Face calls a tensor; its own name where it has no such tensor."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    layer, kind = match.groups()
    if layer is None:
        return _OUTER.get(kind, name)
    return f"model.layers.{layer}.{_INNER[kind]}.weight" if kind in _INNER else name


def _dequantised(path: Path, name: str, entry: TensorEntry, content: UInt8) -> Float32:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType(entry.kind)
    rows = math.prod(entry.shape[:-1])
    packed = content.reshape(rows, -1)
    out = np.empty((rows, entry.shape[-1]), dtype=np.float32)
    try:
        for first in range(0, rows, _ROWS_AT_A_TIME):
            part = slice(first, first + _ROWS_AT_A_TIME)
            out[part] = dequantize(packed[part], kind)
    except NotImplementedError:
        raise _unreadable(path, name, kind.name) from None
    return out.reshape(entry.shape)


def _unreadable(path: Path, name: str, kind: str) -> ModelError:
    return ModelError(
        f"{path}: tensor {name} is stored as {kind}, which cannot be dequantised here."
        " Use a file quantised as Q8_0, Q4_1, Q4_K or the like, or safetensors."
    )


def _format(kind: int) -> tuple[str, int, int]:
    """Name of a ggml type, weights of a block, and its bytes; no weights where it is not known."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        known = GGMLQuantizationType(kind)
        return known.name, *GGML_QUANT_SIZES[known]
    except (ValueError, KeyError):
        return f"type {kind}", 0, 0


class _Header:
    """A cursor over the start of the file.

    Attributes:
        end: where the header stops, once it is read.
    """

    def __init__(self, file: WeightFile) -> None:
        self._file = file
        self._data = bytearray()
        self._at = 0
        self.end = 0

    def read(self) -> tuple[dict[str, Any], dict[str, TensorEntry]]:
        if self._file.size < 4 or self._data[self._skip(4) : 4] != b"GGUF":
            raise ModelError(f"{self._file.path} is not a GGUF file: it does not begin with GGUF.")
        version = self._scalar("I")
        if version not in (2, 3):
            raise ModelError(
                f"{self._file.path} is GGUF version {version}; Covey reads little-endian 2 and 3."
            )
        tensor_count, key_count = self._scalar("Q"), self._scalar("Q")
        if tensor_count > _MOST_TENSORS or key_count > _MOST_KEYS:
            raise self._damaged(f"it has {key_count:,} keys and {tensor_count:,} tensors")
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self._string()
            if key in metadata:
                raise self._damaged(f"it says {key} twice")
            metadata[key] = self._value(self._scalar("I"))
        entries = [self._entry() for _ in range(tensor_count)]
        self.end = self._at
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= _MOST_ALIGNMENT or alignment % 8:
            raise self._damaged(f"tensors begin at multiples of {alignment!r} bytes")
        base = -(-self._at // alignment) * alignment
        tensors: dict[str, TensorEntry] = {}
        for name, shape, kind, offset in entries:
            if name in tensors:
                raise self._damaged(f"it has two tensors {name}")
            if offset % alignment:
                raise self._damaged(f"tensor {name} begins at no multiple of {alignment} bytes")
            tensors[name] = TensorEntry(shape, kind, base + offset)
        return metadata, tensors

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = self._scalar("I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise self._damaged(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(self._scalar("Q") for _ in range(dimensions))[::-1]
        if 0 in shape:
            raise self._damaged(f"tensor {name} has no weights")
        return name, shape, self._scalar("I"), self._scalar("Q")

    def _skip(self, count: int) -> int:
        """Where the next bytes begin, of which the cursor then stands behind."""
        start = self._at
        self._at += count
        if self._at > len(self._data):
            self._read_on()
        return start

    def _read_on(self) -> None:
        """Read to the cursor, and ahead as far as the file goes."""
        if self._at > min(self._file.size, _MOST_HEADER):
            raise self._damaged(f"its header ends or breaks off before byte {self._at:,}")
        have = len(self._data)
        stop = min(max(self._at, have + _AHEAD), self._file.size)
        self._data += self._file.read(have, stop).data

    def _scalar(self, code: str) -> Any:
        return _STRUCTS[code].unpack_from(self._data, self._skip(_STRUCTS[code].size))[0]

    def _string(self) -> str:
        start = self._skip(self._scalar("Q"))
        try:
            return self._data[start : self._at].decode()
        except UnicodeDecodeError as error:
            raise self._damaged(f"a text of it is none ({error.reason})") from None

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise self._damaged(f"it has a value of type {kind}")
        item, count = self._scalar("I"), self._scalar("Q")
        if count > _MOST_ITEMS:
            raise self._damaged(f"it has a list of {count:,} values")
        if item == _STRING:
            return [self._string() for _ in range(count)]
        if item not in _SCALARS:
            raise self._damaged(f"it has a list of values of type {item}")
        code = f"<{count}{_SCALARS[item]}"
        return list(struct.unpack_from(code, self._data, self._skip(struct.calcsize(code))))

    def _damaged(self, reason: str) -> ModelError:
        return ModelError(f"{self._file.path} is damaged: {reason}. Fetch the file again.")
