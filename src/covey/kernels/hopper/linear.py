"""The linear layers of a model in FP8: Covey's kernel, or torch's where that one cannot run.

Which of the two is decided once, by multiplying small matrices and comparing them with float64;
never silently. `hopper.fp8_gemm` has the layout of what is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from covey.errors import ModelError, first_line
from covey.kernels.base import Activation, AttentionConfig, ForwardBatch, KvLayer, Weight
from covey.kernels.device_memory import is_out_of_memory
from covey.kernels.fp8_format import FP8_BLOCK, FP8_GROUP, FP8_MAX
from covey.kernels.hopper.launch import gemm_layout, relative_error, scales_of
from covey.kernels.hopper.rotary import QkvEpilogue, RotaryEmbedding
from covey.kernels.hopper.silu_and_mul import silu_and_mul
from covey.kernels.reference import ReferenceKernels, split_heads
from covey.kernels.scales import dequantise

_TOLERANCE = 5e-3  # BF16 rounding of a product alone is 1.7e-3
_FP8_TOLERANCE = 4e-2  # e4m3 rounding alone is 2.3e-2

QkvProduct = Callable[[Activation, Weight, QkvEpilogue], Tensor]


@dataclass(frozen=True, slots=True)
class LinearBackend:
    """What multiplies in FP8, alone and with what follows a product in a decoder.

    Attributes:
        multiply: x @ weight.T, (n, out) BF16.
        silu_and_mul: silu(gate) * up of x and a weight that is gate above up, (n, out / 2) in FP8.
        add: the product added to a (n, out) BF16 where that lies, or None.
        qkv: a product whose columns are heads, and its epilogue, or None.
    """

    multiply: Callable[[Activation, Weight], Tensor]
    silu_and_mul: Callable[[Activation, Weight], Activation]
    add: Callable[[Activation, Weight, Tensor], Tensor] | None = None
    qkv: QkvProduct | None = None


def choose_backend(device: torch.device) -> tuple[LinearBackend, str]:
    """The fastest backend that is right on this device, and a sentence about it.

    Raises:
        ModelError: none is.
    """
    reasons = []
    for name, make in (("Covey's kernel", covey_backend), ("torch.scaled_mm", torch_backend)):
        try:
            backend = make(device)
            wrong = backend_error(backend, device)
        except Exception as problem:  # whatever CUDA raises, the next is tried
            if is_out_of_memory(problem):
                raise
            because = f"{type(problem).__name__}: {first_line(problem)}".rstrip(": ")
            reasons.append(f"{name} failed: {because}")
            continue
        if wrong is None:
            because = f" because {'; '.join(reasons)}" if reasons else ""
            return backend, f"FP8 products run on {name}{because}."
        reasons.append(f"{name} is wrong by {wrong:.1e}")
    raise ModelError(f"No FP8 matrix product works on this GPU: {'; '.join(reasons)}.")


def covey_backend(device: torch.device) -> LinearBackend:
    """The backend of `fp8_gemm.cu`."""
    from covey.kernels.hopper.fp8_gemm import load_fp8_gemm

    gemm = load_fp8_gemm(device)
    return LinearBackend(gemm.multiply, gemm.silu_and_mul, gemm.add, gemm.qkv)


def torch_backend(_: torch.device) -> LinearBackend:
    """The backend of torch, silu_and_mul in two steps."""

    def two_steps(x: Activation, weight: Weight) -> Activation:
        return silu_and_mul(scaled_mm(x, weight), out_dtype=x.values.dtype, quantised=True)

    return LinearBackend(scaled_mm, two_steps)


def scaled_mm(x: Activation, weight: Weight) -> Tensor:
    """The product by torch, which wants whole fours of rows and of scale columns."""
    from torch.nn.functional import ScalingType
    from torch.nn.functional import scaled_mm as torch_scaled_mm

    rows, width = x.values.shape
    factors = scales_of(weight)
    if not rows:
        return torch.empty(0, len(weight.values), device=x.values.device, dtype=torch.bfloat16)
    values, scales = gemm_layout(x)
    if factors.shape[1] % 4:
        factors = torch.nn.functional.pad(factors, (0, -factors.shape[1] % 4))
    found = torch_scaled_mm(
        values,
        weight.values.t(),
        scales,
        ScalingType.BlockWise1x128,
        factors.t()[: width // FP8_GROUP],
        ScalingType.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )
    return found[:rows]


def backend_error(backend: LinearBackend, device: torch.device) -> float | None:
    """The relative error of small products on `device` against float64 where one is too large."""
    rows, width, columns = 130, 512, 768
    draw = torch.Generator(device).manual_seed(1)
    kind = torch.float8_e4m3fn
    x = torch.randn(rows, width, device=device, generator=draw).to(kind)
    weight = torch.randn(columns, width, device=device, generator=draw).to(kind)
    scales = torch.rand(rows, width // FP8_GROUP, device=device, generator=draw) + 0.5
    blocks = columns // FP8_BLOCK, width // FP8_BLOCK
    factors = torch.rand(*blocks, device=device, generator=draw) * 0.1
    left, right = Activation(x, scales), Weight(weight, factors)
    expected = dequantise(x, scales).double() @ dequantise(weight, factors).double().T
    for error, tolerance in _errors(backend, left, right, expected):
        if not error < tolerance:
            return error
    return None


def _errors(
    backend: LinearBackend, x: Activation, weight: Weight, expected: Tensor
) -> Iterator[tuple[float, float]]:
    """Each product's relative error, and the most it may be."""
    yield relative_error(backend.multiply(x, weight), expected), _TOLERANCE
    if backend.add is not None:
        residual = expected.flip(0).to(torch.bfloat16)
        total = expected + residual.double()
        yield relative_error(backend.add(x, weight, residual), total), _TOLERANCE
    if backend.qkv is not None:
        for error in _qkv_errors(backend.qkv, x, weight, expected):
            yield error, _TOLERANCE
    gate, up = expected.chunk(2, 1)
    activated = gate * gate.sigmoid() * up
    found = backend.silu_and_mul(x, weight)
    if found.scales is None:
        raise ModelError("a gated product came back without scales")
    # Values are rounded coarsely, which would hide a small mistake; scales are not.
    largest = activated.view(*found.scales.shape, -1).abs().amax(2) / FP8_MAX
    yield relative_error(found.scales, largest), _TOLERANCE
    yield relative_error(dequantise(found.values, found.scales), activated), _FP8_TOLERANCE


