"""FP8 with scales, in plain torch: by groups and blocks of 128, or by whole rows."""

from __future__ import annotations

import torch
from torch import Tensor

from covey.errors import ModelError
from covey.kernels.base import Weight

GROUP = 128
FP8_MAX = 448.0  # largest finite float8_e4m3fn
LEAST = 1e-10  # the largest magnitude of a group of zeros, which must not divide by zero
_ALIGNED = 16  # columns and rows of a matrix that is multiplied by rows


def rounded(x: Tensor, group: int | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """FP8 values and their scales.

    Args:
        x: (n, width).
        group: neighbours of a row that share a scale; None for all of a row.
        dtype: of the values, float8_e4m3fn but where the rounding itself is left out.

    Returns:
        (n, width) values and (n, width / group) float32 scales: the largest magnitude of
        each group over 448.
    """
    rows, width = x.shape
    group = width if group is None else group
    groups = x.float().view(rows, width // group, group)
    scales = groups.abs().amax(2).clamp(min=LEAST) / FP8_MAX
    return (groups / scales[:, :, None]).to(dtype).flatten(1), scales


def widened(values: Tensor, scales: Tensor | None) -> Tensor:
    """Values times their scales in float32.

    Args:
        values: (n, width).
        scales: (n, …) for groups or whole rows, (n / 128, …) for blocks; None for none.
    """
    if scales is None:
        return values.float()
    rows, columns = values.shape
    if len(scales) != rows:
        scales = scales.repeat_interleave(GROUP, 0)[:rows]
    if scales.shape[1] > 1:
        scales = scales.repeat_interleave(GROUP, 1)[:, :columns]
    return values.float() * scales


def by_rows(weight: Weight, dtype: torch.dtype = torch.float8_e4m3fn) -> Weight:
    """A matrix with one FP8 scale a row; what had scales already is rounded a second time.

    Raises:
        ModelError: its rows or columns are no multiples of 16, which the products need.
    """
    rows, columns = weight.values.shape
    if rows % _ALIGNED or columns % _ALIGNED:
        raise ModelError(
            f"fast='fp8-rows' multiplies matrices of whole {_ALIGNED}s, and this model has one of"
            f" {rows} x {columns}. Leave it out for this model."
        )
    return Weight(*rounded(widened(weight.values, weight.scales), None, dtype))
