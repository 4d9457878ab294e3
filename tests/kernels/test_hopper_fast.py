"""The faster, lossier forms of the Hopper kernels: FP8 by rows, and dense attention in FP8.

Values are stored in float32 where the interpreter casts to FP8 wrongly, so that all but the
cast is seen; the cast is checked on a GPU by bench/hopper_errors.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from covey.errors import ModelError, RunError
from covey.kernels.base import Activation, Geometry, KvLayer, Weight
from covey.kernels.scales import by_blocks, by_rows, rounded, widened

pytest.importorskip("triton", reason="Triton has no build for this platform")

from covey.kernels.hopper import dense8, gemm
from covey.kernels.hopper.dense import DeviceCall
from covey.kernels.hopper.gate import gate
from covey.kernels.hopper.kernels import HopperKernels
from covey.kernels.hopper.norm import add_norm
from covey.kernels.hopper.products import Products
from covey.kernels.hopper.rows import multiply_rows, quantise_rows
from covey.kernels.hopper.trial import products_error
from covey.kernels.hopper.work import Limits
from kernels import interpreted
from kernels.forests import forest, random_forest
from kernels.test_hopper_glue import near, rms

SMALL = Limits(dense_keys=6, dense_rows=4, causal_rows=10)


def check_rows(found: Activation, expected: Tensor) -> None:
    """One scale a row, contiguous as cuBLAS wants it, and values that it gives back."""
    assert found.scales is not None and found.scales.shape == (len(expected), 1)
    assert found.scales.stride() == (1, 1)
    near(found.scales, expected.abs().amax(1, keepdim=True).clamp(min=1e-10) / 448)
    near(widened(found.values, found.scales), expected)


@pytest.mark.parametrize(("rows", "width"), [(1, 16), (5, 400), (3, 2560)])
def test_norm_gate_and_plain_rows_have_a_scale_a_row(rows: int, width: int) -> None:
    torch.manual_seed(width)
    x, weight, both = (
        torch.randn(rows, width),
        torch.rand(width) + 0.5,
        torch.randn(rows, 2 * width),
    )
    x[0, 3:] = 0.0
    normed = add_norm(
        x, None, weight, epsilon=1e-6, out_dtype=torch.float32, quantised=True, by_rows=True
    )
    check_rows(normed, rms(x.double(), weight, 1e-6))
    first, second = both.double().chunk(2, 1)
    gated = gate(both, out_dtype=torch.float32, quantised=True, by_rows=True)
    check_rows(gated, first * first.sigmoid() * second)
    x[-1] = 0.0
    check_rows(quantise_rows(x, torch.float32), x.double())
    assert torch.equal(normed.take(torch.tensor([0])).scales, normed.scales[:1])
    with pytest.raises(RunError, match="quantise_rows: x is not contiguous"):
        quantise_rows(torch.randn(4, 6).t(), torch.float32)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_products_by_rows_are_those_of_the_widened_operands(rows: int) -> None:
    torch.manual_seed(rows)
    x = Activation(*rounded(torch.randn(rows, 160), None, torch.float8_e4m3fn))
    weight = by_rows(Weight(torch.randn(96, 160)))
    found = multiply_rows(x, weight.rows(16, 80))
    assert found.shape == (rows, 64) and found.dtype is torch.bfloat16
    expected = widened(x.values, x.scales) @ widened(weight.values, weight.scales).T
    torch.testing.assert_close(found.float(), expected[:, 16:80], rtol=1e-2, atol=1e-2)


def test_blocks_become_rows_that_differ_by_a_second_rounding_only() -> None:
    torch.manual_seed(2)
    scales = torch.rand(2, 3) + 0.1
    blocks = Weight(torch.randn(256, 384).to(torch.float8_e4m3fn), scales)
    exact = blocks.values.float() * scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    assert torch.equal(widened(blocks.values, blocks.scales), exact)
    assert torch.equal(blocks.rows(128, 256).scales, scales[1:])
    rows = by_rows(blocks)
    assert rows.scales is not None and rows.scales.shape == (256, 1)
    assert rows.values.dtype is torch.float8_e4m3fn
    assert torch.isfinite(rows.values.float()).all()
    error = (widened(rows.values, rows.scales) - exact).norm() / exact.norm()
    assert 1e-2 < error < 4e-2
    near(widened(*rounded(exact, 128, torch.float32)), exact.double())
    again = by_blocks(Weight(exact))
    # The largest of a block was rounded, too, so that its scale moves by as much.
    assert again.scales is not None and again.scales.shape == scales.shape
    error = (widened(again.values, again.scales) - exact).norm() / exact.norm()
    assert error < 4e-2


def test_the_trial_by_rows_sees_a_wrong_factor() -> None:
    def multiply(x: Activation, weight: Weight) -> Tensor:
        return (widened(x.values, x.scales) @ widened(weight.values, weight.scales).T).bfloat16()

    def gated(x: Activation, weight: Weight) -> Activation:
        first, second = multiply(x, weight).float().chunk(2, 1)
        return Activation(*rounded(first * first.sigmoid() * second, None, torch.float8_e4m3fn))

    def blocked(x: Activation, weight: Weight) -> Activation:
        values, scales = gated(x, weight).values, gated(x, weight).scales
        assert scales is not None
        return Activation(values, scales * 1.02)

    cpu = torch.device("cpu")
    assert products_error(Products(multiply, gated), cpu, by_rows=True) is None
    wrong = products_error(Products(multiply, blocked), cpu, by_rows=True)
    assert wrong is not None and wrong > 1e-2


def test_products_that_do_not_run_are_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: object) -> Tensor:
        raise RuntimeError("no rows here\nmore lines")

    monkeypatch.setattr(gemm, "multiply_rows", missing)
    with pytest.raises(ModelError, match=r"RuntimeError: no rows here\. Leave fast='fp8-rows' out"):
        gemm.choose_row_products(torch.device("cpu"))


def plain_products() -> Products:
    """Products by rows of values that were stored in float32."""

    def multiply(x: Activation, weight: Weight) -> Tensor:
        return widened(x.values, x.scales) @ widened(weight.values, weight.scales).T

    def gated(x: Activation, weight: Weight) -> Activation:
        both = multiply(x, weight)
        return gate(both, out_dtype=torch.float32, quantised=True, by_rows=True)

    return Products(multiply, gated)


def test_a_whole_layer_by_rows_is_the_exact_one_where_nothing_is_rounded() -> None:
    shape = interpreted.geometry(4, 2, 16)
    cpu = torch.device("cpu")
    ours = HopperKernels(
        shape, cpu, torch.float32, True, plain_products(), interpreted.dense, SMALL, by_rows=True
    )
    ours._stored = torch.float32
    _, theirs = interpreted.both_kernels(shape, torch.float32)
    torch.manual_seed(5)
    chunk = random_forest(np.random.default_rng(5), 40, 9.0, arena=0)
    count, hidden = len(chunk), 64
    qkv, output = torch.randn(128, hidden) * 0.1, torch.randn(hidden, hidden) * 0.1
    gate_up, ones = torch.randn(96, hidden) * 0.1, torch.ones(hidden)
    residual = torch.randn(count, hidden)

    def layer(kernels: object, made: Callable[[Tensor], Weight], state: Tensor) -> Tensor:
        state, x = kernels.norm(state, None, ones)
        plan = kernels.plan(chunk)
        attended = kernels.attend(*kernels.qkv(x, made(qkv), None, plan, None), plan, None)
        state, delta = kernels.project(attended, made(output), state)
        state, x = kernels.norm(state, delta, ones)
        gated = kernels.gated(x, made(gate_up))
        return torch.cat([state, widened(gated.values, gated.scales)], 1)

    expected = layer(theirs, Weight, residual.clone())
    found = layer(ours, lambda w: by_rows(Weight(w), torch.float32), residual.clone())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_sequences_are_copied_together_and_scaled_by_head() -> None:
    torch.manual_seed(8)
    x = torch.randn(60, 6, 10)[:, :, :8]  # heads apart
    starts = torch.tensor([40, 3, 9], dtype=torch.int32)
    counts = torch.tensor([17, 0, 21], dtype=torch.int32)
    into = torch.tensor([0, 17, 17], dtype=torch.int32)
    ranges = (starts, counts, into)
    with pytest.raises(RunError, match="the heads of x are apart"):
        dense8.round_sequences(x, 2, ranges, 21, 38, torch.float32)
    x = torch.randn(60, 9 * 8)[:, :48].view(60, 6, 8)  # rows of a wider matrix
    found, factors = dense8.round_sequences(x, 2, ranges, 21, 38, torch.float32)
    assert found.shape == (38, 6, 8) and factors.shape == (3, 2)
    wide = found.view(38, 2, 24)
    for b in (0, 2):
        first, count, at = int(starts[b]), int(counts[b]), int(into[b])
        expected = x[first : first + count].reshape(count, 2, 24)
        near(factors[b], expected.abs().amax((0, 2)).double() / 448)
        near(wide[at : at + count] * factors[b][None, :, None], expected.double())
    assert float(found.abs().max()) <= 448 * (1 + 1e-6)


def stand_in(
    operands: tuple[Tensor, Tensor, Tensor],
    key_starts: Tensor,
    call: DeviceCall,
    scale: float,
    descales: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """FlashAttention-3 as its interface says: every sequence has its own factors."""
    shape = call.query_starts, call.query_counts
    ranges = [shape, (key_starts, call.key_counts), (key_starts, call.key_counts)]
    wide = []
    for x, (starts, counts), factors in zip(operands, ranges, descales, strict=True):
        assert factors.shape == (len(counts), 2) and factors.dtype is torch.float32
        y = x.clone()
        for b in range(len(counts)):
            rows = slice(int(starts[b]), int(starts[b]) + int(counts[b]))
            y[rows] *= factors[b].repeat_interleave(x.shape[1] // 2)[None, :, None]
        wide.append(y)
    moved = DeviceCall(**{name: getattr(call, name) for name in call.__slots__})
    object.__setattr__(moved, "key_starts", key_starts)
    return interpreted.dense(*wide, moved, scale)


@pytest.mark.parametrize("seed", range(2))
def test_dense_calls_in_fp8_see_the_same_keys(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense8, "_FP8", torch.float32)
    monkeypatch.setattr(dense8, "run_flash_attention", stand_in)
    shape = interpreted.geometry(4, 2, 16)
    rng = np.random.default_rng(seed)
    chunk = random_forest(rng, 60, [4.0, 20.0][seed % 2], arena=60)
    cpu = torch.device("cpu")
    no_products = gemm.torch_products(cpu)
    ours = HopperKernels(shape, cpu, torch.float32, False, no_products, dense8.fp8_attention, SMALL)
    _, theirs = interpreted.both_kernels(shape, torch.float32)
    assert ours.plan(chunk).calls
    torch.manual_seed(seed)
    q, k, v = torch.randn(len(chunk), 8, 16).tensor_split([4, 6], 1)
    arena = KvLayer(torch.randn(64, 2, 16), torch.randn(64, 2, 16))
    expected = theirs.attend(q, k, v, theirs.plan(chunk), arena).values
    # In one piece by rows, as they come from the product.
    q, k, v = torch.cat([q, k, v], 1).tensor_split([4, 6], 1)
    found = ours.attend(q, k, v, ours.plan(chunk), arena).values
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def call_of(chunk_rows: int, span: int) -> DeviceCall:
    """The dense call of so many rows behind a span of the arena."""
    spans = [(0, chunk_rows, 0, span)] if span else []
    parents = [-1 if span else row - 1 for row in range(chunk_rows)]
    ours, _ = interpreted.both_kernels(interpreted.geometry(4, 2, 16), torch.float32, Limits())
    (call,) = ours.plan(forest(parents, spans)).calls
    return call


@pytest.mark.parametrize(
    ("rows", "span", "pays"),
    [(100, 4096, False), (2000, 512, False), (2000, 4096, True), (2048, 0, False), (4096, 0, True)],
)
def test_calls_run_in_fp8_where_rounding_costs_less_than_it_saves(
    rows: int, span: int, pays: bool
) -> None:
    call = call_of(rows, span)
    keys = span or rows
    assert (call.queries, call.keys) == (rows, keys)
    assert call.pairs == (rows * keys if span else rows * rows // 2)
    assert call.key_offsets.tolist() == [0, keys]
    assert dense8.is_worth_rounding(call) is pays


@pytest.mark.parametrize("failure", ["missing", "wrong"])
def test_fp8_attention_that_does_not_work_is_refused_with_the_reason(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: object) -> tuple[Tensor, Tensor]:
        if failure == "missing":
            raise RuntimeError("fp8 was not built\nmore lines")
        out, lse = stand_in(*arguments)
        return out * 1.2, lse

    monkeypatch.setattr(dense8, "_FP8", torch.float32)
    monkeypatch.setattr(dense8, "run_flash_attention", run)
    monkeypatch.setattr(dense8, "load_flash_attention", lambda: interpreted.dense)
    reason = "fp8 was not built" if failure == "missing" else "it is wrong by 2"
    with pytest.raises(ModelError, match=rf"{reason}.*Leave fast='fp8-attention' out"):
        dense8.load_fp8_attention(geometry(), torch.device("cpu"))


def test_fp8_attention_that_works_leaves_small_calls_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dense8, "_FP8", torch.float32)
    monkeypatch.setattr(dense8, "run_flash_attention", stand_in)
    monkeypatch.setattr(dense8, "load_flash_attention", lambda: lambda *_: ("exact", None))
    attention = dense8.load_fp8_attention(geometry(), torch.device("cpu"))
    monkeypatch.setattr(dense8, "fp8_attention", lambda *_: ("rounded", None))
    q = k = v = torch.empty(0, 2, 16)
    found = [attention(q, k, v, call_of(rows, 4096), 1.0)[0] for rows in (100, 2000)]
    assert found == ["exact", "rounded"]


def geometry() -> Geometry:
    return interpreted.geometry(4, 2, 16)
