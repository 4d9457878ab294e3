"""Add + RMS norm + FP8 quantise, one row a program.

    residual  (n, hidden)            in and out: residual + delta, rounded to its dtype
    delta     (n, hidden)            optional
    weight    (hidden,)
    out       (n, hidden)            the norm of the sum
    scales    (n, hidden / 128)      float32 by columns, where quantised

The norm is taken of the rounded sum, in float32, and rounded once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from covey.kernels.base import Activation
from covey.kernels.fp8_format import FP8_GROUP
from covey.kernels.hopper.launch import (
    column_stride,
    empty_activation,
    group_scale,
    require,
    require_rows,
)


@triton.jit(do_not_specialize=["scale_stride"])
def _add_rms_norm(
    residual, delta, weight, out, scales, width, epsilon, scale_stride,
    ADD: tl.constexpr, QUANTISE: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    at = row * width + column

    x = tl.load(residual + at, mask=inside, other=0.0)
    if ADD:
        more = tl.load(delta + at, mask=inside, other=0.0)
        x = (x.to(tl.float32) + more.to(tl.float32)).to(x.dtype)
        tl.store(residual + at, x, mask=inside)

    x = x.to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / width + epsilon)
    x = x * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)

    if QUANTISE:
        groups = tl.reshape(x, (BLOCK // GROUP, GROUP))
        scale = group_scale(tl.max(tl.abs(groups), axis=1))
        x = tl.reshape(groups / scale[:, None], (BLOCK,))
        group = tl.arange(0, BLOCK // GROUP)
        used = group * GROUP < width
        tl.store(scales + group.to(tl.int64) * scale_stride + row, scale, mask=used)
    tl.store(out + at, x.to(out.dtype.element_ty), mask=inside)


def add_rms_norm(
    residual: Tensor,
    delta: Tensor | None,
    weight: Tensor,
    *,
    epsilon: float,
    out_dtype: torch.dtype,
    quantised: bool,
) -> Activation:
    """Add `delta` to `residual` in place and return the sum's RMS norm.

    Args:
        residual, delta: (n, hidden) contiguous, of one dtype.
        weight: (hidden,).
        epsilon: added to the mean square.
        out_dtype: of the norm's values.
        quantised: scale the norm in groups of 128; `hidden` is then a multiple of 128.

    Raises:
        RunError: a shape, stride or dtype that the kernel cannot read.
    """
    rows, width = residual.shape
    require(residual.is_contiguous(), "add_rms_norm", "residual is not contiguous")
    require(weight.shape == (width,), "add_rms_norm", f"weight is {tuple(weight.shape)}")
    require(
        not quantised or width % FP8_GROUP == 0, "add_rms_norm", f"{width} columns make no groups"
    )
    if delta is not None:
        require_rows(delta, width, "add_rms_norm", "delta")
        require(delta.is_contiguous() and len(delta) == rows, "add_rms_norm", "delta differs")
    out = empty_activation(rows, width, residual.device, out_dtype, quantised)
    block = max(FP8_GROUP, triton.next_power_of_2(width))
    if rows:
        _add_rms_norm[(rows,)](
            residual, residual if delta is None else delta, weight, out.values,
            out.values if out.scales is None else out.scales, width, epsilon,
            column_stride(out.scales),
            ADD=delta is not None, QUANTISE=quantised, GROUP=FP8_GROUP, BLOCK=block,
            num_warps=4,
        )  # fmt: skip
    return out
