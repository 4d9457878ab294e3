"""The `Kernels` of an sm_90 GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.arrays import Int64
from covey.errors import RunError
from covey.kernels.base import Activation, AttentionConfig, ForwardBatch, KvLayer, Weight
from covey.kernels.fp8_format import FP8_GROUP
from covey.kernels.hopper.attention_split import DenseLimits, split_attention
from covey.kernels.hopper.flash_attention import (
    DenseAttention,
    DeviceCall,
    call_arrays,
    device_call,
    load_flash_attention,
)
from covey.kernels.hopper.flash_attention_fp8 import load_fp8_attention
from covey.kernels.hopper.launch import upload_together
from covey.kernels.hopper.linear import LinearBackend, choose_backend
from covey.kernels.hopper.logits import answer_logits
from covey.kernels.hopper.packed_attention import PackedTiles, packed_attention
from covey.kernels.hopper.rms_norm import add_rms_norm
from covey.kernels.hopper.rotary import QkvEpilogue, RotaryEmbedding, rotate_and_store
from covey.kernels.hopper.silu_and_mul import silu_and_mul
from covey.kernels.reference import project_heads, split_heads

_FEW_HEAD_ROWS = 64  # above, the head is multiplied as a matrix


@dataclass(frozen=True, slots=True)
class HopperPlan:
    """A batch, ready for all layers.

    Attributes:
        rows: (q,) int64, the asking rows, or None for all.
        rotary: positions and KV cache slots of all rows.
        tiles: what the packed kernel does.
        calls: what is computed densely before it.
    """

    rows: Tensor | None
    rotary: RotaryEmbedding
    tiles: PackedTiles
    calls: tuple[DeviceCall, ...]


class HopperKernels:
    """Triton for everything that is not a matrix product or long dense attention.

    Args:
        config: the model's shape; heads of a power of two, 128 where quantised.
        device: where everything lies.
        dtype: of the residual stream, linear outputs, keys and values.
        quantised: linear layers take FP8.
        backend: the linear layers in FP8.
        dense: the dense attention.
        limits: what attention is computed densely.
    """

    def __init__(
        self,
        config: AttentionConfig,
        device: torch.device,
        dtype: torch.dtype,
        quantised: bool,
        backend: LinearBackend,
        dense: DenseAttention,
        limits: DenseLimits | None = None,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.quantised = quantised
        self._config = config
        self._backend = backend
        self._dense = dense
        self._limits = limits or DenseLimits()
        self._stored = torch.float8_e4m3fn if quantised else dtype
        self._frequencies = config.frequencies.to(device, torch.float32)

    def plan(self, batch: ForwardBatch, rows: Int64 | None = None) -> HopperPlan:
        """See `Kernels.plan`."""
        work = split_attention(batch, rows, self._limits)
        tiles = [batch.subtree_ends, work.asked, work.has, work.tiles]
        tiles += [work.own_offsets, work.own, work.prefix_offsets, work.prefix]
        calls = [array for call in work.parts for array in call_arrays(call)]
        positions, slots, *views = upload_together(
            [batch.positions, batch.slot_mapping, *tiles, *calls], self.device
        )
        on_device, views = PackedTiles(self._limits.tile_rows, *views[:8]), views[8:]
        return HopperPlan(
            None if rows is None else on_device.asked.to(torch.int64),
            RotaryEmbedding(
                positions, self._frequencies, slots if (batch.slot_mapping >= 0).any() else None
            ),
            on_device,
            tuple(device_call(call, views[5 * i : 5 * i + 5]) for i, call in enumerate(work.parts)),
        )

    def norm(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor
    ) -> tuple[Tensor, Activation]:
        """See `Kernels.norm`."""
        normed = add_rms_norm(
            residual,
            delta,
            weight,
            epsilon=self._config.norm_eps,
            out_dtype=self._stored,
            quantised=self.quantised,
        )
        return residual, normed

    def linear(self, x: Activation, weight: Weight) -> Tensor:
        """See `Kernels.linear`."""
        if weight.scales is None:
            return F.linear(x.values, weight.values)
        return self._backend.multiply(x, weight)

    def project(
        self, x: Activation, weight: Weight, residual: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """See `Kernels.project`."""
        if weight.scales is None or self._backend.add is None:
            return residual, self.linear(x, weight)
        return self._backend.add(x, weight, residual), None

    def qkv(
        self,
        x: Activation,
        weight: Weight,
        norms: tuple[Tensor, Tensor] | None,
        plan: HopperPlan,
        kv: KvLayer | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernels.qkv`."""
        shape, product = self._config, self._backend.qkv
        epsilon = shape.norm_eps
        if weight.scales is None or product is None or shape.d_head != FP8_GROUP:
            q, k, v = project_heads(self.linear, x, weight, plan.rows, shape)
            rotate_and_store(q, k, v, norms, plan.rows, plan.rotary, kv, epsilon)
            return q, k, v
        width = shape.heads * shape.d_head
        if plan.rows is None:
            epilogue = QkvEpilogue(shape.heads, shape.kv_heads, norms, plan.rotary, kv, epsilon)
            whole = product(x, weight, epilogue)
            return split_heads(whole[:, :width], whole[:, width:], shape)
        epilogue = QkvEpilogue(0, shape.kv_heads, norms, plan.rotary, kv, epsilon)
        others = product(x, weight.rows(width, len(weight.values)), epilogue)
        epilogue = QkvEpilogue(shape.heads, 0, norms, plan.rotary.take(plan.rows), None, epsilon)
        queries = product(x.take(plan.rows), weight.rows(0, width), epilogue)
        return split_heads(queries, others, shape)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, plan: HopperPlan, kv: KvLayer | None
    ) -> Activation:
        """See `Kernels.attend`."""
        scale = self._config.scale
        parts = []
        for call in plan.calls:
            keys, values = k, v
            if call.prefix:
                if kv is None:
                    raise RunError("A batch reads the KV cache, but none was given.")
                keys, values = kv.k, kv.v
            parts.append(self._dense(q, keys, values, call, scale))
        return packed_attention(
            q,
            k,
            v,
            kv,
            plan.tiles,
            parts,
            scale=scale,
            out_dtype=self._stored,
            quantised=self.quantised,
        )

    def silu_and_mul(self, x: Activation, weight: Weight) -> Activation:
        """See `Kernels.silu_and_mul`."""
        if weight.scales is None:
            return silu_and_mul(
                self.linear(x, weight), out_dtype=self._stored, quantised=self.quantised
            )
        return self._backend.silu_and_mul(x, weight)

    def logits(
        self, residual: Tensor, delta: Tensor | None, weight: Tensor, head: Tensor
    ) -> Tensor:
        """See `Kernels.logits`."""
        epsilon = self._config.norm_eps
        if len(head) <= _FEW_HEAD_ROWS:
            return answer_logits(residual, delta, weight, head, epsilon)
        normed = add_rms_norm(
            residual, delta, weight, epsilon=epsilon, out_dtype=torch.float32, quantised=False
        )
        return normed.values @ head.float().T


def load_hopper(
    config: AttentionConfig, device: torch.device, quantised: bool, fp8_attention: bool = False
) -> tuple[HopperKernels, str]:
    """The kernels for a model in BF16 or FP8, and a sentence about what was chosen.

    Raises:
        ModelError: no FP8 product works, or FP8 attention does not where it is asked for.
    """
    backend = LinearBackend(_no_fp8, _no_fp8)
    sentence = "Products run in BF16 on cuBLAS."
    if quantised:
        backend, sentence = choose_backend(device)
    dense = load_fp8_attention(config, device) if fp8_attention else load_flash_attention()
    attention = "FlashAttention-3, long context in FP8," if fp8_attention else "FlashAttention-3"
    kernels = HopperKernels(config, device, torch.bfloat16, quantised, backend, dense)
    return kernels, f"Hopper kernels: {attention} and Triton. {sentence}"


def _no_fp8(*_: object) -> NoReturn:
    raise RunError("An FP8 weight reached kernels that were loaded for BF16.")
