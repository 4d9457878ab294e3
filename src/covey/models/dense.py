"""The dense decoder: Llama and Qwen3, which differ in query and key norms alone.

Weights are laid out as the kernels want them (queries, keys and values in one matrix,
gate and up in another). The forward pass works on a packed chunk, never on a padded
batch, and its last layer computes only what answers and kept keys need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from covey.errors import ModelError
from covey.kernels.base import Chunk, Kernels, KvLayer, Plan, Weight
from covey.models.checkpoint import Checkpoint
from covey.models.spec import ModelSpec

_FP8 = torch.float8_e4m3fn
_BLOCK = 128  # rows and columns that share one FP8 scale

Rounding = Callable[[Weight], Weight]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer.

    Attributes:
        attention_norm, mlp_norm: (hidden,).
        qk_norms: two (d_head,), or None.
        qkv: (q_width + 2 * kv_width, hidden).
        output: (hidden, q_width).
        gate_up: (2 * ffn, hidden), gate first.
        down: (hidden, ffn).
    """

    attention_norm: Tensor
    qk_norms: tuple[Tensor, Tensor] | None
    qkv: Weight
    output: Weight
    mlp_norm: Tensor
    gate_up: Weight
    down: Weight


@dataclass(frozen=True, slots=True)
class DenseWeights:
    """A whole model; `head` is the embedding itself where they are tied.

    Attributes:
        embedding, head: (vocab, hidden).
        final_norm: (hidden,).
    """

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor


class DenseModel(Generic[Plan]):
    """A decoder over some kernels."""

    def __init__(self, spec: ModelSpec, weights: DenseWeights, kernels: Kernels[Plan]) -> None:
        self.spec = spec
        self._weights = weights
        self._kernels = kernels

    @torch.inference_mode()
    def logits(
        self, chunk: Chunk, head_rows: Tensor | None, arena: list[KvLayer] | None = None
    ) -> Tensor:
        """Logits at the answer rows of a chunk.

        Args:
            chunk: the new tokens.
            head_rows: (r,) int64 vocabulary ids wanted, on the device; None for all.
            arena: a layer's keys and values each; None where the chunk uses none.

        Returns:
            (answers, r) float32.
        """
        kernels = self._kernels
        residual: Tensor = self._weights.embedding[_uploaded(chunk, kernels.device)]
        delta: Tensor | None = None
        plan = kernels.plan(chunk)
        last = kernels.plan(chunk, chunk.answers)
        for number, layer in enumerate(self._weights.layers):
            kv = None if arena is None else arena[number]
            step = last if number == self.spec.layers - 1 else plan
            residual, delta = self._layer(layer, residual, delta, step, kv)
        head = self._weights.head if head_rows is None else self._weights.head[head_rows]
        return kernels.logits(residual, delta, self._weights.final_norm, head)

    def _layer(
        self,
        layer: LayerWeights,
        residual: Tensor,
        delta: Tensor | None,
        plan: Plan,
        kv: KvLayer | None,
    ) -> tuple[Tensor, Tensor | None]:
        """One layer over the rows of a plan; keys and values are those of all rows."""
        kernels = self._kernels
        residual, x = kernels.norm(residual, delta, layer.attention_norm)
        q, k, v = kernels.qkv(x, layer.qkv, layer.qk_norms, plan, kv)
        if plan.rows is not None:
            residual = residual[plan.rows]
        attended = kernels.attend(q, k, v, plan, kv)
        residual, delta = kernels.project(attended, layer.output, residual)
        residual, x = kernels.norm(residual, delta, layer.mlp_norm)
        return kernels.project(kernels.gated(x, layer.gate_up), layer.down, residual)


def _uploaded(chunk: Chunk, device: torch.device) -> Tensor:
    """The token ids on the device; a copy from plain memory would wait for earlier chunks."""
    tokens = torch.from_numpy(chunk.tokens)
    if device.type == "cuda":
        tokens = tokens.pin_memory()
    return tokens.to(device, non_blocking=True)


