"""The products that a model in FP8 needs, whoever computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from covey.kernels.base import Activation, Weight
from covey.kernels.hopper.rotate import HeadForm

ByHeads = Callable[[Activation, Weight, HeadForm], Tensor]


@dataclass(frozen=True, slots=True)
class Products:
    """The products of a model in FP8.

    Attributes:
        multiply: x @ weight.T, (n, out) BF16.
        gated: silu(gate) * up of x and a weight that is gate above up, (n, out / 2) in FP8.
        added: the product added to a (n, out) BF16 where that lies, or None.
        heads: a product by heads, turned and kept, or None.
    """

    multiply: Callable[[Activation, Weight], Tensor]
    gated: Callable[[Activation, Weight], Activation]
    added: Callable[[Activation, Weight, Tensor], Tensor] | None = None
    heads: ByHeads | None = None
