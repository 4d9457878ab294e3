"""Whether FP8 products are right on a device: small ones beside float64, at start-up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from covey.errors import ModelError
from covey.kernels.base import Activation, ForwardBatch, Geometry, KvLayer, Weight
from covey.kernels.heads import split_heads
from covey.kernels.hopper.checks import GROUP, relative_error
from covey.kernels.hopper.products import ByHeads, Products
from covey.kernels.hopper.rotate import HeadForm, Turn
from covey.kernels.reference import ReferenceKernels
from covey.kernels.scales import widened

_TOLERANCE = 5e-3  # BF16 rounding of a product alone is 1.7e-3
_FP8_TOLERANCE = 4e-2  # e4m3 rounding alone is 2.3e-2


def products_error(products: Products, device: torch.device) -> float | None:
    """The relative error of small products on `device` against float64 where one is too large."""
    rows, width, columns = 130, 512, 768
    draw = torch.Generator(device).manual_seed(1)
    kind = torch.float8_e4m3fn
    x = torch.randn(rows, width, device=device, generator=draw).to(kind)
    weight = torch.randn(columns, width, device=device, generator=draw).to(kind)
    groups, blocks = width // GROUP, columns // GROUP
    scales = torch.rand(rows, groups, device=device, generator=draw) + 0.5
    factors = torch.rand(blocks, groups, device=device, generator=draw) * 0.1
    left, right = Activation(x, scales), Weight(weight, factors)
    expected = widened(x, scales).double() @ widened(weight, factors).double().T
    for error, tolerance in _errors(products, left, right, expected):
        if not error < tolerance:
            return error
    return None


def _errors(
    products: Products, x: Activation, weight: Weight, expected: Tensor
) -> Iterator[tuple[float, float]]:
    """Each product's relative error, and the most it may be."""
    yield relative_error(products.multiply(x, weight), expected), _TOLERANCE
    if products.added is not None:
        residual = expected.flip(0).to(torch.bfloat16)
        total = expected + residual.double()
        yield relative_error(products.added(x, weight, residual), total), _TOLERANCE
    if products.heads is not None:
        for error in _head_errors(products.heads, x, weight, expected):
            yield error, _TOLERANCE
    gate, up = expected.chunk(2, 1)
    activated = gate * gate.sigmoid() * up
    gated = products.gated(x, weight)
    if gated.scales is None:
        raise ModelError("a gated product came back without scales")
    # Values are rounded coarsely, which would hide a small mistake; scales are not.
    largest = activated.view(*gated.scales.shape, -1).abs().amax(2) / 448
    yield relative_error(gated.scales, largest), _TOLERANCE
    yield relative_error(widened(gated.values, gated.scales), activated), _FP8_TOLERANCE


def _head_errors(heads: ByHeads, x: Activation, weight: Weight, expected: Tensor) -> list[float]:
    """Errors of a product by heads, and of what it keeps: every second row, at the slots' end."""
    rows, device = len(expected), expected.device
    shape = Geometry(2, 2, GROUP, 1e-6, 0.9 ** torch.arange(GROUP // 2, dtype=torch.float32))
    positions, kept = np.arange(rows, dtype=np.int32), np.arange(0, rows, 2)
    slot_mapping = np.where(positions % 2, -1, rows - 1 - positions).astype(np.int32)
    batch = ForwardBatch(
        tokens=positions,
        positions=positions,
        subtree_ends=positions + 1,
        logits_indices=kept,
        prefix_rows=np.zeros((0, 2), np.int64),
        prefix_slots=np.zeros((0, 2), np.int64),
        slot_mapping=slot_mapping,
    )
    norms = expected[0, :GROUP].to(torch.bfloat16), expected[1, :GROUP].to(torch.bfloat16)
    turn = Turn(
        torch.from_numpy(positions).to(device),
        shape.frequencies.to(device),
        torch.from_numpy(slot_mapping).to(device),
    )
    ours, theirs = (
        KvLayer(*torch.zeros(2, rows, 2, GROUP, device=device, dtype=dtype))
        for dtype in (torch.bfloat16, torch.float32)
    )
    found = heads(x, weight, HeadForm(2, 2, norms, turn, ours, shape.norm_eps))
    exact = ReferenceKernels(shape, device, torch.float32)
    wide = norms[0].float(), norms[1].float()
    queries, others = expected.float().split([2 * GROUP, 4 * GROUP], 1)
    q, k, v = split_heads(queries, others, shape)
    q, k = exact.rotate_and_store(q, k, wide, v, exact.plan(batch), theirs)
    return [
        relative_error(found, torch.cat([q, k, v], 1).flatten(1)),
        relative_error(ours.k, theirs.k),
        relative_error(ours.v, theirs.v),
    ]
