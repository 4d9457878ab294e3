"""The tensors that a dense decoder is made of, and those that its files hold; no torch here."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from covey.arrays import UInt8
from covey.errors import ModelError
from covey.kernels.fp8_format import FP8_BLOCK
from covey.models.file_reader import WeightFile
from covey.models.spec import ModelSpec, WeightDtype

if TYPE_CHECKING:
    from torch import Tensor

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"

# Tables of the rotary positions, which older checkpoints hold and which follow from the spec.
_HARMLESS = re.compile(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What a file says of a tensor.

    Attributes:
        shape: rows first.
        dtype: how it is stored, such as "bfloat16" or "Q4_K".
        file, start, stop: where its bytes are.
    """

    shape: tuple[int, ...]
    dtype: str
    file: WeightFile
    start: int
    stop: int


class Checkpoint(ABC):
    """Weights by their Hugging Face names, checked as they are read.

    Attributes:
        path: the file or folder, for messages.
        tensors: what the files say of each tensor.
    """

    path: Path
    tensors: dict[str, StoredTensor]

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor, in the dtype that the file gives it, dequantised from GGUF's blocks.

        Args:
            name: such as "model.layers.0.self_attn.q_proj.weight".
            shape: what the model needs.

        Raises:
            ModelError: names the file and the tensor: missing, of another shape, cut off
                or of a dtype that cannot be read.
        """
        stored = _found(self.tensors, name, self.path)
        _check_shape(name, stored, shape)
        return self._decoded(name, stored.file.read(stored.start, stored.stop))

    def digest(self, name: str) -> bytes:
        """Digest of the bytes of one tensor that the files hold."""
        stored = self.tensors[name]
        return stored.file.digest(stored.start, stored.stop)

    @abstractmethod
    def fingerprint(self) -> str:
        """Hex digest of every byte of the files, the same wherever they lie.

        What was read for the weights was hashed then; the rest is read here.

        Raises:
            ModelError: a file changed since it was opened, or cannot be read.
        """

    @abstractmethod
    def _decoded(self, name: str, content: UInt8) -> Tensor:
        """A tensor from its bytes."""


def layer_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Shapes of one layer's tensors, by what stands between the layer's name and ".weight"."""
    hidden, q_width, kv_width, ffn = spec.hidden, spec.q_width, spec.kv_width, spec.ffn
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (q_width, hidden),
        "self_attn.k_proj": (kv_width, hidden),
        "self_attn.v_proj": (kv_width, hidden),
        "self_attn.o_proj": (hidden, q_width),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    if spec.qk_norm:
        shapes["self_attn.q_norm"] = shapes["self_attn.k_norm"] = (spec.d_head,)
    return shapes


def scale_shape(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Shape of the block scales of an FP8 matrix; ModelError where its blocks are not whole."""
    rows, columns = shape
    if rows % FP8_BLOCK or columns % FP8_BLOCK:
        raise ModelError(
            f"{name} is {rows} x {columns}; FP8 weights must be multiples of {FP8_BLOCK}."
        )
    return rows // FP8_BLOCK, columns // FP8_BLOCK


def scale_name(name: str) -> str:
    """Name of the block scales of an FP8 matrix."""
    return f"{name}_scale_inv"


def check_tensors(spec: ModelSpec, stored: Mapping[str, StoredTensor], path: Path) -> None:
    """Refuse weights that are not those of the spec, before anything is allocated.

    Raises:
        ModelError: a tensor is missing, of another shape or dtype, or is not computed with.
    """
    count = 0
    for name, shape in _needed(spec):
        found = _found(stored, name, path)
        _check_shape(name, found, shape)
        _check_dtype(spec, name, found)
        count += 1
    optional = {HEAD} if spec.tied_head else set()
    if count + len(optional & stored.keys()) == len(stored):
        return
    expected = {name for name, _ in _needed(spec)} | optional
    for name in stored:
        if name not in expected and not _HARMLESS.fullmatch(name):
            raise ModelError(
                f"{stored[name].file.path} holds a tensor {name}, which Covey does not compute"
                f" with: answers of a {spec.architecture} would be others. Choose another model."
            )


def _found(stored: Mapping[str, StoredTensor], name: str, path: Path) -> StoredTensor:
    if name not in stored:
        raise ModelError(
            f"{path} has no tensor {name}. It is incomplete or of another model; fetch it again."
        )
    return stored[name]


def _check_shape(name: str, found: StoredTensor, shape: tuple[int, ...]) -> None:
    """Refuse a tensor of another shape than the model needs."""
    if found.shape != shape:
        raise ModelError(
            f"{found.file.path}: tensor {name} has shape {list(found.shape)}, the model needs"
            f" {list(shape)}. The weights and their description do not belong together."
        )


def _needed(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of what the forward pass reads, one after another: a spec may lie."""
    table = (spec.vocab, spec.hidden)
    yield EMBEDDING, table
    quantised = spec.weight_dtype is WeightDtype.FLOAT8
    inner = layer_shapes(spec)
    for number in range(spec.layers):
        for key, shape in inner.items():
            name = f"model.layers.{number}.{key}.weight"
            yield name, shape
            if quantised and key.endswith("_proj"):
                yield scale_name(name), scale_shape(name, shape)
    yield FINAL_NORM, (spec.hidden,)
    if not spec.tied_head:
        yield HEAD, table


def _check_dtype(spec: ModelSpec, name: str, found: StoredTensor) -> None:
    quantised = spec.weight_dtype is WeightDtype.FLOAT8 and name.endswith("_proj.weight")
    if quantised != (found.dtype == WeightDtype.FLOAT8.value):
        should = "should be" if quantised else "should not be"
        raise ModelError(
            f"{found.file.path}: tensor {name} is stored as {found.dtype}; by the model's"
            f" configuration it {should} FP8. The weights and their description do not belong"
            " together."
        )
