"""FlashAttention-3 in FP8: what a dense call reads is rounded to e4m3 first.

    x         (rows, heads * d)      queries, keys or values, rows at any stride
    starts, counts, into (b,) int32  a sequence's rows, and where its rounded ones go
    largest   (b, kv_heads) float32  in a sequence, of the heads that share keys
    out       (rows, heads * d)      e4m3
    descale   (b, kv_heads) float32  largest over 448

Keys and values of all sequences are copied together, one behind the other, so that what is
kept of them stays BF16. Rows of queries keep their places. That costs passes over both, so
calls with few keys to a query, or few queries to a key, run in BF16.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from covey.errors import ModelError, first_line
from covey.kernels.base import AttentionConfig
from covey.kernels.device_memory import is_out_of_memory
from covey.kernels.hopper.attention_split import DenseCall
from covey.kernels.hopper.flash_attention import (
    DenseAttention,
    DeviceCall,
    call_arrays,
    device_call,
    load_flash_attention,
    run_flash_attention,
)
from covey.kernels.hopper.launch import group_scale, relative_error, require, upload_together

_FP8 = torch.float8_e4m3fn
_ROWS = 32  # of a program
# What rounding a query or a key costs, in pairs that FP8 makes cheaper by as much: on an H200 with
# Qwen3 4B FP8 loses behind 512 keys, gains 2% behind 1,024 and 26% behind 4,096, loses 6% in runs
# of 2,048 and gains 11% in runs of 4,096 (`bench/hopper kernels --part fp8-attention`).
_PAIRS_OF_QUERY, _PAIRS_OF_KEY = 950, 300
_MOST_KEYS = 1 << 18  # copied at once: 512 MB for eight heads of 128
_TOLERANCE = 1e-1  # of queries, keys, weights and values rounded by 2.6e-2 each: 5.2e-2


@triton.jit
def _rows_of_head(
    x, starts, sequence, head, first, count, stride,
    WIDTH: tl.constexpr, ROOM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Rows of one head of a sequence, in float32: numbers, columns, which are there, values."""
    row = first + tl.arange(0, ROWS)
    column = tl.arange(0, ROOM)
    inside = (row < count)[:, None] & (column < WIDTH)[None, :]
    at = (tl.load(starts + sequence) + row).to(tl.int64) * stride + head * WIDTH
    value = tl.load(x + at[:, None] + column[None, :], mask=inside, other=0.0)
    return row, column, inside, value.to(tl.float32)


