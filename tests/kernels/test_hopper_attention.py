"""Packed tree attention, and the whole Hopper path, against the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from covey.kernels.base import Activation, AttentionConfig, ForwardBatch, KvLayer, Weight
from covey.kernels.hopper.attention_split import DenseLimits
from covey.kernels.hopper.launch import padded
from kernels import interpreted
from kernels.forests import forest, random_forest, some_rows

SMALL = DenseLimits(dense_keys=6, dense_rows=4, causal_rows=10)
NEVER = DenseLimits(dense_keys=10**9, dense_rows=1, causal_rows=10**9)


def attend_both(
    shape: AttentionConfig,
    batch: ForwardBatch,
    rows: np.ndarray | None,
    limits: DenseLimits,
    dtype: torch.dtype,
) -> float:
    """Largest error of our attention beside the reference in float32."""
    torch.manual_seed(len(batch))
    ours, _ = interpreted.both_kernels(shape, dtype, limits)
    _, theirs = interpreted.both_kernels(shape, torch.float32)
    width = (shape.heads + 2 * shape.kv_heads) * shape.d_head
    # As a product with nothing to multiply.
    qkv, same = torch.randn(len(batch), width).to(dtype), torch.eye(width)
    slots = torch.randn(2, 64, shape.kv_heads, shape.d_head).to(dtype)
    norms = None
    if shape.heads != shape.kv_heads:
        norms = torch.rand(shape.d_head) + 0.5, torch.rand(shape.d_head) + 0.5
    outs = []
    for kernels, kind in ((theirs, torch.float32), (ours, dtype)):
        plan, kv_cache = kernels.plan(batch, rows), KvLayer(*slots.to(kind))
        own = None if norms is None else (norms[0].to(kind), norms[1].to(kind))
        x, weight = Activation(qkv.to(kind)), Weight(same.to(kind))
        q, k, v = kernels.qkv(x, weight, own, plan, kv_cache)
        outs.append(kernels.attend(q, k, v, plan, kv_cache).values)
    expected, found = outs
    return float((found.float() - expected).abs().max())


@pytest.mark.parametrize("limits", [SMALL, NEVER], ids=["dense", "packed"])
@pytest.mark.parametrize("seed", range(6))
def test_attention_is_the_reference_over_random_forests(seed: int, limits: DenseLimits) -> None:
    rng = np.random.default_rng(seed)
    heads, kv_heads, d_head = [(4, 1, 16), (8, 2, 16), (9, 3, 32), (2, 2, 16)][seed % 4]
    batch = random_forest(rng, int(rng.integers(1, 70)), [2.0, 9.0][seed % 2], kv_cache=60)
    rows = some_rows(rng, batch, 0.3) if seed % 3 == 2 else None
    shape = interpreted.attention_config(heads, kv_heads, d_head)
    assert attend_both(shape, batch, rows, limits, torch.float32) < 1e-5


def test_half_precision_keeps_its_own_rounding() -> None:
    batch = random_forest(np.random.default_rng(9), 50, 5.0, kv_cache=60)
    error = attend_both(interpreted.attention_config(8, 2, 16), batch, None, SMALL, torch.float16)
    assert error < 4e-3


def test_a_row_without_a_part_is_not_touched_by_its_garbage() -> None:
    """Rows between the sequences of a dense call hold NaN in the stand-in."""
    parents = [-1 if i in (0, 3, 20) else i - 1 for i in range(24)]
    batch = forest(parents, [(3, 20, 0, 30)])
    shape = interpreted.attention_config(4, 2, 16)
    assert attend_both(shape, batch, None, SMALL, torch.float32) < 1e-5


@pytest.mark.parametrize("count", [1, 5])
def test_quantised_heads_carry_a_scale_each(count: int) -> None:
    from covey.kernels.hopper.packed_attention import packed_attention

    shape = interpreted.attention_config(4, 2, 128)
    ours, theirs = interpreted.both_kernels(shape, torch.float32)
    torch.manual_seed(3)
    batch = forest([i - 1 for i in range(count)], [])
    q, k, v = torch.randn(count, 4, 128), torch.randn(count, 2, 128), torch.randn(count, 2, 128)
    found = packed_attention(
        q,
        k,
        v,
        None,
        ours.plan(batch).tiles,
        [],
        scale=shape.scale,
        out_dtype=torch.float32,
        quantised=True,
    )
    expected = theirs.attend(q, k, v, theirs.plan(batch), None).values
    assert found.scales is not None and found.scales.stride() == (1, padded(count))
    largest = expected.view(count, 4, 128).abs().amax(2)
    torch.testing.assert_close(found.scales, largest / 448, rtol=1e-5, atol=0)
    widened = found.values * found.scales.repeat_interleave(128, 1)
    torch.testing.assert_close(widened, expected, rtol=0, atol=1e-5)
