"""What a model builder asks of a weight file, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor

from covey.models.files import ModelFiles
from covey.models.gguf_checkpoint import GgufCheckpoint
from covey.models.safetensors import SafetensorsCheckpoint
from covey.models.shapes import StoredTensor, check_tensors


class Checkpoint(Protocol):
    """Weights by their Hugging Face names, checked as they are read."""

    @property
    def path(self) -> Path:
        """The file or folder, for messages."""
        ...

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """What the files say of each tensor."""
        ...

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor, in the dtype that the file gives it.

        Args:
            name: such as "model.layers.0.self_attn.q_proj.weight".
            shape: what the model needs.

        Raises:
            ModelError: names the file and the tensor: missing, of another shape, cut off
                or of a dtype that cannot be read.
        """
        ...

    def digest(self, name: str) -> bytes:
        """Digest of the bytes of one tensor that the files hold."""
        ...

    def fingerprint(self) -> str:
        """Hex digest of every byte of the files, the same wherever they lie.

        What was read for the weights was hashed then; the rest is read here.

        Raises:
            ModelError: a file changed since it was opened, or cannot be read.
        """
        ...


def open_checkpoint(files: ModelFiles) -> Checkpoint:
    """The weights of a model on disk, which are those of its spec.

    Raises:
        ModelError: they are missing, damaged, or not those that the model needs.
    """
    checkpoint: Checkpoint
    if files.gguf is None:
        checkpoint = SafetensorsCheckpoint(files.path)
    else:
        checkpoint = GgufCheckpoint(files.gguf, files.spec)
    check_tensors(files.spec, checkpoint.tensors, checkpoint.path)
    return checkpoint
