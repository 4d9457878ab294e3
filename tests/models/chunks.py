"""Chunks for tests, written out by hand rather than by the packer under test."""

from __future__ import annotations

import numpy as np
import torch

from covey.kernels.base import Chunk, KvLayer
from covey.models.spec import ModelSpec

NO_RANGES = np.empty((0, 2), dtype=np.int64)
NO_ROWS = np.empty(0, dtype=np.int64)


def prompts_chunk(prompts: list[list[int]]) -> Chunk:
    """Whole prompts side by side, nothing shared; each is read at its end."""
    lengths = np.array([len(p) for p in prompts])
    ends = np.cumsum(lengths)
    return Chunk(
        tokens=np.concatenate([np.array(p, dtype=np.int32) for p in prompts]),
        depths=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        exits=np.repeat(ends, lengths).astype(np.int32),
        answers=ends - 1,
        past_rows=NO_RANGES,
        past_slots=NO_RANGES,
        kept_rows=NO_ROWS,
        kept_slots=NO_ROWS,
    )


def make_arena(spec: ModelSpec, slots: int) -> list[KvLayer]:
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
