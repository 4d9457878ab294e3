"""The reference kernels against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from covey.kernels.base import Activation, AttentionConfig, ForwardBatch, KvLayer, Weight
from covey.kernels.reference import ReferenceKernels

CPU = torch.device("cpu")
HEADS, KV_HEADS, D_HEAD = 4, 2, 8


def make_kernels(*, quantised: bool = False) -> ReferenceKernels:
    frequencies = torch.tensor([1.0, 0.5, 0.25, 0.125])
    config = AttentionConfig(HEADS, KV_HEADS, D_HEAD, 1e-5, frequencies)
    return ReferenceKernels(config, CPU, torch.float32, quantised)


def make_batch() -> ForwardBatch:
    """Two prompts behind one KV cache span of 3, the second with a branch, and one alone."""
    subtree_ends = [2, 2, 6, 6, 5, 6, 8, 8]
    return ForwardBatch(
        tokens=np.zeros(8, dtype=np.int32),
        positions=np.array([3, 4, 3, 4, 5, 5, 0, 1], dtype=np.int32),
        subtree_ends=np.array(subtree_ends, dtype=np.int32),
        logits_indices=np.array([1, 4, 5, 7]),
        prefix_rows=np.array([[0, 6]]),
        prefix_slots=np.array([[10, 13]]),
        slot_mapping=np.array([-1] * 6 + [1, 0], dtype=np.int32),
    )


def seen_rows(batch: ForwardBatch, row: int) -> list[int]:
    return [k for k in range(row + 1) if row < batch.subtree_ends[k]]


def test_tree_attention_is_softmax_over_the_span_and_the_ancestors() -> None:
    torch.manual_seed(1)
    kernels, batch = make_kernels(), make_batch()
    q = torch.randn(8, HEADS, D_HEAD)
    k, v = torch.randn(8, KV_HEADS, D_HEAD), torch.randn(8, KV_HEADS, D_HEAD)
    kv_cache = KvLayer(torch.randn(20, KV_HEADS, D_HEAD), torch.randn(20, KV_HEADS, D_HEAD))
    found = kernels.attend(q, k, v, kernels.plan(batch), kv_cache).values
    for row in range(8):
        rows = seen_rows(batch, row)
        prefix = range(10, 13) if row < 6 else range(0)
        for head in range(HEADS):
            group = head // (HEADS // KV_HEADS)
            keys = torch.cat([kv_cache.k[list(prefix), group], k[rows, group]])
            values = torch.cat([kv_cache.v[list(prefix), group], v[rows, group]])
            weights = (keys @ q[row, head] / math.sqrt(D_HEAD)).softmax(0)
            ours = found[row, head * D_HEAD : (head + 1) * D_HEAD]
            torch.testing.assert_close(ours, weights @ values, atol=1e-6, rtol=1e-5)


def test_attention_of_some_rows_is_those_rows_of_the_whole() -> None:
    torch.manual_seed(2)
    kernels, batch = make_kernels(), make_batch()
    q = torch.randn(8, HEADS, D_HEAD)
    k, v = torch.randn(8, KV_HEADS, D_HEAD), torch.randn(8, KV_HEADS, D_HEAD)
    kv_cache = KvLayer(torch.randn(20, KV_HEADS, D_HEAD), torch.randn(20, KV_HEADS, D_HEAD))
    whole = kernels.attend(q, k, v, kernels.plan(batch), kv_cache).values
    plan = kernels.plan(batch, batch.logits_indices)
    some = kernels.attend(q[batch.logits_indices], k, v, plan, kv_cache).values
    torch.testing.assert_close(some, whole[batch.logits_indices], atol=1e-6, rtol=1e-5)


def test_rotation_turns_each_pair_by_depth_times_frequency_and_stores_it() -> None:
    torch.manual_seed(3)
    kernels, batch = make_kernels(), make_batch()
    q, k = torch.randn(8, HEADS, D_HEAD), torch.randn(8, KV_HEADS, D_HEAD)
    v = torch.randn(8, KV_HEADS, D_HEAD)
    kv_cache = KvLayer(torch.zeros(20, KV_HEADS, D_HEAD), torch.zeros(20, KV_HEADS, D_HEAD))
    before = k.clone()
    _, turned = kernels.rotate_and_store(q, k, None, v, kernels.plan(batch), kv_cache)
    for row in range(8):
        for pair in range(D_HEAD // 2):
            angle = int(batch.positions[row]) * 0.5**pair
            x, y = before[row, :, pair], before[row, :, pair + D_HEAD // 2]
            expected = x * math.cos(angle) - y * math.sin(angle)
            torch.testing.assert_close(turned[row, :, pair], expected)
            expected = x * math.sin(angle) + y * math.cos(angle)
            torch.testing.assert_close(turned[row, :, pair + D_HEAD // 2], expected)
    assert torch.equal(kv_cache.k[[1, 0]], turned[6:8]) and torch.equal(kv_cache.v[[1, 0]], v[6:8])
    assert not kv_cache.k[2:].any()


def test_fp8_inputs_are_scaled_a_group_of_128_and_weights_a_block() -> None:
    torch.manual_seed(4)
    kernels = make_kernels(quantised=True)
    x = torch.randn(5, 256) * torch.tensor([1e-3, 1.0, 50.0, 1.0, 0.0])[:, None]
    _, activation = kernels.norm(x.clone(), None, torch.ones(256))
    assert activation.values.dtype is torch.float8_e4m3fn
    assert activation.scales is not None and activation.scales.shape == (5, 2)
    normed = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5)
    group_max = normed.view(5, 2, 128).abs().amax(2)
    torch.testing.assert_close(activation.scales, group_max.clamp(min=1e-10) / 448)
    weight = Weight(torch.randn(256, 256).to(torch.float8_e4m3fn), torch.rand(2, 2) + 0.5)
    assert weight.scales is not None
    wide = weight.values.float().view(2, 128, 2, 128) * weight.scales[:, None, :, None]
    steps = activation.values.float().view(5, 2, 128) * activation.scales[:, :, None]
    expected = steps.view(5, 256) @ wide.view(256, 256).T
    torch.testing.assert_close(kernels.linear(activation, weight), expected)


@pytest.mark.parametrize("start", [0, 128])
def test_rows_of_a_scaled_weight_carry_their_scales(start: int) -> None:
    torch.manual_seed(5)
    kernels = make_kernels(quantised=True)
    weight = Weight(torch.randn(256, 128).to(torch.float8_e4m3fn), torch.rand(2, 1))
    x = Activation(torch.randn(3, 128).to(torch.float8_e4m3fn), torch.rand(3, 1))
    whole = kernels.linear(x, weight)
    part = kernels.linear(x, weight.rows(start, start + 128))
    torch.testing.assert_close(part, whole[:, start : start + 128])
