"""Packed tree attention: a few tokens of a short suffix, with all grouped heads, a tile.

    q         (q, heads, d)          rows of a wider matrix
    k, v      (n, kv_heads, d)       rows of a wider matrix
    k_cache, v_cache (slots, kv_heads, d)
    subtree_ends     (n,) int32             one past each row's subtree
    asked     (q,) int32             the batch row of each query
    has       (q,) int32             bit p: part p holds something of the query
    tiles, own, prefix, offsets        see `attention_split.AttentionSplit`
    part_p    (q, heads, d), lse_p (heads, q) float32 natural: a dense call's result
    out       (q, heads * d)
    scales    (q, heads)             float32 by columns, where quantised; then d is 128

The rows of a tile are (token, head) pairs, so that four heads that share keys fill the
matrix unit. The running maximum, sum and output begin from the parts, each of which
counts as one key of weight exp(lse); exponentials are of base 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from covey.kernels.base import Activation, KvLayer
from covey.kernels.fp8_format import FP8_GROUP
from covey.kernels.hopper.launch import column_stride, empty_activation, group_scale, require

_LOG2_E = 1.4426950408889634
_NAME = "packed_attention"


@dataclass(frozen=True, slots=True)
class PackedTiles:
    """`AttentionSplit` on the device, without its dense calls; all int32.

    Attributes:
        subtree_ends: (n,).
        asked, has: (q,).
        tiles: (t, 2).
        own_offsets, prefix_offsets: (t + 1,).
        own: (s, 2).
        prefix: (p, 4).
        tile_rows: most rows of a tile, a power of two.
    """

    tile_rows: int
    subtree_ends: Tensor
    asked: Tensor
    has: Tensor
    tiles: Tensor
    own_offsets: Tensor
    own: Tensor
    prefix_offsets: Tensor
    prefix: Tensor


@triton.jit
def _join(
    acc, top, total, part, lse, token, head, live, count,
    HEADS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Fold a dense call's result into the running state."""
    d = tl.arange(0, D)
    weight = tl.load(lse + head * count + token, mask=live, other=float("-inf"))
    weight = weight * 1.4426950408889634
    at = (token.to(tl.int64) * HEADS + head) * D
    found = tl.load(part + at[:, None] + d[None, :], mask=live[:, None], other=0.0)
    new = tl.maximum(top, weight)
    base = tl.where(new == float("-inf"), 0.0, new)  # nothing seen yet: no inf - inf
    keep, add = tl.exp2(top - base), tl.exp2(weight - base)
    acc = acc * keep[:, None] + found.to(tl.float32) * add[:, None]
    return acc, new, total * keep + add


@triton.jit
def _walk(
    acc, top, total, q, k, v, key, inside, seen, k_stride, v_stride, scale,
    D: tl.constexpr,
):  # fmt: skip
    """One block of keys of the online softmax."""
    d = tl.arange(0, D)
    row = key.to(tl.int64)
    keys = tl.load(k + row[None, :] * k_stride + d[:, None], mask=inside[None, :], other=0.0)
    scores = tl.where(seen, tl.dot(q, keys) * scale, float("-inf"))
    new = tl.maximum(top, tl.max(scores, axis=1))
    base = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp2(scores - base[:, None])
    keep = tl.exp2(top - base)
    values = tl.load(v + row[:, None] * v_stride + d[None, :], mask=inside[:, None], other=0.0)
    acc = tl.dot(weights.to(values.dtype), values, acc * keep[:, None])
    return acc, new, total * keep + tl.sum(weights, axis=1)


