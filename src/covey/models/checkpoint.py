"""The weights of a model on disk, by their Hugging Face names whatever the format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from covey.errors import ModelError
from covey.models.files import ModelFiles
from covey.models.gguf import GgufFile
from covey.models.safetensors import SafetensorsCheckpoint
from covey.models.shapes import EMBEDDING, FINAL_NORM, HEAD, StoredTensor, check_tensors
from covey.models.spec import ModelSpec

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


class GgufCheckpoint:
    """Dequantised tensors of a GGUF file, float32.

    Args:
        file: the open file.
        spec: the model that its metadata describes.

    Attributes:
        path: the file.
        tensors: what it says of each tensor, by Hugging Face's name where there is one.

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

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See `Checkpoint.read`."""
        tensor = torch.from_numpy(self._file.read(self._names.get(name, name), shape))
        # llama.cpp stores a Llama's queries and keys for RoPE over neighbouring dimensions.
        if self._spec.architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            half = self._spec.d_head // 2
            return tensor.view(-1, half, 2, shape[1]).transpose(1, 2).reshape(shape)
        return tensor

    def digest(self, name: str) -> bytes:
        """See `Checkpoint.digest`."""
        return self._file.digest(self._names[name])

    def fingerprint(self) -> str:
        """See `Checkpoint.fingerprint`."""
        return self._file.fingerprint()


def _hugging_face_name(name: str) -> str:
    """What Hugging Face calls a tensor; its own name where it has no such tensor."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    layer, kind = match.groups()
    if layer is None:
        return _OUTER.get(kind, name)
    return f"model.layers.{layer}.{_INNER[kind]}.weight" if kind in _INNER else name