def load_weights(
    spec: ModelSpec,
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
    rounding: Rounding | None = None,
) -> DenseWeights:
    """Read a checkpoint into the layout of the kernels, one tensor at a time.

    Args:
        spec: the model.
        checkpoint: where the weights are.
        device: where they go.
        dtype: of everything but FP8 matrices, which stay as they are.
        rounding: what becomes of each matrix once it is read; None leaves it as it is.

    Raises:
        ModelError: a tensor is missing, damaged, or of a wrong shape or dtype.
    """
    reader = _Reader(checkpoint, device, dtype, rounding)
    embedding = reader.tensor("model.embed_tokens.weight", (spec.vocab, spec.hidden))
    layers = tuple(_layer_weights(spec, reader, i) for i in range(spec.layers))
    return DenseWeights(
        embedding=embedding,
        layers=layers,
        final_norm=reader.tensor("model.norm.weight", (spec.hidden,)),
        head=embedding
        if spec.tied_head
        else reader.tensor("lm_head.weight", (spec.vocab, spec.hidden)),
    )


def _layer_weights(spec: ModelSpec, reader: _Reader, number: int) -> LayerWeights:
    prefix = f"model.layers.{number}."
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    hidden, q_width, kv_width, ffn = spec.hidden, spec.q_width, spec.kv_width, spec.ffn
    head = (spec.d_head,)
    qk_norms = None
    if spec.qk_norm:
        qk_norms = (
            reader.tensor(attention + "q_norm.weight", head),
            reader.tensor(attention + "k_norm.weight", head),
        )
    qkv = [("q_proj", q_width), ("k_proj", kv_width), ("v_proj", kv_width)]
    return LayerWeights(
        attention_norm=reader.tensor(prefix + "input_layernorm.weight", (hidden,)),
        qk_norms=qk_norms,
        qkv=reader.matrix([(f"{attention}{n}.weight", rows) for n, rows in qkv], hidden),
        output=reader.matrix([(attention + "o_proj.weight", hidden)], q_width),
        mlp_norm=reader.tensor(prefix + "post_attention_layernorm.weight", (hidden,)),
        gate_up=reader.matrix(
            [(mlp + "gate_proj.weight", ffn), (mlp + "up_proj.weight", ffn)], hidden
        ),
        down=reader.matrix([(mlp + "down_proj.weight", hidden)], ffn),
    )


class _Reader:
    """Reads tensors and stacks matrices without holding both halves twice."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        dtype: torch.dtype,
        rounding: Rounding | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._dtype = dtype
        self._rounding = rounding

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        found = self._checkpoint.read(name, shape)
        if found.dtype is _FP8:
            raise ModelError(f"{name} is stored as FP8 but must be BF16, FP16 or FP32.")
        return found.to(self._device, self._dtype)

    def matrix(self, parts: list[tuple[str, int]], width: int) -> Weight:
        """Matrices of equal width, one below the other."""
        out: Tensor | None = None
        scales: list[Tensor] = []
        start = 0
        total = sum(rows for _, rows in parts)
        for name, rows in parts:
            found = self._checkpoint.read(name, (rows, width))
            dtype = _FP8 if found.dtype is _FP8 else self._dtype
            if found.dtype is _FP8:
                scales.append(self._scales(name, rows, width))
            if out is None:
                out = torch.empty(total, width, device=self._device, dtype=dtype)
            elif out.dtype is not dtype:
                raise ModelError(f"{name} is of another dtype than {parts[0][0]}.")
            out[start : start + rows] = found.to(self._device)
            start += rows
        if out is None:
            raise ModelError("a matrix needs at least one part")
        matrix = Weight(out, torch.cat(scales) if scales else None)
        return matrix if self._rounding is None else self._rounding(matrix)

    def _scales(self, name: str, rows: int, width: int) -> Tensor:
        if rows % _BLOCK or width % _BLOCK:
            raise ModelError(
                f"{name} is {rows} x {width}; FP8 weights must be multiples of {_BLOCK}."
            )
        shape = (rows // _BLOCK, width // _BLOCK)
        found = self._checkpoint.read(name.replace(".weight", ".weight_scale_inv"), shape)
        return found.to(self._device, torch.float32)
