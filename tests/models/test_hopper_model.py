"""A whole model over the Hopper kernels, through Triton's interpreter, in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from covey.kernels.base import AttentionConfig, ForwardBatch
from covey.kernels.hopper.attention_split import DenseLimits
from covey.models.causal_lm import CausalLM, LayerWeights, ModelWeights, Weight, rope_frequencies
from covey.models.spec import ModelSpec, WeightDtype
from kernels import interpreted
from models.batches import make_kv_cache, prompts_batch, random_ids

SPEC = ModelSpec(
    architecture="qwen3",
    layers=2,
    hidden=48,
    heads=4,
    kv_heads=2,
    d_head=16,
    ffn=80,
    vocab=96,
    context=512,
    rope_theta=1e6,
    rope_scaling=None,
    norm_eps=1e-6,
    qk_norm=True,
    tied_head=True,
    bos=None,
    weight_dtype=WeightDtype.FLOAT32,
)


def random_weights() -> ModelWeights:
    draw = torch.Generator().manual_seed(11)

    def matrix(rows: int, columns: int) -> Weight:
        return Weight(torch.randn(rows, columns, generator=draw) * columns**-0.5)

    def norm(width: int) -> torch.Tensor:
        return torch.rand(width, generator=draw) + 0.5

    layers = tuple(
        LayerWeights(
            attention_norm=norm(SPEC.hidden),
            qk_norms=(norm(SPEC.d_head), norm(SPEC.d_head)),
            qkv=matrix(SPEC.q_width + 2 * SPEC.kv_width, SPEC.hidden),
            output=matrix(SPEC.hidden, SPEC.q_width),
            mlp_norm=norm(SPEC.hidden),
            gate_up=matrix(2 * SPEC.ffn, SPEC.hidden),
            down=matrix(SPEC.hidden, SPEC.ffn),
        )
        for _ in range(SPEC.layers)
    )
    table = torch.randn(SPEC.vocab, SPEC.hidden, generator=draw)
    return ModelWeights(table, layers, norm(SPEC.hidden), table)


@pytest.fixture(scope="module")
def models() -> tuple[CausalLM, CausalLM]:
    shape = AttentionConfig(
        SPEC.heads, SPEC.kv_heads, SPEC.d_head, SPEC.norm_eps, rope_frequencies(SPEC)
    )
    limits = DenseLimits(dense_keys=8, dense_rows=4, causal_rows=20)
    weights = random_weights()
    ours, theirs = interpreted.both_kernels(shape, torch.float32, limits)
    return CausalLM(SPEC, weights, ours), CausalLM(SPEC, weights, theirs)


def suffixes(anchor: int, count: int, length: int, slots: tuple[int, int]) -> ForwardBatch:
    """Prompts behind one KV cache span, read at their ends."""
    total = count * length
    ends = np.arange(length, total + 1, length)
    return ForwardBatch(
        tokens=np.array(random_ids(total, SPEC.vocab, 5), dtype=np.int32),
        positions=np.tile(np.arange(anchor, anchor + length), count).astype(np.int32),
        subtree_ends=np.repeat(ends, length).astype(np.int32),
        logits_indices=ends - 1,
        prefix_rows=np.array([[0, total]]),
        prefix_slots=np.array([slots]),
        slot_mapping=np.full(total, -1, dtype=np.int32),
    )


def test_logits_of_whole_prompts_are_the_references(models: tuple[CausalLM, CausalLM]) -> None:
    ours, theirs = models
    batch = prompts_batch([random_ids(n, SPEC.vocab, n) for n in (1, 7, 30, 3)])
    for head_rows in (None, torch.tensor([3, 70])):
        found, expected = ours.logits(batch, head_rows), theirs.logits(batch, head_rows)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_an_anchor_kept_in_the_kv_cache_serves_a_later_batch(
    models: tuple[CausalLM, CausalLM],
) -> None:
    found = []
    for model in models:
        kv_cache = make_kv_cache(SPEC, 60)
        anchor = prompts_batch([random_ids(25, SPEC.vocab, 2)])
        kept = ForwardBatch(
            anchor.tokens,
            anchor.positions,
            anchor.subtree_ends,
            np.empty(0, dtype=np.int64),
            anchor.prefix_rows,
            anchor.prefix_slots,
            np.arange(30, 55, dtype=np.int32),
        )
        model.logits(kept, None, kv_cache)
        found.append(model.logits(suffixes(25, 6, 3, (30, 55)), None, kv_cache))
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=0)
