"""Small vectorised pieces for runs of different lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from covey.prompts.tokens import Tokens

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_BLOCK = 1 << 21  # tokens copied at a time by `concatenate`: bounds its index arrays


def offsets_of(lengths: Int64) -> Int64:
    """(n + 1,) int64: where runs of these lengths begin when laid end to end."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(starts: Int64, lengths: Int64) -> Int64:
    """starts[0] … starts[0] + lengths[0] - 1, then the same for 1, 2 …; int64."""
    offsets = offsets_of(lengths)
    out = np.arange(offsets[-1], dtype=np.int64)
    out += np.repeat(starts - offsets[:-1], lengths)
    return out


def concatenate(parts: Sequence[tuple[Tokens, Int64]]) -> Tokens:
    """Prompts from parts: row i is run rows[i] of every part in turn.

    Args:
        parts: pairs of a column and (n,) int64 run numbers in it, n the same for all.
            A literal is a column of one run with zeros as its run numbers.

    Returns:
        A column of n runs, newly allocated; index arrays stay small beside it.
    """
    count = len(parts[0][1])
    lengths = np.zeros(count, dtype=np.int64)
    for column, rows in parts:
        lengths += column.lengths[rows]
    offsets = offsets_of(lengths)
    flat = np.empty(offsets[-1], dtype=np.int32)
    first = 0
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + _BLOCK, side="right")) - 1
        last = min(max(last, first + 1), count)
        at = offsets[first:last].copy()
        for column, rows in parts:
            chosen = rows[first:last]
            size = column.lengths[chosen]
            flat[ranges(at, size)] = column.flat[ranges(column.offsets[chosen], size)]
            at += size
        first = last
    return Tokens(flat, offsets)
