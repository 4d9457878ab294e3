"""Batches for tests, written out by hand rather than by the packer under test."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from covey.kernels.base import ForwardBatch, KvLayer
from covey.models.spec import ModelSpec
from covey.prompts.forest import ask_all, build_trie, pack
from covey.prompts.tokens import Tokens

NO_RANGES = np.empty((0, 2), dtype=np.int64)


def prompts_batch(prompts: list[list[int]]) -> ForwardBatch:
    """Whole prompts side by side, nothing shared; each is read at its end."""
    lengths = np.array([len(p) for p in prompts])
    ends = np.cumsum(lengths)
    return ForwardBatch(
        tokens=np.concatenate([np.array(p, dtype=np.int32) for p in prompts]),
        positions=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        subtree_ends=np.repeat(ends, lengths).astype(np.int32),
        logits_indices=ends - 1,
        prefix_rows=NO_RANGES,
        prefix_slots=NO_RANGES,
        slot_mapping=np.full(ends[-1], -1, dtype=np.int32),
    )


def tree_batches(
    prompts: list[list[int]], size: int
) -> Iterator[tuple[ForwardBatch, list[tuple[int, int]]]]:
    """Batches of `size` prompts as a tree, and (prompt, answer) for each of them."""
    for start in range(0, len(prompts), size):
        some = prompts[start : start + size]
        offsets = np.cumsum([0, *map(len, some)], dtype=np.int64)
        tree = build_trie(Tokens(np.concatenate(some).astype(np.int32), offsets))
        stem = build_trie(Tokens(np.empty(0, dtype=np.int32), np.zeros(2, dtype=np.int64)))
        forest = ask_all(stem, tree)
        packed = pack(forest, np.array([0]), np.array([forest.size]))
        batch = ForwardBatch(
            tokens=packed.tokens,
            positions=packed.positions,
            subtree_ends=packed.subtree_ends,
            logits_indices=packed.logits_indices,
            prefix_rows=NO_RANGES,
            prefix_slots=NO_RANGES,
            slot_mapping=np.full(len(packed.tokens), -1, dtype=np.int32),
        )
        rows = np.arange(len(some))
        prompt = forest.prompt_of(np.zeros_like(rows), rows)
        place = np.searchsorted(packed.prompts, prompt)
        yield batch, list(zip((start + rows).tolist(), place.tolist(), strict=True))


def make_kv_cache(spec: ModelSpec, slots: int) -> list[KvLayer]:
    """A layer's keys and values each; NaN shows any slot read before it was written."""
    shape = (slots, spec.kv_heads, spec.d_head)
    return [
        KvLayer(torch.full(shape, float("nan")), torch.full(shape, float("nan")))
        for _ in range(spec.layers)
    ]


def random_ids(count: int, vocab: int, seed: int) -> list[int]:
    """Seeded token ids."""
    ids: list[int] = np.random.default_rng(seed).integers(0, vocab, count).tolist()
    return ids
