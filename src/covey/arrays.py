"""Names of NumPy array types, and what NumPy lacks for runs of rows and for sorted sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]
UInt64 = npt.NDArray[np.uint64]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


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


def distinct(values: Int64) -> Int64:
    """The different values, ascending: np.unique hashes integers, which takes ten times longer."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def distinct_rows(rows: Int64) -> tuple[Int64, Int64]:
    """The different rows of (n, k) numbers, ascending, and (n,) which of them each is; k >= 0."""
    count = len(rows)
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(count)
    ordered = rows[order]
    new = np.ones(count, dtype=np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    number = np.empty(count, dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return ordered[new], number


def without(values: Int64, others: Int64) -> Int64:
    """The values that are not among some others, both ascending."""
    if not len(others):
        return values
    at = np.searchsorted(others, values)
    at[at == len(others)] = 0
    left: Int64 = values[others[at] != values]
    return left
