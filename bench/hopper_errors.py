"""Each Hopper kernel against float64, on a GPU; run by bench/hopper_kernels.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from covey.kernels.base import Activation, ForwardBatch, KvLayer
from covey.kernels.hopper.attention_split import DenseLimits
from covey.kernels.hopper.flash_attention_fp8 import fp8_attention
from covey.kernels.hopper.launch import relative_error
from covey.kernels.hopper.linear import covey_backend
from covey.kernels.hopper.logits import answer_logits
from covey.kernels.hopper.packed_attention import packed_attention
from covey.kernels.hopper.rms_norm import add_rms_norm
from covey.kernels.hopper.rotary import QkvEpilogue, rotate_and_store
from covey.kernels.hopper.silu_and_mul import silu_and_mul
from gpu_timing import poison
from hopper_cases import (
    CUDA,
    EPSILON,
    FFN,
    FP8,
    HEADS,
    HIDDEN,
    KV_HEADS,
    NEVER,
    QKV,
    D,
    batch_of,
    exact,
    flash_attention,
    heads_of,
    kernels,
    normal,
    random_product,
    suffixes,
)


def widened(x: Activation) -> Tensor:
    """An activation in float64."""
    if x.scales is None:
        return x.values.double()
    return x.values.double() * x.scales.double().repeat_interleave(
        x.values.shape[1] // x.scales.shape[1], 1
    )


def rms(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm in float64."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight.double()


def exact_attention(
    q: Tensor, k: Tensor, v: Tensor, batch: ForwardBatch, kv: KvLayer | None
) -> Tensor:
    """Tree attention in float64 by its definition, (n, heads * d)."""
    rows = torch.arange(len(batch), device=CUDA)
    subtree_ends = torch.from_numpy(batch.subtree_ends).to(CUDA)
    seen = (rows <= rows[:, None]) & (rows[:, None] < subtree_ends)
    keys, values = [k], [v]
    for (first, last), (low, high) in zip(batch.prefix_rows, batch.prefix_slots, strict=True):
        assert kv is not None
        over = ((rows >= int(first)) & (rows < int(last)))[:, None]
        seen = torch.cat([seen, over.expand(-1, int(high - low))], 1)
        keys.append(kv.k[low:high])
        values.append(kv.v[low:high])
    wide_k, wide_v = torch.cat(keys).double(), torch.cat(values).double()
    out = torch.empty(q.shape, device=CUDA, dtype=torch.float64)
    for head in range(HEADS):
        group = head * KV_HEADS // HEADS
        scores = q[:, head].double() @ wide_k[:, group].T * D**-0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(1)
        out[:, head] = weights @ wide_v[:, group]
    return out.flatten(1)


def glue_errors() -> list[tuple[str, float]]:
    """Norm, gate, rotation and logits, with an odd number of rows."""
    rows = 1021
    found = []
    residual, delta, weight = normal(rows, HIDDEN), normal(rows, HIDDEN), normal(HIDDEN)
    expected = rms((residual + delta).double(), weight)
    for quantised in (True, False):
        x = residual.clone()
        poison()
        out = add_rms_norm(
            x, delta, weight, epsilon=EPSILON, quantised=quantised,
            out_dtype=FP8 if quantised else torch.bfloat16,
        )  # fmt: skip
        found.append(
            (f"norm, {'FP8' if quantised else 'BF16'}", relative_error(widened(out), expected))
        )
        found.append(("  residual", relative_error(x, (residual + delta).double())))
    both = normal(rows, 2 * FFN)
    first, second = both.double().chunk(2, 1)
    for quantised in (True, False):
        poison()
        out = silu_and_mul(
            both, out_dtype=FP8 if quantised else torch.bfloat16, quantised=quantised
        )
        label = f"gate, {'FP8' if quantised else 'BF16'}"
        found.append((label, relative_error(widened(out), first * first.sigmoid() * second)))
    head = normal(8, HIDDEN)
    poison()
    logits = answer_logits(residual, delta, weight, head, EPSILON)
    found.append(("answer logits", relative_error(logits, expected @ head.double().T)))
    return [*found, *rotation_errors(rows)]


def rotation_errors(rows: int) -> list[tuple[str, float]]:
    """Norm and rotation, by the kernel of its own and behind the FP8 product."""
    weights = normal(D), normal(D)
    batch = kept_behind(rows, (1 << 21) + 100)  # offsets beyond 31 bits
    turn = kernels().plan(batch).rotary
    qkv = normal(rows, QKV)

    def rotate(kv_cache: KvLayer) -> Tensor:
        rotate_and_store(*heads_of(qkv), weights, None, turn, kv_cache, EPSILON)
        return qkv

    found = turned_errors("", qkv.double(), weights, batch, rotate)
    x, weight = random_product(rows, QKV, HIDDEN)
    product = covey_backend(CUDA).heads
    assert product is not None

    def multiply(kv_cache: KvLayer) -> Tensor:
        poison()
        form = QkvEpilogue(HEADS, KV_HEADS, weights, turn, kv_cache, EPSILON)
        return product(x, weight, form)

    return found + turned_errors(", in the product", exact(x, weight), weights, batch, multiply)


def kept_behind(rows: int, slot: int) -> ForwardBatch:
    """A batch whose rows are all kept, in random order from a slot on."""
    plain = batch_of([(rows, -1, 3000)])
    slots = np.random.default_rng(1).permutation(rows) + slot
    return ForwardBatch(
        plain.tokens, plain.positions, plain.subtree_ends, plain.logits_indices, plain.prefix_rows,
        plain.prefix_slots, slots.astype(np.int32),
    )  # fmt: skip


def turned_errors(
    label: str,
    qkv: Tensor,
    weights: tuple[Tensor, Tensor],
    batch: ForwardBatch,
    turn: Callable[[KvLayer], Tensor],
) -> list[tuple[str, float]]:
    """Errors of what `turn` makes of exact queries, keys and values, and of what it keeps."""
    angles = torch.from_numpy(batch.positions).to(CUDA).double()[:, None] * (
        1e6 ** (-torch.arange(0, D, 2, device=CUDA).double() / D)
    )
    q, k, v = (x.double() for x in heads_of(qkv))
    expected = _rotated(q, angles, weights[0]), _rotated(k, angles, weights[1])
    room = int(batch.slot_mapping.max()) + 1
    kv_cache = KvLayer(
        torch.full((room, KV_HEADS, D), float("nan"), device=CUDA, dtype=torch.bfloat16),
        torch.full((room, KV_HEADS, D), float("nan"), device=CUDA, dtype=torch.bfloat16),
    )
    found_q, found_k, _ = heads_of(turn(kv_cache))
    where = torch.from_numpy(batch.slot_mapping).to(CUDA)
    stored = max(
        relative_error(kv_cache.k[where], expected[1]), relative_error(kv_cache.v[where], v)
    )
    if int((~kv_cache.k[:, 0, 0].isnan()).sum()) != len(batch):
        stored = float("nan")
    return [
        (f"rotated queries{label}", relative_error(found_q, expected[0])),
        (f"rotated keys{label}", relative_error(found_k, expected[1])),
        (f"keys and values in the KV cache{label}", stored),
    ]


def _rotated(x: Tensor, angles: Tensor, weight: Tensor) -> Tensor:
    first, second = rms(x.double(), weight).chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


BATCHES = {
    "suffixes of 5 behind 700 slots": suffixes(1000, 5, 700, slot=900),
    "suffixes of 7 behind 40 slots": suffixes(980, 7, 40, slot=11),
    "two anchors, out of order, with a gap": batch_of(
        [(10, -1, 600)] * 20 + [(31, -1, 0)] + [(9, -1, 300)] * 30,
        [(0, 200, 1500, 2100), (231, 501, 100, 400)],
    ),
    "prompts of 300 with a common opening": batch_of([(300, -1, 0)] + [(280, 19, 20)] * 3),
    "a prompt of 1,100": batch_of([(1100, -1, 0)]),
    "a document of 700 with partners of 6": batch_of([(706, -1, 0)] + [(6, 699, 700)] * 60),
}


def attention_errors() -> list[tuple[str, float]]:
    """Every kind of batch, with dense calls where they are due and without."""
    found = []
    for label, batch in BATCHES.items():
        qkv = normal(len(batch), QKV)
        q, k, v = heads_of(qkv)
        kv_cache = KvLayer(normal(2200, KV_HEADS, D), normal(2200, KV_HEADS, D))
        expected = exact_attention(q, k, v, batch, kv_cache)
        for limits in (DenseLimits(), NEVER):
            ours = kernels(limits)
            plan = ours.plan(batch)
            poison()
            parts = [
                flash_attention(q, *((kv_cache.k, kv_cache.v) if c.prefix else (k, v)), c, D**-0.5)
                for c in plan.calls
            ]
            for quantised in (True, False):
                poison()
                out = packed_attention(
                    q, k, v, kv_cache, plan.tiles, parts, scale=D**-0.5, quantised=quantised,
                    out_dtype=FP8 if quantised else torch.bfloat16,
                )  # fmt: skip
                kind = f"{len(parts)} dense, {'FP8' if quantised else 'BF16'}"
                found.append((f"{label} ({kind})", relative_error(widened(out), expected)))
    return found


LONG_BATCHES = {
    "suffixes of 5 behind 4,096 slots": suffixes(4000, 5, 4096, slot=90),
    "two anchors, with a gap": batch_of(
        [(10, -1, 2000)] * 80 + [(31, -1, 0)] + [(9, -1, 1500)] * 90,
        [(0, 800, 2500, 4500), (831, 1641, 100, 1600)],
    ),
    "a prompt of 4,200": batch_of([(4200, -1, 0)]),
}


def fp8_attention_errors() -> list[tuple[str, float]]:
    """What fp8-attention adds: dense calls in FP8, finished by the packed kernel in BF16."""
    found = []
    for label, batch in LONG_BATCHES.items():
        q, k, v = heads_of(normal(len(batch), QKV))
        kv_cache = KvLayer(normal(4600, KV_HEADS, D), normal(4600, KV_HEADS, D))
        expected = exact_attention(q, k, v, batch, kv_cache)
        plan = kernels().plan(batch)
        poison()
        parts = [
            fp8_attention(q, *((kv_cache.k, kv_cache.v) if c.prefix else (k, v)), c, D**-0.5)
            for c in plan.calls
        ]
        out = packed_attention(
            q, k, v, kv_cache, plan.tiles, parts, scale=D**-0.5, quantised=False,
            out_dtype=torch.bfloat16,
        )  # fmt: skip
        found.append((f"{label} ({len(parts)} in FP8)", relative_error(widened(out), expected)))
    return found


def print_errors() -> bool:
    """Print all errors; whether each is under its limit."""
    found = [*glue_errors(), *attention_errors(), *fp8_attention_errors()]
    return all([print_error(*entry) for entry in found])


def print_error(label: str, found: float) -> bool:
    """Print one; whether it is under its limit."""
    limit = 6e-3
    if "FP8" in label:
        limit = 1e-1 if "in FP8" in label else 4e-2
    print(f"  {label:<66}{found:10.2e}{'' if found < limit else '  TOO LARGE'}", flush=True)
    return found < limit
