"""Block-scaled FP8 matrix products: DeepGEMM, or torch where that cannot run.

    x         (n, in) e4m3           groups of 128 columns scaled
    x scales  (n, in / 128) float32  by columns, room for a multiple of four rows
    weight    (out, in) e4m3         blocks of 128 x 128 scaled
    w scales  (out / 128, in / 128)  float32, contiguous
    result    (n, out) BF16, summed in float32

Which of the two runs is decided once, by multiplying and comparing; never silently.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from covey.errors import ModelError
from covey.kernels.base import Activation, Weight
from covey.kernels.hopper.checks import GROUP, padded
from covey.kernels.hopper.fp8 import empty_activation

Multiply = Callable[[Activation, Weight], Tensor]

_TOLERANCE = 5e-3  # BF16 rounding of the result alone is 1.7e-3


def choose_multiply(device: torch.device) -> tuple[Multiply, str]:
    """The fastest product that is right on this device, and a sentence about it.

    Raises:
        ModelError: none is.
    """
    reasons = []
    for name, make in (("DeepGEMM", deep_gemm), ("torch.scaled_mm", lambda: scaled_mm)):
        try:
            multiply = make()
            error = _trial(multiply, device)
        except Exception as problem:  # whatever an extension raises, the next is tried
            reasons.append(f"{name} failed: {_first_line(problem)}")
            continue
        if error < _TOLERANCE:
            because = f" because {'; '.join(reasons)}" if reasons else ""
            return multiply, f"FP8 products run on {name}{because}."
        reasons.append(f"{name} is wrong by {error:.1e}")
    raise ModelError(f"No FP8 matrix product works on this GPU: {'; '.join(reasons)}.")


def multiply_layout(x: Activation) -> Activation:
    """All rows that an activation has room for, as the products need them.

    An activation that was not made by `empty_activation` is copied into the room.
    """
    scales = x.scales
    if scales is None:
        raise ModelError("an FP8 product needs a scaled activation")
    rows, groups = scales.shape
    room = padded(rows)
    if scales.stride() != (1, room):
        there = empty_activation(rows, groups * GROUP, scales.device, x.values.dtype, True)
        if there.scales is None:
            raise ModelError("an FP8 product needs a scaled activation")
        there.values.copy_(x.values)
        there.scales.copy_(scales)
        x, scales = there, there.scales
    values = x.values.as_strided((room, groups * GROUP), (groups * GROUP, 1))
    return Activation(values, scales.as_strided((room, groups), (1, room)))


def scaled_mm(x: Activation, weight: Weight) -> Tensor:
    """The product by torch, which wants whole fours of rows and of scale columns."""
    from torch.nn.functional import ScalingType
    from torch.nn.functional import scaled_mm as torch_scaled_mm

    rows, width = x.values.shape
    if x.scales is None or weight.scales is None:
        raise ModelError("an FP8 product needs scales on both sides")
    if not rows:
        return torch.empty(0, len(weight.values), device=x.values.device, dtype=torch.bfloat16)
    room = multiply_layout(x)
    if room.scales is None:
        raise ModelError("an FP8 product needs scales on both sides")
    factors = weight.scales
    if factors.shape[1] % 4:
        factors = torch.nn.functional.pad(factors, (0, -factors.shape[1] % 4))
    found = torch_scaled_mm(
        room.values,
        weight.values.t(),
        room.scales,
        ScalingType.BlockWise1x128,
        factors.t()[: width // GROUP],
        ScalingType.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )
    return found[:rows]


def deep_gemm() -> Multiply:
    """The product by DeepGEMM, which compiles its kernels at first use."""
    import deep_gemm as library

    def multiply(x: Activation, weight: Weight) -> Tensor:
        rows, columns = len(x.values), len(weight.values)
        if not rows:
            return torch.empty(0, columns, device=x.values.device, dtype=torch.bfloat16)
        room = multiply_layout(x)
        out = torch.empty(len(room.values), columns, device=x.values.device, dtype=torch.bfloat16)
        left, right = (room.values, room.scales), (weight.values, weight.scales)
        library.fp8_gemm_nt(left, right, out, disable_ue8m0_cast=True)
        return out[:rows]

    return multiply


def _trial(multiply: Multiply, device: torch.device) -> float:
    """Relative error of a small product against float32 on the same operands."""
    rows, width, columns = 130, 512, 768
    draw = torch.Generator(device).manual_seed(1)
    kind = torch.float8_e4m3fn
    x = torch.randn(rows, width, device=device, generator=draw).to(kind)
    weight = torch.randn(columns, width, device=device, generator=draw).to(kind)
    scales = torch.rand(rows, width // GROUP, device=device, generator=draw) + 0.5
    factors = torch.rand(columns // GROUP, width // GROUP, device=device, generator=draw) + 0.5
    wide_x = x.double() * scales.double().repeat_interleave(GROUP, 1)
    wide = weight.double() * factors.double().repeat_interleave(GROUP, 0).repeat_interleave(
        GROUP, 1
    )
    expected = wide_x @ wide.T
    found = multiply(Activation(x, scales), Weight(weight, factors)).double()
    return float((found - expected).norm() / expected.norm())


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}".rstrip(": ")