@triton.jit
def _largest(
    x, starts, counts, largest, stride,
    KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * ROWS
    sequence = tl.program_id(1)
    head = tl.program_id(2)
    count = tl.load(counts + sequence)
    if first < count:
        _, _, _, value = _rows_of_head(
            x, starts, sequence, head, first, count, stride, WIDTH, ROOM, ROWS
        )
        most = tl.max(tl.max(tl.abs(value), axis=1), axis=0)
        tl.atomic_max(largest + sequence * KV_HEADS + head, most)


@triton.jit
def _round(
    x, starts, counts, into, largest, out, descale, stride,
    KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, ROOM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * ROWS
    sequence = tl.program_id(1)
    head = tl.program_id(2)
    count = tl.load(counts + sequence)
    place = sequence * KV_HEADS + head
    scale = group_scale(tl.load(largest + place))
    if first == 0:
        tl.store(descale + place, scale)
    if first < count:
        row, column, inside, value = _rows_of_head(
            x, starts, sequence, head, first, count, stride, WIDTH, ROOM, ROWS
        )
        to = (tl.load(into + sequence) + row).to(tl.int64) * (KV_HEADS * WIDTH) + head * WIDTH
        value = (value / scale).to(out.dtype.element_ty)
        tl.store(out + to[:, None] + column[None, :], value, mask=inside)


def round_sequences(
    x: Tensor,
    kv_heads: int,
    ranges: tuple[Tensor, Tensor, Tensor],
    most: int,
    rows: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Scale the rows of some sequences, each by its heads that share keys.

    Args:
        x: (n, heads, d), heads in one piece.
        kv_heads: divides heads.
        ranges: (b,) or longer int32: first rows, counts, and first rows of the result.
        most: the largest count.
        rows: of the result.
        dtype: of the result.

    Returns:
        (rows, heads, d), undefined outside of the sequences, and (b, kv_heads) float32
        factors that give the values back.

    Raises:
        RunError: a stride that the kernels cannot read.
    """
    _, heads, d = x.shape
    whole = x.stride(2) == 1 and x.stride(1) == d
    require(whole and heads % kv_heads == 0, "round_sequences", "the heads of x are apart")
    starts, counts, into = ranges
    largest = torch.zeros(len(counts), kv_heads, device=x.device, dtype=torch.float32)
    descale = torch.empty_like(largest)
    out = torch.empty(rows, heads, d, device=x.device, dtype=dtype)
    width = heads // kv_heads * d
    room = triton.next_power_of_2(width)
    sizes = {"KV_HEADS": kv_heads, "WIDTH": width, "ROOM": room, "ROWS": _ROWS}
    grid = (triton.cdiv(most, _ROWS), len(counts), kv_heads)
    _largest[grid](x, starts, counts, largest, x.stride(0), **sizes, num_warps=4)
    _round[grid](x, starts, counts, into, largest, out, descale, x.stride(0), **sizes, num_warps=4)
    return out, descale


def is_worth_rounding(call: DeviceCall) -> bool:
    """Whether FP8 saves a call more than the rounding of its operands costs."""
    cost = _PAIRS_OF_QUERY * call.queries + _PAIRS_OF_KEY * call.keys
    return call.pairs > cost and call.keys <= _MOST_KEYS


def load_fp8_attention(config: AttentionConfig, device: torch.device) -> DenseAttention:
    """The library in FP8 where that pays for a model of this shape, in BF16 elsewhere.

    Raises:
        ModelError: it does not work in FP8 on this device.
    """
    exact = load_flash_attention()

    def attention(
        q: Tensor, k: Tensor, v: Tensor, call: DeviceCall, scale: float
    ) -> tuple[Tensor, Tensor]:
        run = fp8_attention if is_worth_rounding(call) else exact
        return run(q, k, v, call, scale)

    try:
        wrong = _trial(config, device)
        reason = None if wrong < _TOLERANCE else f"it is wrong by {wrong:.1e}"
    except Exception as problem:  # whatever CUDA raises
        if is_out_of_memory(problem):
            raise
        reason = f"{type(problem).__name__}: {first_line(problem)}".rstrip(": ")
    if reason is not None:
        raise ModelError(
            f"FlashAttention-3 does not run in FP8 here: {reason}. Leave fast='fp8-attention' out."
        )
    return attention


def fp8_attention(
    q: Tensor, k: Tensor, v: Tensor, call: DeviceCall, scale: float
) -> tuple[Tensor, Tensor]:
    """See `DenseAttention`; queries, keys and values rounded to e4m3."""
    kv_heads = k.shape[1]
    asked = (call.query_starts, call.query_counts, call.query_starts)
    read = (call.key_starts, call.key_counts, call.key_offsets)
    operands = (
        round_sequences(q, kv_heads, asked, call.most_queries, len(q), _FP8),
        round_sequences(k, kv_heads, read, call.most_keys, call.keys, _FP8),
        round_sequences(v, kv_heads, read, call.most_keys, call.keys, _FP8),
    )
    (q8, k8, v8), descales = zip(*operands, strict=True)
    return run_flash_attention((q8, k8, v8), call.key_offsets, call, scale, descales)


def _trial(config: AttentionConfig, device: torch.device) -> float:
    """The relative error of a small call."""
    rows, keys = 48, 300
    heads, kv_heads, d = config.heads, config.kv_heads, config.d_head
    draw = torch.Generator(device).manual_seed(1)

    def normal(count: int, heads: int) -> Tensor:
        found = torch.randn(count, heads, d, device=device, generator=draw)
        return found.to(torch.bfloat16)

    q, k, v = normal(rows, heads), normal(keys, kv_heads), normal(keys, kv_heads)
    dense = DenseCall(False, False, np.array([[0, rows]]), np.array([[0, keys]]))
    call = device_call(dense, upload_together(call_arrays(dense), device))
    found, _ = fp8_attention(q, k, v, call, d**-0.5)
    wide_k, wide_v = (x.double().repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), wide_k) * d**-0.5
    expected = torch.einsum("hqk,khd->qhd", scores.softmax(2), wide_v)
    return relative_error(found, expected)
