"""FP8 with scales, in plain torch: activations in groups of 128, weights in blocks of 128 x 128."""

from __future__ import annotations

import torch
from torch import Tensor

from covey.errors import ModelError
from covey.kernels.base import Weight
from covey.kernels.fp8_format import FP8_BLOCK, FP8_GROUP, FP8_LEAST, FP8_MAX


def quantise(x: Tensor, group: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """FP8 values and their scales.

    Args:
        x: (n, width).
        group: neighbours of a row that share a scale.
        dtype: of the values, float8_e4m3fn but where the rounding itself is left out.

    Returns:
        (n, width) values and (n, width / group) float32 scales.
    """
    rows, width = x.shape
    groups = x.float().view(rows, width // group, group)
    scales = groups.abs().amax(2).clamp(min=FP8_LEAST) / FP8_MAX
    return (groups / scales[:, :, None]).to(dtype).flatten(1), scales


def dequantise(values: Tensor, scales: Tensor | None) -> Tensor:
    """Values times their scales in float32.

    Args:
        values: (n, width).
        scales: (n, width / 128) for groups, (n / 128, width / 128) for blocks; None for none.
    """
    if scales is None:
        return values.float()
    rows, columns = values.shape
    if len(scales) != rows:
        scales = scales.repeat_interleave(FP8_BLOCK, 0)[:rows]
    return values.float() * scales.repeat_interleave(FP8_GROUP, 1)[:, :columns]


def quantise_weight(weight: Weight) -> Weight:
    """A matrix with one FP8 scale a block.

    Raises:
        ModelError: it has scales already, or its rows or columns are no multiples of 128.
    """
    if weight.scales is not None:
        raise ModelError("This model holds blocks of FP8 already: leave fast='fp8-blocks' out.")
    rows, columns = weight.values.shape
    if rows % FP8_BLOCK or columns % FP8_BLOCK:
        raise ModelError(
            f"fast='fp8-blocks' multiplies matrices of whole {FP8_BLOCK}s, and this model has one"
            f" of {rows} x {columns}. Leave it out for this model."
        )
    blocks = weight.values.float().view(
        rows // FP8_BLOCK, FP8_BLOCK, columns // FP8_BLOCK, FP8_BLOCK
    )
    scales = blocks.abs().amax((1, 3)).clamp(min=FP8_LEAST) / FP8_MAX
    values = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return Weight(values.view(rows, columns), scales)
