"""Which FP8 products run: our own, or torch's where ours cannot; cuBLAS's by rows.

    x         (n, in) e4m3           groups of 128 columns scaled
    x scales  (n, in / 128) float32  by columns, room for a multiple of four rows
    weight    (out, in) e4m3         blocks of 128 x 128 scaled
    w scales  (out / 128, in / 128)  float32, contiguous
    result    (n, out) BF16, summed in float32

Which of the two is decided once, by multiplying and comparing; never silently. Products with
one scale a row, which must be asked for, are those of `hopper.rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from covey.errors import ModelError, first_line
from covey.kernels.base import Activation, Weight
from covey.kernels.hopper.checks import GROUP
from covey.kernels.hopper.fp8 import multiply_layout, scales_of
from covey.kernels.hopper.gate import gate
from covey.kernels.hopper.rows import multiply_rows
from covey.kernels.scales import widened

_TOLERANCE = 5e-3  # BF16 rounding of a product alone is 1.7e-3
_FP8_TOLERANCE = 4e-2  # e4m3 rounding alone is 2.3e-2


@dataclass(frozen=True, slots=True)
class Products:
    """The products of a model in FP8.

    Attributes:
        multiply: x @ weight.T, (n, out) BF16.
        gated: silu(gate) * up of x and a weight that is gate above up, (n, out / 2) in FP8.
        added: the product added to a (n, out) BF16 where that lies, or None.
    """

    multiply: Callable[[Activation, Weight], Tensor]
    gated: Callable[[Activation, Weight], Activation]
    added: Callable[[Activation, Weight, Tensor], Tensor] | None = None


def choose_products(device: torch.device) -> tuple[Products, str]:
    """The fastest products that are right on this device, and a sentence about them.

    Raises:
        ModelError: none are.
    """
    reasons = []
    for name, make in (("Covey's kernel", own_products), ("torch.scaled_mm", torch_products)):
        try:
            products = make(device)
            wrong = _trial(products, device, by_rows=False)
        except Exception as problem:  # whatever CUDA raises, the next is tried
            because = f"{type(problem).__name__}: {first_line(problem)}".rstrip(": ")
            reasons.append(f"{name} failed: {because}")
            continue
        if wrong is None:
            because = f" because {'; '.join(reasons)}" if reasons else ""
            return products, f"FP8 products run on {name}{because}."
        reasons.append(f"{name} is wrong by {wrong:.1e}")
    raise ModelError(f"No FP8 matrix product works on this GPU: {'; '.join(reasons)}.")


def choose_row_products(device: torch.device) -> tuple[Products, str]:
    """The products by rows, and a sentence about them.

    Raises:
        ModelError: they do not work on this device.
    """
    products = row_products()
    try:
        wrong = _trial(products, device, by_rows=True)
        reason = None if wrong is None else f"it is wrong by {wrong:.1e}"
    except Exception as problem:  # whatever CUDA raises
        reason = f"{type(problem).__name__}: {first_line(problem)}".rstrip(": ")
    if reason is not None:
        raise ModelError(
            f"torch.scaled_mm does not multiply by rows on this GPU: {reason}. Leave"
            " fast='fp8-rows' out."
        )
    return products, "FP8 products run by rows on cuBLAS."


def row_products() -> Products:
    """The products by rows, the gated one in two steps."""

    def gated(x: Activation, weight: Weight) -> Activation:
        both = multiply_rows(x, weight)
        return gate(both, out_dtype=x.values.dtype, quantised=True, by_rows=True)

    return Products(multiply_rows, gated)


def own_products(device: torch.device) -> Products:
    """The products by `product.cu`."""
    from covey.kernels.hopper.product import load_products

    loaded = load_products(device)
    return Products(loaded.product, loaded.gated, loaded.added)


def torch_products(_: torch.device) -> Products:
    """The products by torch, the gated one in two steps."""

    def gated(x: Activation, weight: Weight) -> Activation:
        return gate(scaled_mm(x, weight), out_dtype=x.values.dtype, quantised=True)

    return Products(scaled_mm, gated)


def scaled_mm(x: Activation, weight: Weight) -> Tensor:
    """The product by torch, which wants whole fours of rows and of scale columns."""
    from torch.nn.functional import ScalingType
    from torch.nn.functional import scaled_mm as torch_scaled_mm

    rows, width = x.values.shape
    factors = scales_of(weight)
    if not rows:
        return torch.empty(0, len(weight.values), device=x.values.device, dtype=torch.bfloat16)
    values, scales = multiply_layout(x)
    if factors.shape[1] % 4:
        factors = torch.nn.functional.pad(factors, (0, -factors.shape[1] % 4))
    found = torch_scaled_mm(
        values,
        weight.values.t(),
        scales,
        ScalingType.BlockWise1x128,
        factors.t()[: width // GROUP],
        ScalingType.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )
    return found[:rows]


def _trial(products: Products, device: torch.device, by_rows: bool) -> float | None:
    """The relative error of small products against float64 where it is too large."""
    rows, width, columns = 130, 512, 768
    draw = torch.Generator(device).manual_seed(1)
    kind = torch.float8_e4m3fn
    x = torch.randn(rows, width, device=device, generator=draw).to(kind)
    weight = torch.randn(columns, width, device=device, generator=draw).to(kind)
    groups = 1 if by_rows else width // GROUP
    scales = torch.rand(rows, groups, device=device, generator=draw) + 0.5
    blocks = columns if by_rows else columns // GROUP
    factors = torch.rand(blocks, groups, device=device, generator=draw) * 0.1
    left, right = Activation(x, scales), Weight(weight, factors)
    expected = widened(x, scales).double() @ widened(weight, factors).double().T
    error = _error(products.multiply(left, right), expected)
    if not error < _TOLERANCE:
        return error
    if products.added is not None:
        residual = torch.randn(rows, columns, device=device, generator=draw).to(torch.bfloat16)
        total = expected + residual.double()
        error = _error(products.added(left, right, residual), total)
        if not error < _TOLERANCE:
            return error
    gate_half, up = expected.chunk(2, 1)
    activated = gate_half * gate_half.sigmoid() * up
    found = products.gated(left, right)
    if found.scales is None:
        raise ModelError("a gated product came back without scales")
    # Values are rounded coarsely, which would hide a small mistake; scales are not.
    largest = activated.view(rows, found.scales.shape[1], -1).abs().amax(2) / 448
    error = _error(found.scales, largest)
    if not error < _TOLERANCE:
        return error
    error = _error(widened(found.values, found.scales), activated)
    return None if error < _FP8_TOLERANCE else error


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())
