"""Attention in two parts is attention: the identity that the kernels stand on, in float64.

The shared ancestors are one dense call that gives an output and a log-sum-exp; the packed
rest starts its running softmax from them (maximum = log-sum-exp, sum = 1, output as it is).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from covey.kernels.base import ForwardBatch
from kernels.forests import random_forest

D_HEAD, KV_CACHE = 8, 40


def seen(batch: ForwardBatch) -> tuple[Tensor, Tensor]:
    """(rows, slots) and (rows, rows) of True where a row sees a slot, and a row."""
    rows = np.arange(len(batch))
    prefix = np.zeros((len(batch), KV_CACHE), dtype=bool)
    for (first, last), (low, high) in zip(batch.prefix_rows, batch.prefix_slots, strict=True):
        prefix[first:last, low:high] = True
    own = (rows <= rows[:, None]) & (rows[:, None] < batch.subtree_ends)
    return torch.from_numpy(prefix), torch.from_numpy(own)


def dense_part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp; zero and minus infinity where nothing is seen."""
    scores = (q @ k.T).masked_fill(~mask, float("-inf"))
    lse = scores.logsumexp(1)
    weights = torch.where(mask, (scores - lse[:, None]).exp(), 0.0)
    return weights.nan_to_num() @ v, lse


def packed_rest(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, start: tuple[Tensor, Tensor], tile: int
) -> Tensor:
    """The running softmax over tiles of keys, started from the dense part."""
    out, top = start
    total = torch.where(top.isinf(), 0.0, 1.0).to(q.dtype)
    for at in range(0, len(k), tile):
        part = slice(at, at + tile)
        scores = (q @ k[part].T).masked_fill(~mask[:, part], float("-inf"))
        higher = torch.maximum(top, scores.amax(1))
        # Where nothing was seen so far both are minus infinity, and there is nothing to scale.
        scale = torch.where(top.isinf(), 0.0, (top - higher).exp())
        weights = torch.where(mask[:, part], (scores - higher[:, None]).exp(), 0.0)
        out = out * (scale * total)[:, None] + weights @ v[part]
        total = total * scale + weights.sum(1)
        out, top = out / total.clamp(min=1e-300)[:, None], higher
    return out


@pytest.mark.parametrize("seed", range(12))
def test_the_rest_started_from_the_ancestors_part_is_one_masked_softmax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = random_forest(rng, 40, [2.0, 9.0][seed % 2], KV_CACHE, spans=seed % 4)
    prefix, own = seen(batch)
    torch.manual_seed(seed)
    draw = torch.float64
    q = 3 * torch.randn(len(batch), D_HEAD, dtype=draw)
    k, v = (torch.randn(KV_CACHE + len(batch), D_HEAD, dtype=draw) for _ in range(2))
    whole = dense_part(q, k, v, torch.cat([prefix, own], 1))[0]
    first = dense_part(q, k[:KV_CACHE], v[:KV_CACHE], prefix)
    for tile in (1, 7, len(batch)):
        found = packed_rest(q, k[KV_CACHE:], v[KV_CACHE:], own, first, tile)
        torch.testing.assert_close(found, whole, atol=1e-12, rtol=1e-12)
