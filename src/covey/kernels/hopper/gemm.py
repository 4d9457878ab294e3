"""Which FP8 products run: our own, or torch's where ours cannot.

    x         (n, in) e4m3           groups of 128 columns scaled
    x scales  (n, in / 128) float32  by columns, room for a multiple of four rows
    weight    (out, in) e4m3         blocks of 128 x 128 scaled
    w scales  (out / 128, in / 128)  float32, contiguous
    result    (n, out) BF16, summed in float32

Which of the two is decided once, by multiplying and comparing; never silently.
"""

from __future__ import annotations

import torch
from torch import Tensor

from covey.errors import ModelError, first_line
from covey.kernels.base import Activation, Weight
from covey.kernels.hopper.checks import GROUP
from covey.kernels.hopper.fp8 import multiply_layout, scales_of
from covey.kernels.hopper.gate import gate
from covey.kernels.hopper.products import Products
from covey.kernels.hopper.trial import products_error
from covey.kernels.memory import is_out_of_memory


def choose_products(device: torch.device) -> tuple[Products, str]:
    """The fastest products that are right on this device, and a sentence about them.

    Raises:
        ModelError: none are.
    """
    reasons = []
    for name, make in (("Covey's kernel", own_products), ("torch.scaled_mm", torch_products)):
        try:
            products = make(device)
            wrong = products_error(products, device)
        except Exception as problem:  # whatever CUDA raises, the next is tried
            if is_out_of_memory(problem):
                raise
            because = f"{type(problem).__name__}: {first_line(problem)}".rstrip(": ")
            reasons.append(f"{name} failed: {because}")
            continue
        if wrong is None:
            because = f" because {'; '.join(reasons)}" if reasons else ""
            return products, f"FP8 products run on {name}{because}."
        reasons.append(f"{name} is wrong by {wrong:.1e}")
    raise ModelError(f"No FP8 matrix product works on this GPU: {'; '.join(reasons)}.")


def own_products(device: torch.device) -> Products:
    """The products by `product.cu`."""
    from covey.kernels.hopper.product import load_products

    loaded = load_products(device)
    return Products(loaded.product, loaded.gated, loaded.added, loaded.heads)


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
