"""Cut tree attention into dense blocks; numpy only.

A block is a run of rows and the keys they see. The ancestors of any row of [a, b) that
lie before `a` are ancestors of row `a` too, because subtrees are intervals. So the keys
of a block are the path of its first row, the block itself, and the arena spans over it;
one mask tells them apart, and no key outside is ever loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from covey.kernels.base import Chunk, Int32, Int64

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Block:
    """One dense attention call.

    Attributes:
        queries: half-open range in the list of asking rows.
        keys: (k,) int64 chunk rows, or a half-open range of them.
        past: arena slots seen by every query, half-open ranges.
        mask: (queries, keys) True where seen; None where all is, or where `causal`.
        causal: queries and keys are the same rows and each sees those up to itself.
    """

    queries: tuple[int, int]
    keys: Int64 | tuple[int, int]
    past: tuple[tuple[int, int], ...]
    mask: Mask | None
    causal: bool


def attention_blocks(chunk: Chunk, rows: Int64 | None, limit: int) -> list[Block]:
    """Blocks that cover every asking row once.

    Args:
        chunk: the tokens and what they see.
        rows: (q,) increasing chunk rows that ask, None for all.
        limit: most rows in a masked block; unbranched prompts are one block at any length.
    """
    asking = np.arange(len(chunk), dtype=np.int64) if rows is None else rows
    cuts = np.unique(np.concatenate([[0, len(chunk)], chunk.past_rows.ravel()]))
    blocks = []
    for low, high in pairwise(cuts.tolist()):
        over = (chunk.past_rows[:, 0] <= low) & (chunk.past_rows[:, 1] >= high)
        past = tuple((int(a), int(b)) for a, b in chunk.past_slots[over])
        for start, stop in _pieces(chunk.exits, (low, high), limit, bool(past)):
            first, last = np.searchsorted(asking, (start, stop)).tolist()
            if first < last:
                blocks.append(_block(chunk.exits, asking, (first, last), (start, stop), past))
    return blocks


def _pieces(
    exits: Int32, region: tuple[int, int], limit: int, has_past: bool
) -> list[tuple[int, int]]:
    """Cut a region into whole unbranched prompts and runs of at most `limit` rows."""
    pieces: list[tuple[int, int]] = []
    start, high = region
    while start < high:
        stop = min(int(exits[start]), high)
        whole = not has_past and not (exits[:start] > start).any()
        if whole and _unbranched(exits, start, stop):
            pieces.append((start, stop))
        else:
            edges = [*range(start, stop, limit), stop]
            pieces.extend(pairwise(edges))
        start = stop
    return pieces


def _unbranched(exits: Int32, start: int, stop: int) -> bool:
    return bool((exits[start:stop] >= stop).all())


def _block(
    exits: Int32,
    asking: Int64,
    queries: tuple[int, int],
    rows: tuple[int, int],
    past: tuple[tuple[int, int], ...],
) -> Block:
    start, stop = rows
    asked = asking[queries[0] : queries[1]]
    last = int(asked[-1]) + 1
    path = np.flatnonzero(exits[:start] > start)
    alone = not len(path)
    if alone and not past and len(asked) == stop - start and _unbranched(exits, start, stop):
        return Block(queries, rows, past, None, True)
    own = np.arange(start, last, dtype=np.int64)
    keys = np.concatenate([path, own])
    mask = (keys <= asked[:, None]) & (asked[:, None] < exits[keys])
    return Block(
        queries,
        (start, last) if alone else keys,
        past,
        None if mask.all() else mask,
        False,
    )
