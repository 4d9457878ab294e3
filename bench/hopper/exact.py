"""What the kernels should give, in float64, by plain formulas."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from covey.kernels.base import Activation, ForwardBatch, KvLayer, Weight
from covey.kernels.fp8_format import FP8_BLOCK
from hopper.harness import DEVICE
from hopper.inputs import EPSILON, HEADS, KV_HEADS, D, frequencies, heads_of


def widened(x: Activation | Weight | Tensor) -> Tensor:
    """Values times their scales, of a group or a block each."""
    if isinstance(x, Tensor):
        return x.double()
    values = x.values.double()
    if x.scales is None:
        return values
    scales = x.scales.double().repeat_interleave(FP8_BLOCK, 1)
    if isinstance(x, Weight):
        scales = scales.repeat_interleave(FP8_BLOCK, 0)
    return values * scales


def product(x: Activation, weight: Weight) -> Tensor:
    """x @ weight.T."""
    return widened(x) @ widened(weight).T


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, gate beside up."""
    gate, up = gate_up.double().chunk(2, 1)
    return gate * gate.sigmoid() * up


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm."""
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight.double()


def rotation(qkv: Tensor, positions: np.ndarray, norms: tuple[Tensor, Tensor]) -> Tensor:
    """Heads of a product, queries and keys of them normed and rotated."""
    angles = torch.outer(torch.from_numpy(positions).double(), frequencies()).to(DEVICE)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    *rotated, v = heads_of(qkv.double())
    found = []
    for x, weight in zip(rotated, norms, strict=True):
        first, second = norm(x, weight).chunk(2, -1)
        found.append(torch.cat([first * cos - second * sin, second * cos + first * sin], -1))
    return torch.cat([*found, v], 1).flatten(1)


def attention(q: Tensor, k: Tensor, v: Tensor, batch: ForwardBatch, kv: KvLayer) -> Tensor:
    """Tree attention by its definition, (n, heads * d)."""
    rows = torch.arange(len(batch), device=DEVICE)
    subtree_ends = torch.from_numpy(batch.subtree_ends).to(DEVICE)
    seen = (rows <= rows[:, None]) & (rows[:, None] < subtree_ends)
    keys, values = [k], [v]
    for (first, last), (low, high) in zip(batch.prefix_rows, batch.prefix_slots, strict=True):
        over = ((rows >= int(first)) & (rows < int(last)))[:, None]
        seen = torch.cat([seen, over.expand(-1, int(high - low))], 1)
        keys.append(kv.k[low:high])
        values.append(kv.v[low:high])
    wide_k, wide_v = torch.cat(keys).double(), torch.cat(values).double()
    out = torch.empty(q.shape, device=DEVICE, dtype=torch.float64)
    for head in range(HEADS):
        group = head * KV_HEADS // HEADS
        scores = q[:, head].double() @ wide_k[:, group].T * D**-0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(1)
        out[:, head] = weights @ wide_v[:, group]
    return out.flatten(1)
