"""Shapes, random inputs and batches for the measurements of the Hopper kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from covey.kernels.base import Activation, AttentionConfig, ForwardBatch, Weight
from covey.kernels.hopper import linear
from covey.kernels.hopper.attention_split import DenseLimits
from covey.kernels.hopper.flash_attention import load_flash_attention
from covey.kernels.hopper.kernels import HopperKernels
from covey.kernels.hopper.rms_norm import add_rms_norm

flash_attention = load_flash_attention()
CUDA = torch.device("cuda")
FP8 = torch.float8_e4m3fn
HIDDEN, HEADS, KV_HEADS, D, FFN, LAYERS = 2560, 32, 8, 128, 9728, 36
QKV = (HEADS + 2 * KV_HEADS) * D
EPSILON = 1e-6
NEVER = DenseLimits(dense_keys=1 << 30, dense_rows=1, causal_rows=1 << 30)


def normal(*shape: int) -> Tensor:
    """Random BF16."""
    return torch.randn(*shape, device=CUDA, dtype=torch.float32).to(torch.bfloat16)


def kernels(limits: DenseLimits | None = None) -> HopperKernels:
    """The kernels of Qwen3 4B."""
    frequencies = 1e6 ** (-torch.arange(0, D, 2) / D)
    shape = AttentionConfig(HEADS, KV_HEADS, D, EPSILON, frequencies)
    return HopperKernels(
        shape,
        CUDA,
        torch.bfloat16,
        True,
        linear.torch_backend(CUDA),
        flash_attention,
        limits or DenseLimits(),
    )


def batch_of(
    runs: Sequence[tuple[int, int, int]], spans: Sequence[tuple[int, int, int, int]] = ()
) -> ForwardBatch:
    """A batch of runs (length, first row of the subtree's parent or -1, first depth)."""
    lengths = [run[0] for run in runs]
    total = sum(lengths)
    parents: list[int] = []
    for length, parent, _ in runs:
        start = len(parents)
        parents += [parent, *range(start, start + length - 1)]
    subtree_ends = np.arange(1, total + 1, dtype=np.int32)
    for row in range(total - 1, -1, -1):
        if parents[row] >= 0:
            subtree_ends[parents[row]] = max(subtree_ends[parents[row]], subtree_ends[row])
    ranges = np.array(spans, dtype=np.int64).reshape(-1, 4)
    none = np.empty(0, dtype=np.int64)
    return ForwardBatch(
        tokens=np.zeros(total, dtype=np.int32),
        positions=np.concatenate([np.arange(d, d + n, dtype=np.int32) for n, _, d in runs]),
        subtree_ends=subtree_ends,
        logits_indices=none,
        prefix_rows=ranges[:, :2],
        prefix_slots=ranges[:, 2:],
        slot_mapping=np.full(total, -1, dtype=np.int32),
    )


def suffixes(tokens: int, length: int, anchor: int, slot: int = 0) -> ForwardBatch:
    """Suffixes of one length behind one KV cache span."""
    count = tokens // length
    spans = [(0, count * length, slot, slot + anchor)] if anchor else []
    return batch_of([(length, -1, anchor)] * count, spans)


def heads_of(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as columns of the merged product."""
    q, k, v = qkv.view(len(qkv), -1, D).tensor_split([HEADS, HEADS + KV_HEADS], 1)
    return q, k, v


WEIGHTS = (
    ("qkv", QKV, HIDDEN),
    ("output", HIDDEN, HEADS * D),
    ("gate_up", 2 * FFN, HIDDEN),
    ("down", HIDDEN, FFN),
)


def random_product(rows: int, out: int, width: int) -> tuple[Activation, Weight]:
    """An activation as the norm leaves it, and a block-scaled weight."""
    ones = torch.ones(width, device=CUDA, dtype=torch.bfloat16)
    x = add_rms_norm(
        normal(rows, width), None, ones, epsilon=EPSILON, out_dtype=FP8, quantised=True
    )
    values = torch.randn(out, width, device=CUDA).mul_(100).clamp_(-448, 448).to(FP8)
    scales = torch.rand(out // 128, width // 128, device=CUDA) * 1e-4 + 1e-4
    return x, Weight(values, scales)


def exact(x: Activation, weight: Weight) -> Tensor:
    """The product in float64."""
    assert x.scales is not None and weight.scales is not None
    rows = x.values.double() * x.scales.double().repeat_interleave(128, 1)
    blocks = weight.scales.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    return rows @ (weight.values.double() * blocks).T