@triton.jit(do_not_specialize=["count", "scale_stride"])
def _attend(
    q, k, v, k_cache, v_cache, subtree_ends, asked, has, tiles, own_offsets, own,
    prefix_offsets, prefix, part_0, lse_0, part_1, lse_1, part_2, lse_2, out, scales, count,
    q_stride, k_stride, v_stride, slot_stride, scale_stride, scale,
    HEADS: tl.constexpr, SHARE: tl.constexpr, ROOM: tl.constexpr, D: tl.constexpr,
    TOKENS: tl.constexpr, KEYS: tl.constexpr, PARTS: tl.constexpr, PREFIX: tl.constexpr,
    QUANTISE: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    place = tl.arange(0, TOKENS * ROOM)
    d = tl.arange(0, D)
    token = tl.load(tiles + 2 * tile) + place // ROOM
    lane = place % ROOM
    live = (token < tl.load(tiles + 2 * tile + 1)) & (lane < SHARE)
    row = tl.load(asked + token, mask=live, other=-1)
    head = kv_head * SHARE + lane

    at = token.to(tl.int64) * q_stride + head * D
    query = tl.load(q + at[:, None] + d[None, :], mask=live[:, None], other=0.0)
    acc = tl.zeros([TOKENS * ROOM, D], dtype=tl.float32)
    top = tl.full([TOKENS * ROOM], float("-inf"), dtype=tl.float32)
    total = tl.zeros([TOKENS * ROOM], dtype=tl.float32)

    # Dense calls that have been made already.
    if PARTS > 0:
        bits = tl.load(has + token, mask=live, other=0)
        on = live & ((bits & 1) != 0)
        acc, top, total = _join(acc, top, total, part_0, lse_0, token, head, on, count, HEADS, D)
        if PARTS > 1:
            on = live & ((bits & 2) != 0)
            acc, top, total = _join(
                acc, top, total, part_1, lse_1, token, head, on, count, HEADS, D
            )
        if PARTS > 2:
            on = live & ((bits & 4) != 0)
            acc, top, total = _join(
                acc, top, total, part_2, lse_2, token, head, on, count, HEADS, D
            )

    # KvCache spans.
    if PREFIX:
        for segment in range(tl.load(prefix_offsets + tile), tl.load(prefix_offsets + tile + 1)):
            stop = tl.load(prefix + 4 * segment + 1)
            sees = row >= tl.load(prefix + 4 * segment + 2)
            sees = sees & (row < tl.load(prefix + 4 * segment + 3))
            for start in range(tl.load(prefix + 4 * segment), stop, KEYS):
                key = start + tl.arange(0, KEYS)
                inside = key < stop
                acc, top, total = _walk(
                    acc, top, total, query, k_cache + kv_head * D, v_cache + kv_head * D, key,
                    inside, sees[:, None] & inside[None, :], slot_stride, slot_stride, scale, D,
                )  # fmt: skip

    # Rows of the batch.
    for segment in range(tl.load(own_offsets + tile), tl.load(own_offsets + tile + 1)):
        stop = tl.load(own + 2 * segment + 1)
        for start in range(tl.load(own + 2 * segment), stop, KEYS):
            key = start + tl.arange(0, KEYS)
            inside = key < stop
            end = tl.load(subtree_ends + key, mask=inside, other=0)
            seen = (key[None, :] <= row[:, None]) & (row[:, None] < end[None, :])
            acc, top, total = _walk(
                acc, top, total, query, k + kv_head * D, v + kv_head * D, key,
                inside, seen, k_stride, v_stride, scale, D,
            )  # fmt: skip

    acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    if QUANTISE:
        factor = group_scale(tl.max(tl.abs(acc), axis=1))
        acc = acc / factor[:, None]
        tl.store(scales + head.to(tl.int64) * scale_stride + token, factor, mask=live)
    into = (token.to(tl.int64) * HEADS + head) * D
    tl.store(out + into[:, None] + d[None, :], acc.to(out.dtype.element_ty), mask=live[:, None])


@dataclass(frozen=True, slots=True)
class Build:
    """How the kernel is compiled.

    Attributes:
        keys: a step of a tile.
        warps: a tile.
        stages: of loads in flight.
        registers: most a thread may have, which decides how many tiles run at once.
    """

    keys: int
    warps: int
    stages: int
    registers: int


# Measured by `bench/hopper kernels --part attention`: small steps waste little on a tile that sees
# few keys, and with few registers more tiles run at once.
BUILD = Build(keys=32, warps=4, stages=2, registers=128)


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: KvLayer | None,
    work: PackedTiles,
    parts: list[tuple[Tensor, Tensor]],
    *,
    scale: float,
    out_dtype: torch.dtype,
    quantised: bool,
    build: Build = BUILD,
) -> Activation:
    """Finish the attention of every asking row; see the head of this module.

    Args:
        q: (q, heads, d), heads in one piece; likewise k and v, (n, kv_heads, d).
        kv: the layer's KV cache, None where the work has no KV cache spans.
        work: who sees what.
        parts: up to three dense results, contiguous output and log-sum-exp.
        scale: factor on q·k.
        out_dtype: of the values.
        quantised: scale each head of a token; d is then 128.
        build: how the kernel is compiled.

    Returns:
        (q, heads * d).

    Raises:
        RunError: a shape or stride that the kernel cannot read.
    """
    count, heads, d = q.shape
    kv_heads = k.shape[1]
    _check(q, k, v, kv, work, parts, quantised)
    out = empty_activation(count, heads * d, q.device, out_dtype, quantised)
    if not count:
        return out
    filled = [x for pair in parts for x in pair] + [q] * (6 - 2 * len(parts))
    share = heads // kv_heads
    _attend[(len(work.tiles), kv_heads)](
        q, k, v, k if kv is None else kv.k, v if kv is None else kv.v, work.subtree_ends,
        work.asked, work.has, work.tiles, work.own_offsets, work.own, work.prefix_offsets,
        work.prefix, *filled, out.values, out.values if out.scales is None else out.scales,
        count, q.stride(0), k.stride(0), v.stride(0), kv_heads * d, column_stride(out.scales),
        scale * _LOG2_E,
        HEADS=heads, SHARE=share, ROOM=triton.next_power_of_2(share), D=d,
        TOKENS=work.tile_rows, KEYS=build.keys, PARTS=len(parts), PREFIX=len(work.prefix) > 0,
        QUANTISE=quantised, num_warps=build.warps, num_stages=build.stages,
        maxnreg=build.registers,
    )  # fmt: skip
    return out


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv: KvLayer | None,
    work: PackedTiles,
    parts: list[tuple[Tensor, Tensor]],
    quantised: bool,
) -> None:
    count, heads, d = q.shape
    for label, x in (("q", q), ("k", k), ("v", v)):
        require(x.stride(2) == 1 and x.stride(1) == d, _NAME, f"heads of {label} are apart")
    fits = heads % k.shape[1] == 0 and d == triton.next_power_of_2(d)
    require(fits, _NAME, f"{heads} x {d} heads")
    require(not quantised or d == FP8_GROUP, _NAME, f"a head of {d} is no FP8 group")
    require(len(parts) <= 3, _NAME, f"{len(parts)} dense calls")
    require(kv is not None or not len(work.prefix), _NAME, "KV cache spans without a KV cache")
    for part, lse in parts:
        fits = part.shape == q.shape and part.is_contiguous() and lse.is_contiguous()
        require(fits and lse.shape == (heads, count), _NAME, "a dense call's result")
