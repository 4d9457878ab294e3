"""Norm, gate, rotation and logits of the Hopper path against plain formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from covey.errors import RunError
from covey.kernels.base import KvLayer

pytest.importorskip("triton", reason="Triton has no build for this platform")

from covey.kernels.hopper.launch import gemm_layout, padded
from covey.kernels.hopper.logits import answer_logits
from covey.kernels.hopper.rms_norm import add_rms_norm
from covey.kernels.hopper.rotary import RotaryEmbedding, rotate_and_store
from covey.kernels.hopper.silu_and_mul import silu_and_mul

DTYPES = [torch.float32, torch.float16]


def near(found: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32) -> None:
    limit = 2e-6 if dtype is torch.float32 else 1e-3
    error = (found.double() - expected).norm()
    size = expected.norm()
    assert error <= limit * size, f"error {error:.1e} of {size:.1e}, {tuple(expected.shape)}"


def rms(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 64), (3, 96), (5, 2560), (2, 576)])
@pytest.mark.parametrize("add", [False, True])
def test_norm_is_that_of_the_rounded_sum(
    dtype: torch.dtype, rows: int, width: int, add: bool
) -> None:
    torch.manual_seed(rows * width)
    residual, delta = torch.randn(rows, width).to(dtype), torch.randn(rows, width).to(dtype)
    weight = torch.rand(width).to(dtype) + 0.5
    total = residual + delta if add else residual.clone()
    out = add_rms_norm(
        residual, delta if add else None, weight, epsilon=1e-5, out_dtype=dtype, quantised=False
    )
    assert torch.equal(residual, total) and out.scales is None
    near(out.values, rms(total.double(), weight, 1e-5), dtype)


@pytest.mark.parametrize(("rows", "width"), [(1, 128), (6, 384), (7, 2560)])
def test_quantised_norm_has_a_scale_a_group_by_columns_with_room_for_products(
    rows: int, width: int
) -> None:
    torch.manual_seed(width)
    x, weight = torch.randn(rows, width), torch.rand(width) + 0.5
    x[0, :128] = 0.0
    expected = rms(x.double(), weight, 1e-6)
    # Stored in float32, so that all but the cast is seen.
    out = add_rms_norm(x, None, weight, epsilon=1e-6, out_dtype=torch.float32, quantised=True)
    assert out.scales is not None and out.scales.shape == (rows, width // 128)
    assert out.scales.stride() == (1, padded(rows))
    largest = expected.view(rows, -1, 128).abs().amax(2)
    near(out.scales, largest.clamp(min=1e-10) / 448)
    assert out.values.abs().max() <= 448 * (1 + 1e-6)
    near(out.values * out.scales.repeat_interleave(128, 1), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 96), (3, 1536), (2, 9728), (5, 2049)])
def test_gate_is_silu_times_up(dtype: torch.dtype, rows: int, width: int) -> None:
    torch.manual_seed(width)
    both = (torch.randn(rows, 2 * width) * 3).to(dtype)
    found = silu_and_mul(both, out_dtype=dtype, quantised=False)
    first, second = both.double().chunk(2, 1)
    near(found.values, first * first.sigmoid() * second, dtype)


@pytest.mark.parametrize(("rows", "width"), [(1, 128), (5, 384), (3, 9728)])
def test_quantised_gate_covers_every_group(rows: int, width: int) -> None:
    torch.manual_seed(rows)
    both = torch.randn(rows, 2 * width) * 3
    found = silu_and_mul(both, out_dtype=torch.float32, quantised=True)
    first, second = both.double().chunk(2, 1)
    expected = first * first.sigmoid() * second
    assert found.scales is not None
    near(found.scales, expected.view(rows, -1, 128).abs().amax(2) / 448)
    near(found.values * found.scales.repeat_interleave(128, 1), expected)


def turned(x: Tensor, angles: Tensor, weight: Tensor | None) -> Tensor:
    """(rows, heads, d) normed and turned in float64."""
    x = x.double() if weight is None else rms(x.double(), weight, 1e-6)
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "rows"),
    [(4, 2, 8, None), (9, 3, 64, None), (8, 2, 128, [0, 3, 4]), (2, 2, 16, [])],
)
def test_rotation_norms_turns_and_stores(
    dtype: torch.dtype, normed: bool, heads: int, kv_heads: int, width: int, rows: list[int] | None
) -> None:
    torch.manual_seed(heads)
    count = 5
    chosen = list(range(count)) if rows is None else rows
    # As they come from the merged product: columns of one matrix.
    qkv = torch.randn(count, (heads + 2 * kv_heads) * width).to(dtype)
    k, v = qkv[:, heads * width :].view(count, 2, kv_heads, width).unbind(1)
    q = qkv[:, : heads * width].view(count, heads, width)
    if rows is not None:
        q = torch.randn(len(rows), heads, width).to(dtype)
    weights = torch.rand(width).to(dtype) + 0.5, torch.rand(width).to(dtype) + 0.5
    norms = weights if normed else None
    positions = torch.randint(0, 3000, (count,), dtype=torch.int32)
    frequencies = 0.9 ** torch.arange(width // 2, dtype=torch.float32)
    angles = torch.outer(positions.float(), frequencies)
    expected_q = turned(q, angles.double()[chosen], norms and weights[0])
    expected_k = turned(k, angles.double(), norms and weights[1])
    slots = torch.tensor([-1, 6, 0, -1, 2], dtype=torch.int32)
    shape = (9, kv_heads, width)
    kv_cache = KvLayer(torch.full(shape, 7.0, dtype=dtype), torch.full(shape, 7.0, dtype=dtype))
    before = v.clone()
    rotate_and_store(
        q,
        k,
        v,
        norms,
        None if rows is None else torch.tensor(rows, dtype=torch.int64),
        RotaryEmbedding(positions, frequencies, slots),
        kv_cache,
        1e-6,
    )
    if len(chosen):
        near(q, expected_q, dtype)
    near(k, expected_k, dtype)
    assert torch.equal(v, before)
    assert torch.equal(kv_cache.k[[6, 0, 2]], k[[1, 2, 4]])
    assert torch.equal(kv_cache.v[[6, 0, 2]], v[[1, 2, 4]])
    untouched = [1, 3, 4, 5, 7, 8]
    assert bool((kv_cache.k[untouched] == 7).all()) and bool((kv_cache.v[untouched] == 7).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("count", "width", "rows"), [(1, 64, 8), (4, 2560, 7), (3, 100, 1)])
@pytest.mark.parametrize("add", [False, True])
def test_logits_are_the_normed_state_times_the_heads_rows(
    dtype: torch.dtype, count: int, width: int, rows: int, add: bool
) -> None:
    torch.manual_seed(width)
    residual, delta = torch.randn(count, width).to(dtype), torch.randn(count, width).to(dtype)
    weight, head = torch.rand(width).to(dtype) + 0.5, torch.randn(rows, width).to(dtype)
    found = answer_logits(residual, delta if add else None, weight, head, 1e-5)
    total = residual + delta if add else residual
    expected = rms(total.double(), weight, 1e-5) @ head.double().T
    assert found.dtype is torch.float32
    near(found, expected)


def test_what_a_kernel_would_read_wrongly_is_refused_by_name() -> None:
    x, weight = torch.randn(4, 256), torch.ones(256)
    with pytest.raises(RunError, match="add_rms_norm: residual is not contiguous"):
        add_rms_norm(
            x.t().contiguous().t(), None, weight, epsilon=1e-6, out_dtype=x.dtype, quantised=False
        )
    with pytest.raises(RunError, match="200 columns make no groups"):
        silu_and_mul(torch.randn(2, 400), out_dtype=x.dtype, quantised=True)
    with pytest.raises(RunError, match="head is"):
        answer_logits(x, None, weight, torch.randn(2, 255), 1e-6)


def test_rows_taken_from_an_activation_are_laid_out_for_a_product_again() -> None:
    out = add_rms_norm(
        torch.randn(9, 256), None, torch.ones(256), epsilon=1e-6, out_dtype=torch.float32,
        quantised=True,
    )  # fmt: skip
    taken = out.take(torch.tensor([7, 0, 3]))
    for x in (out, taken):
        values, scales = gemm_layout(x)
        rows = len(x.values)
        assert x.scales is not None
        assert values.shape == (padded(rows), 256) and values.is_contiguous()
        assert scales.stride() == (1, padded(rows))
        assert torch.equal(values[:rows], x.values)
        assert torch.equal(scales[:rows], x.scales)
    assert gemm_layout(out)[0].data_ptr() == out.values.data_ptr()
