"""The faster, lossier forms of the Hopper kernels: weights and dense attention in FP8.

Values are stored in float32 where the interpreter casts to FP8 wrongly, so that all but the
cast is seen; the cast is checked on a GPU by `bench/hopper kernels`.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from covey.errors import ModelError, RunError
from covey.kernels.base import Activation, AttentionConfig, KvLayer, Weight
from covey.kernels.scales import dequantise, quantise, quantise_weight

pytest.importorskip("triton", reason="Triton has no build for this platform")

from covey.kernels.hopper import flash_attention_fp8, linear
from covey.kernels.hopper.attention_split import DenseLimits
from covey.kernels.hopper.flash_attention import DeviceCall
from covey.kernels.hopper.kernels import HopperKernels
from covey.kernels.hopper.linear import LinearBackend, backend_error
from kernels import interpreted
from kernels.forests import forest, random_forest
from kernels.test_hopper_elementwise import near

SMALL = DenseLimits(dense_keys=6, dense_rows=4, causal_rows=10)


def test_blocks_are_widened_and_rounded_again_with_an_error_of_the_rounding_only() -> None:
    torch.manual_seed(2)
    scales = torch.rand(2, 3) + 0.1
    blocks = Weight(torch.randn(256, 384).to(torch.float8_e4m3fn), scales)
    exact = blocks.values.float() * scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    assert torch.equal(dequantise(blocks.values, blocks.scales), exact)
    assert torch.equal(blocks.rows(128, 256).scales, scales[1:])
    near(dequantise(*quantise(exact, 128, torch.float32)), exact.double())
    again = quantise_weight(Weight(exact))
    # The largest of a block was rounded, too, so that its scale moves by as much.
    assert again.scales is not None and again.scales.shape == scales.shape
    assert torch.isfinite(again.values.float()).all()
    error = (dequantise(again.values, again.scales) - exact).norm() / exact.norm()
    assert error < 4e-2


def test_the_trial_sees_a_wrong_scale_of_the_gated_product() -> None:
    def multiply(x: Activation, weight: Weight) -> Tensor:
        return (
            dequantise(x.values, x.scales) @ dequantise(weight.values, weight.scales).T
        ).bfloat16()

    def gated(x: Activation, weight: Weight) -> Activation:
        first, second = multiply(x, weight).float().chunk(2, 1)
        return Activation(*quantise(first * first.sigmoid() * second, 128, torch.float8_e4m3fn))

    def larger(x: Activation, weight: Weight) -> Activation:
        found = gated(x, weight)
        assert found.scales is not None
        return Activation(found.values, found.scales * 1.02)

    cpu = torch.device("cpu")
    assert backend_error(LinearBackend(multiply, gated), cpu) is None
    wrong = backend_error(LinearBackend(multiply, larger), cpu)
    assert wrong is not None and wrong > 1e-2


def test_sequences_are_copied_together_and_scaled_by_head() -> None:
    torch.manual_seed(8)
    x = torch.randn(60, 6, 10)[:, :, :8]  # heads apart
    starts = torch.tensor([40, 3, 9], dtype=torch.int32)
    counts = torch.tensor([17, 0, 21], dtype=torch.int32)
    into = torch.tensor([0, 17, 17], dtype=torch.int32)
    ranges = (starts, counts, into)
    with pytest.raises(RunError, match="the heads of x are apart"):
        flash_attention_fp8.round_sequences(x, 2, ranges, 21, 38, torch.float32)
    x = torch.randn(60, 9 * 8)[:, :48].view(60, 6, 8)  # rows of a wider matrix
    found, factors = flash_attention_fp8.round_sequences(x, 2, ranges, 21, 38, torch.float32)
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
    monkeypatch.setattr(flash_attention_fp8, "_FP8", torch.float32)
    monkeypatch.setattr(flash_attention_fp8, "run_flash_attention", stand_in)
    shape = interpreted.attention_config(4, 2, 16)
    rng = np.random.default_rng(seed)
    batch = random_forest(rng, 60, [4.0, 20.0][seed % 2], kv_cache=60)
    cpu = torch.device("cpu")
    no_products = linear.torch_backend(cpu)
    ours = HopperKernels(
        shape, cpu, torch.float32, False, no_products, flash_attention_fp8.fp8_attention, SMALL
    )
    _, theirs = interpreted.both_kernels(shape, torch.float32)
    assert ours.plan(batch).calls
    torch.manual_seed(seed)
    q, k, v = torch.randn(len(batch), 8, 16).tensor_split([4, 6], 1)
    kv_cache = KvLayer(torch.randn(64, 2, 16), torch.randn(64, 2, 16))
    expected = theirs.attend(q, k, v, theirs.plan(batch), kv_cache).values
    # In one piece by rows, as they come from the product.
    q, k, v = torch.cat([q, k, v], 1).tensor_split([4, 6], 1)
    found = ours.attend(q, k, v, ours.plan(batch), kv_cache).values
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def call_of(batch_rows: int, span: int) -> DeviceCall:
    """The dense call of so many rows behind a span of the KV cache."""
    spans = [(0, batch_rows, 0, span)] if span else []
    parents = [-1 if span else row - 1 for row in range(batch_rows)]
    ours, _ = interpreted.both_kernels(
        interpreted.attention_config(4, 2, 16), torch.float32, DenseLimits()
    )
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
    assert flash_attention_fp8.is_worth_rounding(call) is pays


@pytest.mark.parametrize("failure", ["missing", "wrong"])
def test_fp8_attention_that_does_not_work_is_refused_with_the_reason(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: object) -> tuple[Tensor, Tensor]:
        if failure == "missing":
            raise RuntimeError("fp8 was not built\nmore lines")
        out, lse = stand_in(*arguments)
        return out * 1.2, lse

    monkeypatch.setattr(flash_attention_fp8, "_FP8", torch.float32)
    monkeypatch.setattr(flash_attention_fp8, "run_flash_attention", run)
    monkeypatch.setattr(flash_attention_fp8, "load_flash_attention", lambda: interpreted.dense)
    reason = "fp8 was not built" if failure == "missing" else "it is wrong by 2"
    with pytest.raises(ModelError, match=rf"{reason}.*Leave fast='fp8-attention' out"):
        flash_attention_fp8.load_fp8_attention(attention_config(), torch.device("cpu"))


def test_fp8_attention_that_works_leaves_small_calls_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flash_attention_fp8, "_FP8", torch.float32)
    monkeypatch.setattr(flash_attention_fp8, "run_flash_attention", stand_in)
    monkeypatch.setattr(
        flash_attention_fp8, "load_flash_attention", lambda: lambda *_: ("exact", None)
    )
    attention = flash_attention_fp8.load_fp8_attention(attention_config(), torch.device("cpu"))
    monkeypatch.setattr(flash_attention_fp8, "fp8_attention", lambda *_: ("rounded", None))
    q = k = v = torch.empty(0, 2, 16)
    found = [attention(q, k, v, call_of(rows, 4096), 1.0)[0] for rows in (100, 2000)]
    assert found == ["exact", "rounded"]


def attention_config() -> AttentionConfig:
    return interpreted.attention_config(4, 2, 16)
