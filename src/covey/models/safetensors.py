"""Read a folder of safetensors files as a checkpoint. Nothing is ever unpickled.

Format: https://huggingface.co/docs/safetensors: eight bytes of length, a JSON table of that
length, and the tensors, which fill the rest of the file without a gap.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import torch
from torch import Tensor

from covey.arrays import UInt8
from covey.errors import ModelError
from covey.models.checkpoint import Checkpoint, StoredTensor
from covey.models.fields import Fields
from covey.models.file_reader import WeightFile, parse_json, read_json

_READABLE = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3": torch.float8_e4m3fn,
}
# What a file calls its dtypes, what users do, and their bytes.
_DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3": ("float8_e4m3", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "F32": ("float32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),
}
_MOST_HEADER = 100 << 20  # of the format
_MOST_DIMENSIONS = 8
_INDEX = "model.safetensors.index.json"


class SafetensorsCheckpoint(Checkpoint):
    """The weights of a Hugging Face folder: model.safetensors, or shards and their index.

    Raises:
        ModelError: there are none, a file's table is damaged, or two files hold one tensor.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.tensors: dict[str, StoredTensor] = {}
        paths, named = _shard_paths(folder)
        self._shards = [_Shard(path) for path in paths]
        for shard in self._shards:
            for name, tensor in shard.tensors.items():
                if name in self.tensors:
                    other = self.tensors[name].file.path.name
                    raise ModelError(
                        f"{tensor.file.path} and {other} both hold {name}. Fetch the folder again."
                    )
                self.tensors[name] = tensor
        for name, file in named.items():
            if name not in self.tensors or self.tensors[name].file.path.name != file:
                raise ModelError(f"{folder / _INDEX} names a tensor {name} that {file} has not.")

    def fingerprint(self) -> str:
        """See `Checkpoint.fingerprint`."""
        prints = [shard.file.fingerprint(shard.pieces) for shard in self._shards]
        return hashlib.sha256(" ".join(prints).encode()).hexdigest()

    def _decoded(self, name: str, content: UInt8) -> Tensor:
        stored = self.tensors[name]
        dtype = _READABLE.get(stored.dtype)
        if dtype is None:
            raise ModelError(
                f"{stored.file.path}: tensor {name} is stored as {stored.dtype};"
                " Covey reads FP32, FP16, BF16 and FP8 (e4m3)."
            )
        return torch.from_numpy(content).view(dtype).view(stored.shape)


class _Shard:
    """One open file; see `SafetensorsCheckpoint`.

    Attributes:
        tensors: what its table says of each.
        pieces: where they, and the table, start and stop.
    """

    def __init__(self, path: Path) -> None:
        self.file = WeightFile(path)
        length = int.from_bytes(self.file.read(0, min(8, self.file.size)).tobytes(), "little")
        start = 8 + length
        if self.file.size < 8 or length > _MOST_HEADER or start > self.file.size:
            raise _damaged(path, "its table does not fit the file")
        table = parse_json(self.file.read(8, start).tobytes(), path)
        _check_metadata(Fields(table, path).part("__metadata__"))
        table.pop("__metadata__", None)
        self.tensors: dict[str, StoredTensor] = {}
        for name in table:
            entry = Fields(table, path).part(name)
            if entry is None:
                raise _damaged(path, f"its table says nothing of {name}")
            code, shape, (first, last) = _entry(entry)
            dtype = _DTYPES[code][0]
            self.tensors[name] = StoredTensor(shape, dtype, self.file, start + first, start + last)
        places = sorted((tensor.start, tensor.stop) for tensor in self.tensors.values())
        self.pieces = [(0, 8), (8, start), *places]
        _check_cover(places, start, self.file.size, path)


def _check_metadata(metadata: Fields | None) -> None:
    """Refuse matrices that another framework wrote: some have their rows as columns."""
    if metadata is not None and metadata.text("format", "pt") not in ("pt", "mlx"):
        metadata.refuse("format", "Covey reads files written by PyTorch or MLX")


def _entry(entry: Fields) -> tuple[str, tuple[int, ...], list[int]]:
    """The dtype, shape, start and stop that a table gives of one tensor."""
    entry.known({"dtype", "shape", "data_offsets"}, {}, lambda key: False)
    code = entry.text("dtype")
    if code not in _DTYPES:
        entry.refuse("dtype", f"one of {', '.join(_DTYPES)} is needed")
    shape, offsets = entry.items("shape", int), entry.items("data_offsets", int)
    if len(shape) > _MOST_DIMENSIONS or any(width < 1 for width in shape):
        entry.refuse("shape", f"at most {_MOST_DIMENSIONS} positive widths are needed")
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * _DTYPES[code][1]:
        entry.refuse("data_offsets", f"{shape} of {code} take another number of bytes")
    return code, tuple(shape), offsets


def _check_cover(places: list[tuple[int, int]], start: int, size: int, path: Path) -> None:
    """Refuse tensors that overlap, leave a gap, or do not end with the file."""
    at = start
    for first, last in places:
        if first != at:
            raise _damaged(
                path, f"a tensor begins at byte {first:,}, the one before ends at {at:,}"
            )
        at = last
    if at != size:
        raise _damaged(path, f"its tensors end at byte {at:,}, the file at {size:,}")


def _shard_paths(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files of a folder's weights, and which of them its index names for each tensor."""
    try:
        present = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error}.") from error
    if _INDEX not in present:
        if "model.safetensors" in present:
            return [folder / "model.safetensors"], {}
        pickled = [name for name in sorted(present) if name.endswith((".bin", ".pt"))]
        reason = f" It holds {pickled[0]}, which would have to be unpickled." if pickled else ""
        raise ModelError(f"{folder} holds no model.safetensors.{reason}")
    index = folder / _INDEX
    named = Fields(read_json(index), index).part("weight_map")
    if named is None:
        raise ModelError(f"{index} cannot be read: it has no weight_map. Fetch the file again.")
    files = {key.removeprefix(named.prefix): name for key, name in named.values.items()}
    for name in files.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index} points outside its folder: {name!r}.")
        if name not in present:
            raise ModelError(f"{folder / name} is missing, but {index.name} names it.")
    return [folder / name for name in sorted(set(files.values()))], files


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path} is damaged or cut off: {reason}. Fetch the file again.")
