"""Quantising to FP8 in groups of 128 values, as every kernel here does it.

A group's scale is its largest magnitude over 448, the largest e4m3 value, in float32.
Scales lie by columns: those of one group of all rows are neighbours. Values and scales
have room for `checks.padded` rows, a multiple of four, which is what the matrix kernels'
bulk copies need.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from covey.errors import ModelError
from covey.kernels.base import Activation, Weight
from covey.kernels.hopper.checks import GROUP, padded

_MAX = tl.constexpr(448.0)
_LEAST = tl.constexpr(1e-10)  # a group of zeros must not divide by zero


@triton.jit
def group_scale(largest):
    """Scales from the largest magnitudes of their groups."""
    return tl.maximum(largest, _LEAST) / _MAX


def empty_activation(
    rows: int, width: int, device: torch.device, values: torch.dtype, quantised: bool
) -> Activation:
    """An activation to be written, with the storage that the matrix kernels want.

    Args:
        rows, width: its shape; `width` a multiple of 128 where groups are quantised.
        values: dtype of the values.
        quantised: whether it carries scales.

    Returns:
        values (rows, width), whose storage goes on to `padded(rows)` rows, and
        scales (rows, width / 128) float32 with strides (1, padded(rows)), or None.
    """
    if not quantised:
        return Activation(torch.empty(rows, width, device=device, dtype=values))
    room = padded(rows)
    found = torch.empty(room, width, device=device, dtype=values)[:rows]
    scales = torch.empty(width // GROUP, room, device=device, dtype=torch.float32)
    return Activation(found, scales.t()[:rows])


def column_stride(scales: Tensor | None) -> int:
    """Distance of neighbouring groups of one row; 0 where there are no scales."""
    return 0 if scales is None else scales.stride(1)


def scales_of(x: Activation | Weight) -> Tensor:
    """The scales of one side of a product; ModelError where it has none."""
    if x.scales is None:
        raise ModelError("an FP8 product needs scales on both sides")
    return x.scales


def multiply_layout(x: Activation) -> tuple[Tensor, Tensor]:
    """All rows that an activation has room for, as the products need them.

    An activation that was not made by `empty_activation` is copied into the room.

    Returns:
        values (padded(rows), width), contiguous, and their scales (padded(rows),
        width / 128) with strides (1, padded(rows)).

    Raises:
        ModelError: it has no scales.
    """
    scales = scales_of(x)
    rows, groups = scales.shape
    room = padded(rows)
    if scales.stride() != (1, room):
        there = empty_activation(rows, groups * GROUP, scales.device, x.values.dtype, True)
        there.values.copy_(x.values)
        x, scales = there, scales_of(there).copy_(scales)
    values = x.values.as_strided((room, groups * GROUP), (groups * GROUP, 1))
    return values, scales.as_strided((room, groups), (1, room))
