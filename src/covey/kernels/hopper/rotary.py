"""QK norm + RoPE in place + keys and values into the KV cache, one token a program.

    q         (q, heads, d)          rows of a wider matrix, in and out
    k, v      (n, kv_heads, d)       rows of a wider matrix, k in and out
    positions    (n,) int32             each token's position
    frequencies (d / 2,)             float32, angles a position
    slots     (n,) int32             KV cache slot of a kept token, -1 for others
    k_cache, v_cache (slots, kv_heads, d)

Dimension i rotates with i + d / 2. Offsets into the KV cache are 64 bits wide: a layer of a
large KV cache has more than 2**31 values.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from covey.kernels.base import KvLayer
from covey.kernels.hopper.launch import require


@dataclass(frozen=True, slots=True)
class RotaryEmbedding:
    """Positions of a batch's tokens, their angles, and the slots of those that are kept.

    Attributes:
        positions: (n,) int32, positions in the prompt.
        frequencies: (d_head / 2,) float32, the angle of a position.
        slots: (n,) int32, the KV cache slot of each token or -1; None where none is kept.
    """

    positions: Tensor
    frequencies: Tensor
    slots: Tensor | None

    def take(self, rows: Tensor) -> RotaryEmbedding:
        """Some rows, of which none is kept."""
        return RotaryEmbedding(self.positions[rows], self.frequencies, None)


@dataclass(frozen=True, slots=True)
class QkvEpilogue:
    """What follows a product whose columns are heads: queries, then keys, then values.

    Queries and keys are normed and rotated; keys and values of kept rows go into the KV cache.

    Attributes:
        queries, keys: heads of each; there are as many of values as of keys.
        norms: two (d_head,) weights for queries and keys, or None.
        rotary: positions and slots of the product's rows.
        kv: the layer's KV cache; None where nothing is kept.
        epsilon: of the norms.
    """

    queries: int
    keys: int
    norms: tuple[Tensor, Tensor] | None
    rotary: RotaryEmbedding
    kv: KvLayer | None
    epsilon: float


@triton.jit
def _rotated(
    x, weight, row, stride, cos, sin, epsilon,
    HEADS: tl.constexpr, ROOM: tl.constexpr, HALF: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Norm and rotate all heads of a row in place; the halves, and where they lie."""
    head = tl.arange(0, ROOM)
    half = tl.arange(0, HALF)
    inside = (head < HEADS)[:, None]
    offset = head[:, None] * (2 * HALF) + half[None, :]
    at = x + row * stride + offset
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        square = tl.sum(first * first + second * second, axis=1) / (2 * HALF)
        inverse = tl.rsqrt(square + epsilon)[:, None]
        first = first * inverse * tl.load(weight + half).to(tl.float32)[None, :]
        second = second * inverse * tl.load(weight + HALF + half).to(tl.float32)[None, :]
    left = (first * cos[None, :] - second * sin[None, :]).to(x.dtype.element_ty)
    right = (second * cos[None, :] + first * sin[None, :]).to(x.dtype.element_ty)
    tl.store(at, left, mask=inside)
    tl.store(at + HALF, right, mask=inside)
    return left, right, offset, inside


@triton.jit
def _rotate(
    q, k, v, q_weight, k_weight, positions, frequencies, rows, slots, k_cache, v_cache,
    q_stride, k_stride, v_stride, slot_stride, epsilon,
    HEADS: tl.constexpr, HEAD_ROOM: tl.constexpr, KV_HEADS: tl.constexpr,
    KV_ROOM: tl.constexpr, HALF: tl.constexpr, NORM: tl.constexpr, LISTED: tl.constexpr,
    STORE: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    row = place
    if LISTED:
        row = tl.load(rows + place).to(tl.int64)
    half = tl.arange(0, HALF)
    angle = tl.load(positions + row).to(tl.float32) * tl.load(frequencies + half)
    c = tl.cos(angle)
    s = tl.sin(angle)

    if HEADS > 0:
        _rotated(q, q_weight, place, q_stride, c, s, epsilon, HEADS, HEAD_ROOM, HALF, NORM)
    if KV_HEADS > 0:
        left, right, offset, inside = _rotated(
            k, k_weight, place, k_stride, c, s, epsilon, KV_HEADS, KV_ROOM, HALF, NORM
        )
        if STORE:
            slot = tl.load(slots + place).to(tl.int64)
            kept = inside & (slot >= 0)
            into = slot * slot_stride + offset
            tl.store(k_cache + into, left, mask=kept)
            tl.store(k_cache + into + HALF, right, mask=kept)
            source = v + place * v_stride + offset
            tl.store(v_cache + into, tl.load(source, mask=kept, other=0.0), mask=kept)
            after = tl.load(source + HALF, mask=kept, other=0.0)
            tl.store(v_cache + into + HALF, after, mask=kept)


def rotate_and_store(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norms: tuple[Tensor, Tensor] | None,
    rows: Tensor | None,
    rotary: RotaryEmbedding,
    kv: KvLayer | None,
    epsilon: float,
) -> None:
    """Norm and rotate q and k in place; copy kept keys and values to the KV cache.

    Args:
        q: (q, heads, d_head), heads in one piece, rows at any stride.
        k, v: (n, kv_heads, d_head), likewise.
        norms: two (d_head,), or None.
        rows: (q,) integers, the tokens of q; None where they are all n.
        rotary: positions and slots of all n tokens.
        kv: the layer's KV cache; None where nothing is kept.

    Raises:
        RunError: a shape or stride that the kernel cannot read.
    """
    tokens, kv_heads, width = k.shape
    for name, x in (("q", q), ("k", k), ("v", v)):
        whole = x.stride(2) == 1 and x.stride(1) == width and x.shape[2] == width
        require(whole, "rotate_and_store", f"the heads of {name} are not in one piece")
    fits = rotary.positions.shape == (tokens,) and rotary.frequencies.shape == (width // 2,)
    require(fits, "rotate_and_store", "positions of other tokens, or frequencies of other heads")
    require(rows is not None or len(q) == tokens, "rotate_and_store", "q has other rows than k")
    store = kv is not None and rotary.slots is not None
    if kv is not None:
        alike = kv.k.is_contiguous() and kv.v.is_contiguous()
        alike &= kv.k.shape[1:] == k.shape[1:] and kv.k.dtype is k.dtype
        require(alike, "rotate_and_store", "the KV cache is of another shape or dtype")

    def launch(count: int, heads: int, kv_heads: int, listed: Tensor | None) -> None:
        if not count:
            return
        _rotate[(count,)](
            q, k, v, q if norms is None else norms[0], k if norms is None else norms[1],
            rotary.positions, rotary.frequencies,
            rotary.positions if listed is None else listed,
            rotary.slots if store else rotary.positions, kv.k if kv is not None else k,
            kv.v if kv is not None else v, q.stride(0), k.stride(0), v.stride(0),
            kv_heads * width, epsilon,
            HEADS=heads, HEAD_ROOM=triton.next_power_of_2(max(heads, 1)), KV_HEADS=kv_heads,
            KV_ROOM=triton.next_power_of_2(max(kv_heads, 1)), HALF=width // 2,
            NORM=norms is not None, LISTED=listed is not None, STORE=store and kv_heads > 0,
            num_warps=4,
        )  # fmt: skip

    if rows is None:
        launch(tokens, q.shape[1], kv_heads, None)
    else:
        launch(tokens, 0, kv_heads, None)
        launch(len(q), q.shape[1], 0, rows)
