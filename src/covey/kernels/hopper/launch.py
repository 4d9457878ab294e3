"""What launchers share: checks of arguments, storage of quantised activations, uploads.

Values and scales of a quantised activation have room for `padded` rows, a multiple of four,
which is what the matrix kernels' bulk copies need. Scales lie by columns: those of one group of
all rows are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from covey.arrays import Int32
from covey.errors import ModelError, RunError
from covey.kernels.base import Activation, Weight
from covey.kernels.device_memory import upload
from covey.kernels.fp8_format import FP8_GROUP, FP8_LEAST, FP8_MAX

_ALIGNED_ROWS = 4  # the bulk copies of scales start at multiples of 16 bytes
_MAX = tl.constexpr(FP8_MAX)
_LEAST = tl.constexpr(FP8_LEAST)


def require(holds: bool, kernel: str, reason: str) -> None:
    """Refuse an argument that a kernel would read wrongly.

    Raises:
        RunError: `holds` is false; names the kernel, and `reason` the argument.
    """
    if not holds:
        raise RunError(f"{kernel}: {reason}. This is a mistake in Covey; please report it.")


def require_rows(x: Tensor, width: int, kernel: str, name: str) -> None:
    """Refuse anything but (n, width) with rows in one piece."""
    require(
        x.dim() == 2 and x.shape[1] == width and x.stride(1) == 1,
        kernel,
        f"{name} is {tuple(x.shape)} with strides {x.stride()}, (n, {width}) is needed",
    )


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference over that of `expected`; NaN where anything was left unwritten."""
    exact = expected.double()
    return float((found.double() - exact).norm() / exact.norm())


@triton.jit
def group_scale(largest):
    """Scales from the largest magnitudes of their groups."""
    return tl.maximum(largest, _LEAST) / _MAX


def padded(rows: int) -> int:
    """Rows that the storage of a quantised activation has room for."""
    return -(-rows // _ALIGNED_ROWS) * _ALIGNED_ROWS


def empty_activation(
    rows: int, width: int, device: torch.device, values: torch.dtype, quantised: bool
) -> Activation:
    """An activation to be written, with the storage that the matrix kernels want.

    Args:
        rows, width: its shape; `width` a multiple of 128 where quantised.
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
    scales = torch.empty(width // FP8_GROUP, room, device=device, dtype=torch.float32)
    return Activation(found, scales.t()[:rows])


def column_stride(scales: Tensor | None) -> int:
    """Distance of neighbouring groups of one row; 0 where there are no scales."""
    return 0 if scales is None else scales.stride(1)


def scales_of(x: Activation | Weight) -> Tensor:
    """The scales of one side of a product; ModelError where it has none."""
    if x.scales is None:
        raise ModelError("an FP8 product needs scales on both sides")
    return x.scales


def gemm_layout(x: Activation) -> tuple[Tensor, Tensor]:
    """All rows that an activation has room for, as the matrix kernels need them.

    An activation that was not made by `empty_activation` is copied into the room.

    Returns:
        values (padded(rows), width), contiguous, and their scales (padded(rows),
        width / 128) with strides (1, padded(rows)).

    Raises:
        ModelError: it has no scales.
    """
    scales = scales_of(x)
    rows, groups = scales.shape
    room, width = padded(rows), groups * FP8_GROUP
    if scales.stride() != (1, room):
        there = empty_activation(rows, width, scales.device, x.values.dtype, True)
        there.values.copy_(x.values)
        x, scales = there, scales_of(there).copy_(scales)
    values = x.values.as_strided((room, width), (width, 1))
    return values, scales.as_strided((room, groups), (1, room))


def upload_together(arrays: Sequence[Int32], device: torch.device) -> list[Tensor]:
    """Copy int32 arrays to the device in one go, without waiting for it.

    Returns:
        views of one buffer, in the arrays' shapes. Each begins at a multiple of 16 bytes:
        Triton compiles a kernel again for a pointer that does not.
    """
    starts = np.cumsum([0, *(-(-array.size // 4) * 4 for array in arrays)]).tolist()
    buffer = torch.empty(starts[-1], dtype=torch.int32, pin_memory=device.type == "cuda")
    flat = buffer.numpy()
    for array, start in zip(arrays, starts, strict=False):
        flat[start : start + array.size] = array.ravel()
    there = upload(buffer, device)
    return [
        there[start : start + array.size].view(array.shape)
        for array, start in zip(arrays, starts, strict=False)
    ]
