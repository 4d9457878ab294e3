"""The dimensions of Qwen3 4B, and random inputs of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from covey.kernels.base import Activation, AttentionConfig, ForwardBatch, KvLayer, Weight
from covey.kernels.fp8_format import FP8_BLOCK
from covey.kernels.hopper import linear
from covey.kernels.hopper.attention_split import DenseLimits
from covey.kernels.hopper.flash_attention import DenseAttention, DeviceCall, load_flash_attention
from covey.kernels.hopper.kernels import HopperKernels, HopperPlan
from covey.kernels.hopper.rms_norm import add_rms_norm
from hopper.harness import DEVICE

FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16
HIDDEN, HEADS, KV_HEADS, D, FFN = 2560, 32, 8, 128, 9728
QKV = (HEADS + 2 * KV_HEADS) * D
EPSILON = 1e-6
# Rows and columns of a layer's weights, by their names.
WEIGHTS = {
    "qkv": (QKV, HIDDEN),
    "output": (HIDDEN, HEADS * D),
    "gate_up": (2 * FFN, HIDDEN),
    "down": (HIDDEN, FFN),
}
NEVER = DenseLimits(dense_keys=1 << 30, dense_rows=1, causal_rows=1 << 30)  # nothing densely


def normal(*shape: int) -> Tensor:
    """Random BF16."""
    return torch.randn(*shape, device=DEVICE, dtype=torch.float32).to(BF16)


def frequencies() -> Tensor:
    """(d / 2,) rotary angles a position, float64."""
    return 1e6 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, call: DeviceCall, scale: float
) -> tuple[Tensor, Tensor]:
    """FlashAttention-3, which is loaded where it is first used."""
    return load_flash_attention()(q, k, v, call, scale)


def plan_of(batch: ForwardBatch, limits: DenseLimits | None = None) -> HopperPlan:
    """What the kernels of Qwen3 4B derive from a batch."""
    config = AttentionConfig(HEADS, KV_HEADS, D, EPSILON, frequencies().float())
    backend = linear.torch_backend(DEVICE)
    kernels = HopperKernels(config, DEVICE, BF16, True, backend, flash_attention, limits)
    return kernels.plan(batch)


def dense_parts(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: KvLayer,
    calls: Sequence[DeviceCall],
    run: DenseAttention = flash_attention,
) -> list[tuple[Tensor, Tensor]]:
    """The results of a plan's dense calls, over the batch's own keys or over the KV cache."""
    return [run(q, *((kv.k, kv.v) if c.prefix else (k, v)), c, D**-0.5) for c in calls]


def random_cache(slots: int) -> KvLayer:
    """A layer of a KV cache that holds something everywhere."""
    return KvLayer(normal(slots, KV_HEADS, D), normal(slots, KV_HEADS, D))


def empty_cache(slots: int) -> KvLayer:
    """A layer of a KV cache that holds NaN."""
    shape = (2, slots, KV_HEADS, D)
    return KvLayer(*torch.full(shape, float("nan"), device=DEVICE, dtype=BF16).unbind())


def batch_of(
    runs: Sequence[tuple[int, int, int]], spans: Sequence[tuple[int, int, int, int]] = ()
) -> ForwardBatch:
    """A batch of runs of tokens that each see those before them; nothing is kept or answered.

    Args:
        runs: length, row that the run hangs on or -1, position of its first token.
        spans: first row, end of rows, first slot, end of slots that those rows see.
    """
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
    return ForwardBatch(
        tokens=np.zeros(total, dtype=np.int32),
        positions=np.concatenate([np.arange(d, d + n, dtype=np.int32) for n, _, d in runs]),
        subtree_ends=subtree_ends,
        logits_indices=np.empty(0, dtype=np.int64),
        prefix_rows=ranges[:, :2],
        prefix_slots=ranges[:, 2:],
        slot_mapping=np.full(total, -1, dtype=np.int32),
    )


def suffixes(tokens: int, length: int, anchor: int, slot: int = 0) -> ForwardBatch:
    """Suffixes of one length behind one KV cache span."""
    count = tokens // length
    spans = [(0, count * length, slot, slot + anchor)] if anchor else []
    return batch_of([(length, -1, anchor)] * count, spans)


def keeping(batch: ForwardBatch, slots: np.ndarray) -> ForwardBatch:
    """The batch with (n,) slots where its tokens are stored, -1 where they are not."""
    return replace(batch, slot_mapping=slots.astype(np.int32))


def heads_of(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as columns of the merged product."""
    q, k, v = qkv.view(len(qkv), -1, D).tensor_split([HEADS, HEADS + KV_HEADS], 1)
    return q, k, v


def random_product(rows: int, out: int, width: int) -> tuple[Activation, Weight]:
    """An activation as the norm leaves it, and a block-scaled weight."""
    ones = torch.ones(width, device=DEVICE, dtype=BF16)
    x = add_rms_norm(
        normal(rows, width), None, ones, epsilon=EPSILON, out_dtype=FP8, quantised=True
    )
    values = torch.randn(out, width, device=DEVICE).mul_(100).clamp_(-448, 448).to(FP8)
    blocks = out // FP8_BLOCK, width // FP8_BLOCK
    return x, Weight(values, torch.rand(blocks, device=DEVICE) * 1e-4 + 1e-4)
