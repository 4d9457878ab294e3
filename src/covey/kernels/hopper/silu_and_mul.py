"""silu(gate) * up + FP8 quantise, a stretch of a row a program.

    gate_up   (n, 2 * ffn)           gate first
    out       (n, ffn)
    scales    (n, ffn / 128)         float32 by columns, where quantised

Everything between load and store is float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from covey.kernels.base import Activation
from covey.kernels.fp8_format import FP8_GROUP
from covey.kernels.hopper.launch import column_stride, empty_activation, group_scale, require

_NAME = "silu_and_mul"
_COLUMNS = 2048  # a program's; 16 bytes a thread and load at four warps


@triton.jit(do_not_specialize=["scale_stride"])
def _silu_and_mul(
    gate_up, out, scales, width, scale_stride,
    QUANTISE: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width

    source = gate_up + row * 2 * width + column
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + width, mask=inside, other=0.0).to(tl.float32)
    x = gate * tl.sigmoid(gate) * up

    if QUANTISE:
        groups = tl.reshape(x, (BLOCK // GROUP, GROUP))
        scale = group_scale(tl.max(tl.abs(groups), axis=1))
        x = tl.reshape(groups / scale[:, None], (BLOCK,))
        group = tl.program_id(1) * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
        used = group * GROUP < width
        tl.store(scales + group.to(tl.int64) * scale_stride + row, scale, mask=used)
    tl.store(out + row * width + column, x.to(out.dtype.element_ty), mask=inside)


def silu_and_mul(gate_up: Tensor, *, out_dtype: torch.dtype, quantised: bool) -> Activation:
    """Gated activation of (n, 2 * ffn), contiguous, as (n, ffn).

    Args:
        out_dtype: of the values.
        quantised: scale groups of 128; `ffn` is then a multiple of 128.

    Raises:
        RunError: a shape or stride that the kernel cannot read.
    """
    rows, both = gate_up.shape
    width = both // 2
    require(gate_up.is_contiguous() and both % 2 == 0, _NAME, "gate_up is not two halves")
    require(not quantised or width % FP8_GROUP == 0, _NAME, f"{width} columns make no groups")
    out = empty_activation(rows, width, gate_up.device, out_dtype, quantised)
    block = min(_COLUMNS, max(FP8_GROUP, triton.next_power_of_2(width)))
    if rows:
        _silu_and_mul[(rows, triton.cdiv(width, block))](
            gate_up, out.values, out.values if out.scales is None else out.scales, width,
            column_stride(out.scales),
            QUANTISE=quantised, GROUP=FP8_GROUP, BLOCK=block, num_warps=4,
        )  # fmt: skip
    return out
