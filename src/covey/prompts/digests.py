"""Texts by content: 128-bit digests, and an index of them in flat arrays.

A Python dictionary of a million digests takes 140 MB, the index 20.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from covey.arrays import Int32, Int64, UInt64

DIGEST_BYTES = 16
UNKNOWN = -1


def digests(pieces: Iterable[bytes | memoryview]) -> UInt64:
    """BLAKE2b digests, (n, 2) uint64.

    Two texts of one digest would share an answer, and documents may be hostile: the hash
    is one for which nobody can make such texts.
    """
    hashed = b"".join(
        [hashlib.blake2b(piece, digest_size=DIGEST_BYTES).digest() for piece in pieces]
    )
    return np.frombuffer(hashed, dtype="<u8").reshape(-1, 2).astype(np.uint64, copy=False)


@dataclass(frozen=True, slots=True)
class _SortedRun:
    """Digests sorted by their first half, with the position each was added at."""

    first: UInt64
    second: UInt64
    places: Int32


class DigestIndex:
    """Positions of digests, counted from 0 in the order in which they were added.

    Sorted runs, each more than twice as long as the next: n digests are merged log n times.
    It belongs to one thread at a time, which whoever holds it sees to.
    """

    def __init__(self) -> None:
        self._runs: list[_SortedRun] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, wanted: UInt64) -> Int64:
        """The position of each of (n, 2) digests, `UNKNOWN` where there is none."""
        places = np.full(len(wanted), UNKNOWN, np.int64)
        # In order, neighbours are found in memory that is at hand.
        left = np.argsort(wanted[:, 0])
        for run in self._runs:
            found = _find(run, wanted[left, 0], wanted[left, 1])
            places[left] = found
            left = left[found == UNKNOWN]
            if not len(left):
                break
        return places

    def add(self, new: UInt64) -> Int64:
        """Add (n, 2) digests, distinct and unknown; return their positions."""
        places = np.arange(self._count, self._count + len(new), dtype=np.int64)
        self._count += len(new)
        runs = [_SortedRun(new[:, 0], new[:, 1], places.astype(np.int32))]
        # All that become one run are merged at once.
        size = len(new)
        while self._runs and len(self._runs[-1].places) <= 2 * size:
            size += len(self._runs[-1].places)
            runs.insert(0, self._runs.pop())
        self._runs.append(_merged(runs))
        return places


def _merged(runs: list[_SortedRun]) -> _SortedRun:
    first = np.concatenate([run.first for run in runs])
    order = np.argsort(first, kind="stable")
    # One column after the other: of a hundred million digests they are gigabytes.
    first = first[order]
    second = np.concatenate([run.second for run in runs])[order]
    return _SortedRun(first, second, np.concatenate([run.places for run in runs])[order])


def _find(run: _SortedRun, first: UInt64, second: UInt64) -> Int64:
    at = np.searchsorted(run.first, first)
    places = np.full(len(first), UNKNOWN, np.int64)
    open_ = np.arange(len(first))
    # Digests that agree in the first half stand side by side: nearly always there is one.
    while len(open_):
        open_ = open_[at[open_] < len(run.first)]
        open_ = open_[run.first[at[open_]] == first[open_]]
        hit = run.second[at[open_]] == second[open_]
        places[open_[hit]] = run.places[at[open_[hit]]]
        open_ = open_[~hit]
        at[open_] += 1
    return places
