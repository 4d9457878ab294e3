"""The least tokens that a session's prompts need, counted while it runs.

**Definition.** A prompt is the preamble (begin-of-text token and the layout's), its *shared
prefix* (the anchor document and what its question adds before anything varies: the
instruction and first heading of a join, the words with which all judgements begin) and
its *suffix* (partners and cue, or the rest of the question). The minimum is

    the preamble, once
  + the trie of all shared prefixes of the session, once, whatever batch they came in
  + for each batch and shared prefix, the trie of the suffixes asked of it.

Suffixes count per batch because they are dropped at once. A prompt without an anchor counts
in full.
"""

from __future__ import annotations

import numpy as np

from covey.arrays import Int32, Int64, UInt32
from covey.prompts.column import SPILL_BYTES, Column
from covey.prompts.forest import Trie, overlap
from covey.prompts.tokens import gather


class SeenPrefixes:
    """Every shared prefix of a session so far, sorted as a trie sorts its paths.

    Args:
        spill_bytes: see `Column`.
    """

    def __init__(self, spill_bytes: int = SPILL_BYTES) -> None:
        self._column = Column(np.int32, spill_bytes)
        self._starts = np.empty(0, dtype=np.int64)
        self._lengths = np.empty(0, dtype=np.int64)

    def add(self, trie: Trie) -> Int64:
        """Take in the paths of an exact trie.

        Returns:
            (paths,) int64: the prefixes that each path adds to those of all earlier ones.
        """
        flat, starts = trie.column.flat, trie.column.offsets[trie.rows]
        shared = trie.shared.copy()
        place = np.zeros(trie.paths, dtype=np.int64)
        if len(self._starts):
            place = self._places(trie)
            for side in (place - 1, place):
                within = np.flatnonzero((side >= 0) & (side < len(self._starts)))
                known = side[within]
                limit = np.minimum(trie.lengths[within], self._lengths[known])
                both = overlap(
                    (self._column.flat, self._starts[known]), (flat, starts[within]), limit
                )
                shared[within] = np.maximum(shared[within], both)
        added = trie.lengths - shared
        # What adds nothing lies on a path that is known.
        new = np.flatnonzero(added > 0)
        tokens = gather(flat, starts[new], trie.lengths[new])
        first = self._column.append(tokens.flat)
        self._starts = np.insert(self._starts, place[new], first + tokens.offsets[:-1])
        self._lengths = np.insert(self._lengths, place[new], tokens.lengths)
        return added

    def _places(self, trie: Trie) -> Int64:
        """How many known prefixes stand before each path: a binary search of all at once."""
        flat, starts = trie.column.flat, trie.column.offsets[trie.rows]
        low = np.zeros(trie.paths, dtype=np.int64)
        high = np.full(trie.paths, len(self._starts), dtype=np.int64)
        going = np.arange(trie.paths)
        while len(going):
            middle = (low[going] + high[going]) // 2
            ours, theirs = trie.lengths[going], self._lengths[middle]
            limit = np.minimum(ours, theirs)
            at = overlap((self._column.flat, self._starts[middle]), (flat, starts[going]), limit)
            behind = theirs < ours  # where one is the other's beginning, the shorter is first
            differs = np.flatnonzero(at < limit)
            left = self._column.flat[self._starts[middle[differs]] + at[differs]]
            right = flat[starts[going[differs]] + at[differs]]
            behind[differs] = _order(left) < _order(right)
            low[going[behind]] = middle[behind] + 1
            high[going[~behind]] = middle[~behind]
            going = going[low[going] < high[going]]
        return low


def _order(tokens: Int32) -> UInt32:
    """Tokens as numbers in the order of their little-endian bytes; see `build_trie`."""
    return tokens.astype("<u4").byteswap().view(np.uint32)
