"""The dense decoder: Llama and Qwen3, which differ in query and key norms alone.

Weights are laid out as the kernels want them (queries, keys and values in one matrix,
gate and up in another). The forward pass works on a packed batch, never on a padded
batch, and its last layer computes only what answers and kept keys need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from covey.errors import ModelError
from covey.kernels.base import ForwardBatch, Kernels, KvLayer, Plan, Weight
from covey.kernels.device_memory import upload
from covey.models.checkpoint import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    Checkpoint,
    layer_shapes,
    scale_name,
    scale_shape,
)
from covey.models.spec import Llama3Rope, ModelSpec

_FP8 = torch.float8_e4m3fn

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
class ModelWeights:
    """A whole model; `head` is the embedding itself where they are tied.

    Attributes:
        embedding, head: (vocab, hidden).
        final_norm: (hidden,).
    """

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor


class CausalLM(Generic[Plan]):
    """A decoder over some kernels."""

    def __init__(self, spec: ModelSpec, weights: ModelWeights, kernels: Kernels[Plan]) -> None:
        self.spec = spec
        self._weights = weights
        self._kernels = kernels

    @torch.inference_mode()
    def logits(
        self, batch: ForwardBatch, head_rows: Tensor | None, kv_cache: list[KvLayer] | None = None
    ) -> Tensor:
        """Logits at the answer rows of a batch.

        Args:
            batch: the new tokens.
            head_rows: (r,) int64 vocabulary ids wanted, on the device; None for all.
            kv_cache: a layer's keys and values each; None where the batch uses none.

        Returns:
            (answers, r) float32.
        """
        kernels = self._kernels
        tokens = upload(torch.from_numpy(batch.tokens), kernels.device)
        residual: Tensor = self._weights.embedding[tokens]
        delta: Tensor | None = None
        plan = kernels.plan(batch)
        last = kernels.plan(batch, batch.logits_indices)
        for number, layer in enumerate(self._weights.layers):
            kv = None if kv_cache is None else kv_cache[number]
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
        return kernels.project(kernels.silu_and_mul(x, layer.gate_up), layer.down, residual)


def rope_frequencies(spec: ModelSpec) -> Tensor:
    """Rotary angle a position of each pair of dimensions, (d_head / 2,) float32."""
    exponents = torch.arange(0, spec.d_head, 2, dtype=torch.float32) / spec.d_head
    plain = 1.0 / (spec.rope_theta**exponents)
    return plain if spec.rope_scaling is None else _stretched(plain, spec.rope_scaling)


def _stretched(plain: Tensor, scaling: Llama3Rope) -> Tensor:
    """Llama 3.1: long wavelengths slow down, short ones stay, the middle is blended."""
    wavelengths = 2 * math.pi / plain
    kept = scaling.original_context / wavelengths - scaling.low_factor
    kept = (kept / (scaling.high_factor - scaling.low_factor)).clamp(0, 1)
    return (1 - kept) * plain / scaling.factor + kept * plain


def load_weights(
    spec: ModelSpec,
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
    rounding: Rounding | None = None,
) -> ModelWeights:
    """Read a checkpoint into the layout of the kernels, one tensor at a time.

    Args:
        dtype: of everything but FP8 matrices, which stay as they are.
        rounding: what becomes of each matrix once it is read; None leaves it as it is.

    Raises:
        ModelError: a tensor is missing, damaged, or of a wrong shape or dtype.
    """
    reader = _WeightReader(checkpoint, device, dtype, rounding)
    embedding = reader.tensor(EMBEDDING, (spec.vocab, spec.hidden))
    layers = tuple(_layer_weights(spec, reader, i) for i in range(spec.layers))
    final_norm = reader.tensor(FINAL_NORM, (spec.hidden,))
    if not spec.tied_head:
        head = reader.tensor(HEAD, (spec.vocab, spec.hidden))
        return ModelWeights(embedding, layers, final_norm, head)
    # Some files hold the embedding a second time.
    if HEAD in checkpoint.tensors and checkpoint.digest(HEAD) != checkpoint.digest(EMBEDDING):
        raise ModelError(
            f"{checkpoint.path} ties {HEAD} to {EMBEDDING} (tie_word_embeddings), but holds two"
            " different tensors. Its configuration and its weights do not belong together."
        )
    return ModelWeights(embedding, layers, final_norm, embedding)


def _layer_weights(spec: ModelSpec, reader: _WeightReader, number: int) -> LayerWeights:
    shapes = layer_shapes(spec)

    def named(key: str) -> str:
        return f"model.layers.{number}.{key}.weight"

    def tensor(key: str) -> Tensor:
        return reader.tensor(named(key), shapes[key])

    def matrix(*keys: str) -> Weight:
        return reader.matrix([(named(key), shapes[key]) for key in keys])

    return LayerWeights(
        attention_norm=tensor("input_layernorm"),
        qk_norms=(tensor("self_attn.q_norm"), tensor("self_attn.k_norm")) if spec.qk_norm else None,
        qkv=matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        output=matrix("self_attn.o_proj"),
        mlp_norm=tensor("post_attention_layernorm"),
        gate_up=matrix("mlp.gate_proj", "mlp.up_proj"),
        down=matrix("mlp.down_proj"),
    )


@dataclass(frozen=True, slots=True)
class _WeightReader:
    """Reads tensors and stacks matrices without holding both halves twice."""

    checkpoint: Checkpoint
    device: torch.device
    dtype: torch.dtype
    rounding: Rounding | None

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        found = self.checkpoint.read(name, shape)
        if found.dtype is _FP8:
            raise ModelError(f"{name} is stored as FP8 but must be BF16, FP16 or FP32.")
        return self._finite(name, found.to(self.device, self.dtype))

    def matrix(self, parts: list[tuple[str, tuple[int, ...]]]) -> Weight:
        """Matrices of equal width, one below the other."""
        out: Tensor | None = None
        scales: list[Tensor] = []
        start = 0
        total, width = sum(shape[0] for _, shape in parts), parts[0][1][1]
        for name, shape in parts:
            found = self.checkpoint.read(name, shape)
            dtype = _FP8 if found.dtype is _FP8 else self.dtype
            if found.dtype is _FP8:
                scales.append(self._scales(name, shape))
            if out is None:
                out = torch.empty(total, width, device=self.device, dtype=dtype)
            elif out.dtype is not dtype:
                raise ModelError(f"{name} is of another dtype than {parts[0][0]}.")
            rows = out[start : start + shape[0]]
            rows.copy_(found.to(self.device))
            self._finite(name, rows)
            start += shape[0]
        if out is None:
            raise ModelError("a matrix needs at least one part")
        matrix = Weight(out, torch.cat(scales) if scales else None)
        return matrix if self.rounding is None else self.rounding(matrix)

    def _scales(self, name: str, shape: tuple[int, ...]) -> Tensor:
        scales = scale_name(name)
        found = self.checkpoint.read(scales, scale_shape(name, shape))
        return self._finite(scales, found.to(self.device, torch.float32))

    def _finite(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor itself; ModelError where it holds a NaN or an infinity."""
        if tensor.dtype is _FP8:  # which has no infinities, and two NaNs
            wrong = ((tensor.view(torch.uint8) & 0x7F) == 0x7F).any()
        else:
            # A NaN is the least and the greatest of what it is among; no copy is made.
            low, high = torch.aminmax(tensor)
            wrong = ~(torch.isfinite(low) & torch.isfinite(high))
        if wrong:
            raise ModelError(
                f"{self.checkpoint.path}: tensor {name} holds weights that are no finite numbers,"
                " with which no answer can be computed. Fetch the model again."
            )
        return tensor