def _qkv_errors(
    product: QkvProduct, x: Activation, weight: Weight, expected: Tensor
) -> list[float]:
    """Errors of a qkv product, and of what it keeps: every second row, at the slots' end."""
    rows, device, head = len(expected), expected.device, FP8_GROUP
    frequencies = 0.9 ** torch.arange(head // 2, dtype=torch.float32)
    config = AttentionConfig(2, 2, head, 1e-6, frequencies)
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
    norms = expected[0, :head].to(torch.bfloat16), expected[1, :head].to(torch.bfloat16)
    rotary = RotaryEmbedding(
        torch.from_numpy(positions).to(device),
        frequencies.to(device),
        torch.from_numpy(slot_mapping).to(device),
    )
    ours, theirs = (
        KvLayer(*torch.zeros(2, rows, 2, head, device=device, dtype=dtype))
        for dtype in (torch.bfloat16, torch.float32)
    )
    found = product(x, weight, QkvEpilogue(2, 2, norms, rotary, ours, config.norm_eps))
    exact = ReferenceKernels(config, device, torch.float32)
    wide = norms[0].float(), norms[1].float()
    queries, others = expected.float().split([2 * head, 4 * head], 1)
    q, k, v = split_heads(queries, others, config)
    q, k = exact.rotate_and_store(q, k, wide, v, exact.plan(batch), theirs)
    return [
        relative_error(found, torch.cat([q, k, v], 1).flatten(1)),
        relative_error(ours.k, theirs.k),
        relative_error(ours.v, theirs.v),
    ]
