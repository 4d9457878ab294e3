"""Cut tree attention into dense blocks; numpy only.

The ancestors of any row of [a, b) that lie before `a` are ancestors of row `a` too,
because subtrees are intervals. So the keys of a block [a, b) are the path of its first
row, the block itself, and the KV cache spans over it, and no key outside is ever loaded.

Depth-first order falls into runs, in each of which a row is the child of the row before
it. A long run is a causal call over its path and itself; the queries of a short path
are asked again, which costs less than a mask. Short runs share a block and a mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from covey.arrays import Bool, Int32, Int64
from covey.kernels.base import ForwardBatch

_LONG_RUN = 16  # rows from which a call of its own is cheaper than a share of a mask


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """One dense attention call.

    Attributes:
        queries: half-open range in the list of asking rows.
        keys: (k,) int64 batch rows, or a half-open range of them.
        prefix: KV cache slots seen by every query, half-open ranges.
        mask: (queries, keys) True where seen; None where all is, or where `causal`.
        causal: the queries are the last rows of `keys`, and each sees those up to itself.
        lead: where causal, the keys before the first query, which the call asks too.
    """

    queries: tuple[int, int]
    keys: Int64 | tuple[int, int]
    prefix: tuple[tuple[int, int], ...]
    mask: Bool | None
    causal: bool
    lead: int


def attention_blocks(batch: ForwardBatch, rows: Int64 | None, limit: int) -> list[AttentionBlock]:
    """Blocks that cover every asking row once.

    Args:
        batch: the tokens and what they see.
        rows: (q,) increasing batch rows that ask, None for all.
        limit: most rows in a masked block; long runs are one block at any length.
    """
    asking = np.arange(len(batch), dtype=np.int64) if rows is None else rows
    cuts = np.unique(np.concatenate([[0, len(batch)], batch.prefix_rows.ravel()]))
    blocks = []
    for low, high in pairwise(cuts.tolist()):
        over = (batch.prefix_rows[:, 0] <= low) & (batch.prefix_rows[:, 1] >= high)
        prefix = tuple((int(a), int(b)) for a, b in batch.prefix_slots[over])
        for start, stop, run in _pieces(batch.subtree_ends, (low, high), limit, bool(prefix)):
            first, last = np.searchsorted(asking, (start, stop)).tolist()
            if first == last:
                continue
            path = np.flatnonzero(batch.subtree_ends[:start] > start)
            # A lead is asked again, so it must be among the asking rows.
            if run and last - first == stop - start and (rows is None or not len(path)):
                keys = _joined(path, start, stop)
                blocks.append(AttentionBlock((first, last), keys, (), None, True, len(path)))
            else:
                asked = asking[first:last]
                blocks.append(
                    _masked(batch.subtree_ends, asked, (first, last), path, start, prefix)
                )
    return blocks


def _pieces(
    subtree_ends: Int32, region: tuple[int, int], limit: int, has_prefix: bool
) -> list[tuple[int, int, bool]]:
    """Cut a region into long runs (True) and into other pieces of at most `limit` rows."""
    low, high = region
    rows = np.arange(low + 1, high)
    starts = [low, *rows[subtree_ends[low : high - 1] <= rows].tolist(), high]
    pieces: list[tuple[int, int, bool]] = []
    rest = low
    for start, stop in pairwise(starts):
        path = int((subtree_ends[:start] > start).sum())
        if not has_prefix and stop - start >= max(_LONG_RUN, path):
            pieces.extend(_cut(rest, start, limit))
            pieces.append((start, stop, True))
            rest = stop
    pieces.extend(_cut(rest, high, limit))
    return pieces


def _cut(start: int, stop: int, limit: int) -> list[tuple[int, int, bool]]:
    edges = [*range(start, stop, limit), stop]
    return [(a, b, False) for a, b in pairwise(edges)]


def _masked(
    subtree_ends: Int32,
    asked: Int64,
    queries: tuple[int, int],
    path: Int64,
    start: int,
    prefix: tuple[tuple[int, int], ...],
) -> AttentionBlock:
    """The block of some rows from `start` on, with a mask unless each sees all keys."""
    last = int(asked[-1]) + 1
    keys = np.concatenate([path, np.arange(start, last, dtype=np.int64)])
    mask = (keys <= asked[:, None]) & (asked[:, None] < subtree_ends[keys])
    return AttentionBlock(
        queries, _joined(path, start, last), prefix, None if mask.all() else mask, False, 0
    )


def _joined(path: Int64, start: int, stop: int) -> Int64 | tuple[int, int]:
    """A path and the rows behind it; a range where they are contiguous."""
    if not len(path):
        return start, stop
    if path[0] == start - len(path):
        return int(path[0]), stop
    return np.concatenate([path, np.arange(start, stop, dtype=np.int64)])
