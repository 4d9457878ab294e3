"""Pack whole prompts into chunks that compute every shared prefix once.

Prompts in lexicographic order form a trie whose branches are the common prefixes of
neighbours; their tokens in that order, each shared run once, are in depth-first order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from covey.kernels.base import Chunk, Int32, Int64
from covey.prompts.tokens import Tokens

_NO_RANGES = np.empty((0, 2), dtype=np.int64)
_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """A chunk and the prompts that it answers.

    Attributes:
        prompts: (p,) int64, which prompts.
        answers: (p,) int64, for each its place in `chunk.answers`; equal prompts share one.
    """

    chunk: Chunk
    prompts: Int64
    answers: Int64


def sort_prompts(prompts: Tokens) -> tuple[Int64, Int64]:
    """Order prompts by their tokens.

    Returns:
        (n,) int64 order, and (n,) int64 tokens that each shares with the one before it.
    """
    big_endian = prompts.flat.astype(">u4").tobytes()
    bounds = (4 * prompts.offsets).tolist()
    keys = [big_endian[bounds[i] : bounds[i + 1]] for i in range(len(prompts))]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    shared = np.zeros(len(order), dtype=np.int64)
    for place in range(1, len(order)):
        before, this = prompts.run(order[place - 1]), prompts.run(order[place])
        length = min(len(before), len(this))
        differs = before[:length] != this[:length]
        shared[place] = int(differs.argmax()) if differs.any() else length
    return order, shared


def pack(prompts: Tokens, order: Int64, shared: Int64, budget: int) -> Iterator[PackedChunk]:
    """Cut sorted prompts into chunks of at most `budget` new tokens.

    A prompt longer than the budget has a chunk of its own. A prefix that two chunks
    share is computed in both.
    """
    lengths = prompts.lengths[order]
    start = 0
    while start < len(order):
        tokens = int(lengths[start])
        stop = start + 1
        while stop < len(order) and tokens + lengths[stop] - shared[stop] <= budget:
            tokens += int(lengths[stop] - shared[stop])
            stop += 1
        skip = shared[start:stop].copy()
        skip[0] = 0
        yield _chunk(prompts, order[start:stop], skip)
        start = stop


def _chunk(prompts: Tokens, members: Int64, skip: Int64) -> PackedChunk:
    """The chunk of some sorted prompts; `skip` tokens of each are its predecessor's."""
    runs = [prompts.run(m)[s:] for m, s in zip(members.tolist(), skip.tolist(), strict=True)]
    sizes = np.array([len(run) for run in runs], dtype=np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    depths = np.arange(total, dtype=np.int64) - np.repeat(ends - sizes - skip, sizes)
    rows = ends - 1  # an equal prompt adds no token, so it ends where its predecessor does
    answers, places = np.unique(rows, return_inverse=True)
    chunk = Chunk(
        tokens=np.concatenate(runs).astype(np.int32, copy=False),
        depths=depths.astype(np.int32),
        exits=_exits(ends - sizes, sizes, skip),
        answers=answers.astype(np.int64),
        past_rows=_NO_RANGES,
        past_slots=_NO_RANGES,
        kept_rows=_NO_ROWS,
        kept_slots=_NO_ROWS,
    )
    return PackedChunk(chunk, members, places.astype(np.int64).reshape(-1))


def _exits(starts: Int64, sizes: Int64, skip: Int64) -> Int32:
    """One past the subtree of every row, from where runs start and how deep they branch."""
    total = int(sizes.sum())
    exits = np.full(total, total, dtype=np.int32)
    open_runs: list[tuple[int, int, int]] = []  # first row, its depth, rows still open
    for start, size, depth in zip(starts.tolist(), sizes.tolist(), skip.tolist(), strict=True):
        while open_runs:
            first, above, count = open_runs.pop()
            left = min(count, max(0, depth - above))
            exits[first + left : first + count] = start
            if left:
                open_runs.append((first, above, left))
                break
        if size:
            open_runs.append((start, depth, size))
    return exits
