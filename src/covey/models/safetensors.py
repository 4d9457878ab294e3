"""Read a folder of safetensors files as a checkpoint. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from covey.errors import ModelError

_READABLE = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)
_SAMPLE = 4096  # bytes hashed at the start and the end of every tensor


class SafetensorsCheckpoint:
    """The weights of a Hugging Face folder, in one file or in shards with an index.

    Args:
        folder: holds model.safetensors, or shards and model.safetensors.index.json.

    Raises:
        ModelError: there are none, or a file's header is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths = _shards(folder)
        self._where: dict[str, Path] = {}
        self._open: dict[Path, Any] = {}
        for path in self._paths:
            self._open[path] = _opened(path)
            self._where.update(dict.fromkeys(self._open[path].keys(), path))

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See `Checkpoint.read`."""
        path = self._where.get(name)
        if path is None:
            raise ModelError(
                f"{self.folder} has no tensor {name} in its safetensors files."
                " The folder is incomplete or of another model; fetch it again."
            )
        try:
            tensor: Tensor = self._open[path].get_tensor(name)
        except (SafetensorError, ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"{path}: tensor {name} cannot be read: {error}.") from error
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{path}: tensor {name} has shape {list(tensor.shape)}, the model needs"
                f" {list(shape)}. The weights and config.json do not belong together."
            )
        if tensor.dtype not in _READABLE:
            raise ModelError(
                f"{path}: tensor {name} is stored as {str(tensor.dtype).removeprefix('torch.')};"
                " Covey reads FP32, FP16, BF16 and FP8 (e4m3)."
            )
        return tensor

    def fingerprint(self) -> str:
        """See `Checkpoint.fingerprint`."""
        digest = hashlib.sha256()
        for path in self._paths:
            _hash_file(path, digest)
        return digest.hexdigest()


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        single = folder / "model.safetensors"
        if single.exists():
            return [single]
        pickled = [p.name for p in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt"))]
        reason = f" It holds {pickled[0]}, which would have to be unpickled." if pickled else ""
        raise ModelError(f"{folder} holds no model.safetensors.{reason}")
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{index} cannot be read: {error!r}. Fetch the file again.") from error
    for name in names:
        if Path(name).name != name:
            raise ModelError(f"{index} points outside its folder: {name!r}.")
        if not (folder / name).exists():
            raise ModelError(f"{folder / name} is missing, but {index.name} names it.")
    return [folder / name for name in names]


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is damaged or cut off: {error}. Fetch the file again.") from error


def _hash_file(path: Path, digest: Any) -> None:
    """Hash the header, and both ends of every tensor."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(size)
        digest.update(header)
        for entry in json.loads(header).values():
            if "data_offsets" not in entry:
                continue
            start, stop = entry["data_offsets"]
            for at in (start, max(start, stop - _SAMPLE)):
                file.seek(8 + size + at)
                digest.update(file.read(min(_SAMPLE, stop - start)))
