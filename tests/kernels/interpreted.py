"""The Hopper kernels on the CPU, through Triton's interpreter.

tests/conftest.py chooses the interpreter before anything imports Triton. It computes
float32 and float16 right, and BF16 products and FP8 casts wrong; those forms are checked
on a GPU by `bench/hopper kernels --only errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from covey.kernels.base import Activation, AttentionConfig, Weight
from covey.kernels.reference import ReferenceKernels

pytest.importorskip("triton", reason="Triton has no build for this platform")

if TYPE_CHECKING:
    from covey.kernels.hopper.attention_split import DenseLimits
    from covey.kernels.hopper.flash_attention import DeviceCall

CPU = torch.device("cpu")


def attention_config(heads: int, kv_heads: int, d_head: int) -> AttentionConfig:
    """A shape with the rotary frequencies of base 10,000."""
    exponents = torch.arange(0, d_head, 2) / d_head
    return AttentionConfig(heads, kv_heads, d_head, 1e-6, 10000.0**-exponents)


def dense(q: Tensor, k: Tensor, v: Tensor, call: DeviceCall, scale: float) -> tuple[Tensor, Tensor]:
    """`DenseAttention` in plain torch; what lies between sequences is NaN."""
    heads, group = q.shape[1], q.shape[1] // k.shape[1]
    out = torch.full(q.shape, float("nan"), dtype=q.dtype)
    lse = torch.full((heads, len(q)), float("nan"))
    for b in range(len(call.query_counts)):
        first, low = int(call.query_starts[b]), int(call.key_starts[b])
        rows = slice(first, first + int(call.query_counts[b]))
        keys = slice(low, low + int(call.key_counts[b]))
        wide_k = k[keys].float().repeat_interleave(group, 1)
        wide_v = v[keys].float().repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q[rows].float(), wide_k) * scale
        if call.causal:
            scores += torch.full(scores.shape[1:], float("-inf")).triu(1)
        lse[:, rows] = scores.logsumexp(2)
        out[rows] = torch.einsum("hqk,khd->qhd", scores.softmax(2), wide_v).to(q.dtype)
    return out, lse


def widened(x: Activation, weight: Weight) -> Tensor:
    """The FP8 product in float32, of values that were stored in float32."""
    assert x.scales is not None and weight.scales is not None
    wide = weight.scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    rows = x.values.float() * x.scales.repeat_interleave(128, 1)
    return rows @ (weight.values.float() * wide).T


def both_kernels(
    shape: AttentionConfig, dtype: torch.dtype, limits: DenseLimits | None = None
) -> tuple[object, ReferenceKernels]:
    """The Hopper kernels under the interpreter, and the reference in the same dtype."""
    from covey.kernels.hopper.kernels import HopperKernels
    from covey.kernels.hopper.linear import torch_backend

    ours = HopperKernels(shape, CPU, dtype, False, torch_backend(CPU), dense, limits)
    return ours, ReferenceKernels(shape, CPU, dtype)
