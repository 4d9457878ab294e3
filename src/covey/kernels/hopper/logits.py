"""Add + final RMS norm + a few rows of the output head, one answer a program.

    residual, delta (n, hidden)      delta optional
    weight    (hidden,)
    head      (rows, hidden)
    out       (n, rows)              float32

The head's rows stay in the cache: eight of them are 40 KB. Products and sums are float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from covey.kernels.hopper.launch import require, require_rows


@triton.jit
def _logits(
    residual, delta, weight, head, out, width, rows, epsilon,
    ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    answer = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    at = answer * width + column

    x = tl.load(residual + at, mask=inside, other=0.0)
    if ADD:
        more = tl.load(delta + at, mask=inside, other=0.0)
        x = (x.to(tl.float32) + more.to(tl.float32)).to(x.dtype)
    x = x.to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / width + epsilon)
    x = x * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)

    for row in range(rows):
        line = tl.load(head + row * width + column, mask=inside, other=0.0)
        tl.store(out + answer * rows + row, tl.sum(x * line.to(tl.float32), axis=0))


def answer_logits(
    residual: Tensor, delta: Tensor | None, weight: Tensor, head: Tensor, epsilon: float
) -> Tensor:
    """Logits of some vocabulary rows, (n, rows) float32.

    Args:
        residual, delta: (n, hidden) contiguous.
        weight: (hidden,).
        head: (rows, hidden) contiguous; a few rows, each is read by every answer.

    Raises:
        RunError: a shape or stride that the kernel cannot read.
    """
    count, width = residual.shape
    require(residual.is_contiguous() and head.is_contiguous(), "answer_logits", "strided rows")
    require_rows(head, width, "answer_logits", "head")
    if delta is not None:
        require(delta.is_contiguous() and delta.shape == residual.shape, "answer_logits", "delta")
    out = torch.empty(count, len(head), device=residual.device, dtype=torch.float32)
    if count:
        _logits[(count,)](
            residual, residual if delta is None else delta, weight, head, out, width,
            len(head), epsilon,
            ADD=delta is not None, BLOCK=triton.next_power_of_2(width), num_warps=4,
        )  # fmt: skip
    return out
