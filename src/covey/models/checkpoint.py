"""What a model builder asks of a weight file, whatever its format."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from covey.models.files import ModelFiles
from covey.models.gguf_checkpoint import GgufCheckpoint
from covey.models.safetensors import SafetensorsCheckpoint


class Checkpoint(Protocol):
    """Weights by their Hugging Face names, checked as they are read."""

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

    def fingerprint(self) -> str:
        """Hex digest of the file's table and of samples of every tensor."""
        ...


def open_checkpoint(files: ModelFiles) -> Checkpoint:
    """The weights of a model on disk.

    Raises:
        ModelError: they are missing or damaged.
    """
    if files.gguf is None:
        return SafetensorsCheckpoint(files.path)
    return GgufCheckpoint(files.gguf, files.spec)
