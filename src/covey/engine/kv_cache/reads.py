"""How often each document is still to be read as an anchor."""

from __future__ import annotations

import numpy as np

from covey.arrays import Float64, Int64
from covey.engine.kv_cache.radix_tree import RadixTree

# A read in the queue is certain and comes first; one to be expected comes later, if at all.
# Where slots are short, what counts is that the former always wins.
_QUEUED = 4.0


class DocumentReads:
    """Per document: batches in the queue that read it, and later ones to be expected.

    Args:
        tree: told of what is expected of the documents that it keeps.
    """

    def __init__(self, tree: RadixTree) -> None:
        self._tree = tree
        self._queued = np.zeros(0, dtype=np.int32)
        self._later = np.zeros(0, dtype=np.float64)

    def queue(self, documents: Int64, later: float) -> None:
        """One more batch is queued that reads some distinct documents, `later` more follow."""
        if len(documents):
            self._grow(int(documents.max()) + 1)
            self._queued[documents] += 1
            self._later[documents] = later
            self._tell(documents)

    def expect(self, documents: Int64, later: float) -> None:
        """No batch beyond those in the queue but `later` more will read some documents."""
        self._later[documents] = later
        self._tell(documents)

    def drop(self, documents: Int64) -> None:
        """A batch of the queue has read some distinct documents, or never will."""
        self._queued[documents] -= 1

    def release(self, documents: Int64) -> None:
        """Nothing but what is queued will read some documents."""
        self._later[documents[(documents >= 0) & (documents < len(self._later))]] = 0.0
        self._tell(documents)

    def queued(self, document: int) -> int:
        """Batches in the queue that read a document."""
        return int(self._queued[document]) if document < len(self._queued) else 0

    def expected(self, documents: Int64) -> Float64:
        """(n,) float64: reads expected of each document, one in the queue counting more."""
        found: Float64 = _QUEUED * self._queued[documents] + self._later[documents]
        return found

    def beside(self, documents: Int64) -> Float64:
        """(n,) float64: as `expected`, one of the batches in the queue left out."""
        found: Float64 = self.expected(documents) - _QUEUED
        return found

    def _tell(self, documents: Int64) -> None:
        if not self._tree.documents:
            return
        kept = [document for document in documents.tolist() if self._tree.keeps(document)]
        expected = self.expected(np.array(kept, dtype=np.int64)).tolist()
        for document, reads in zip(kept, expected, strict=True):
            self._tree.expect(document, None, reads)

    def _grow(self, count: int) -> None:
        if count > len(self._queued):
            more = max(count, 2 * len(self._queued)) - len(self._queued)
            self._queued = np.concatenate([self._queued, np.zeros(more, dtype=np.int32)])
            self._later = np.concatenate([self._later, np.zeros(more)])
