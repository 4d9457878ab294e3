"""Cut a large batch so that its first documents run while the others are tokenised.

Documents that begin alike stay together: sorted by their first characters, a batch is cut
only between neighbours that have next to nothing in common, because what two slices share
is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from covey.arrays import Int64
from covey.prompts.documents import common_beginning

_KEY = 64  # first characters that documents are sorted by
_ALIKE = 16  # most characters that neighbours on both sides of a cut have in common
_TOKEN = 4  # characters of a token, roughly


def is_large(sizes: Int64, first_tokens: int) -> bool:
    """Whether documents of some sizes in bytes may make more than one slice."""
    return int(sizes.sum()) > 2 * first_tokens * _TOKEN


def slices(texts: Sequence[str], first_tokens: int) -> list[Int64]:
    """Cut documents into slices, each about twice as large as the one before.

    Args:
        texts: the documents.
        first_tokens: size of the first slice.

    Returns:
        For each slice the positions of its documents, ascending; one slice where the
        documents are few or all alike.
    """
    keys = [text[:_KEY] for text in texts]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    sizes = np.cumsum([len(texts[i]) for i in order]) if order else np.empty(0, dtype=np.int64)
    wanted = first_tokens * _TOKEN
    cuts, start = [0], 0
    while len(order) and sizes[-1] - start > 2 * wanted:
        low, high = np.searchsorted(sizes, (start + wanted, start + 2 * wanted)).tolist()
        cut = _best_cut(keys, order, low, high)
        if cut is not None:
            cuts.append(cut)
        start = int(sizes[high - 1 if cut is None else cut - 1])
        wanted *= 2
    cuts.append(len(order))
    found = np.array(order, dtype=np.int64)
    return [np.sort(found[low:high]) for low, high in pairwise(cuts)]


def _best_cut(keys: Sequence[str], order: Sequence[int], low: int, high: int) -> int | None:
    """The place in `order` before which to cut; None where all neighbours are alike."""
    best, least = None, _ALIKE + 1
    for place in range(max(low, 1), high):
        shared = common_beginning(keys[order[place - 1]], keys[order[place]])
        if shared < least:
            best, least = place, shared
    return best
