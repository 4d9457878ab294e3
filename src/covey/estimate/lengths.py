"""Lengths of a query's documents before it runs: some counted, the others by their bytes."""

from __future__ import annotations

import itertools

import numpy as np

from covey.arrays import Float64, Int64
from covey.estimate.profile import Measure
from covey.prompts.documents import DocumentStore, common_beginning

# Bytes that are tokenised for one estimate: a tenth of a second, and enough for a mean.
MAX_BYTES = 400_000
# Of a longer text its beginning stands for the whole.
MAX_TEXT = 20_000
# Characters compared to find texts that begin alike.
MAX_COMPARED = 20_000_000


class DocumentLengths:
    """How long the documents of a query are, in tokens, and how much they begin alike.

    Args:
        documents: the documents of the query, to which more may be added.
        measure: counts tokens.
        shares: whether the model computes what documents begin alike with once.
    """

    def __init__(self, documents: DocumentStore, measure: Measure, shares: bool) -> None:
        self._shares = shares
        self._documents = documents
        self._measure = measure
        self._lengths: Float64 = np.empty(0, np.float64)
        self._bytes_left = MAX_BYTES
        self._counted_bytes = 0
        self._counted_tokens = 0

    def of(self, ids: Int64) -> Float64:
        """(n,) tokens of some documents."""
        more = len(self._documents) - len(self._lengths)
        if more > 0:
            self._lengths = np.concatenate([self._lengths, np.full(more, np.nan)])
        wanted = np.unique(ids)
        missing = wanted[np.isnan(self._lengths[wanted])]
        if len(missing):
            self._lengths[missing] = self._find(self._documents.texts(missing))
        return self._lengths[ids]

    def _find(self, texts: list[str]) -> Float64:
        sizes = np.array([len(text.encode(errors="replace")) for text in texts], np.int64)
        counted = np.flatnonzero(np.cumsum(np.minimum(sizes, MAX_TEXT)) <= self._bytes_left)
        found = np.full(len(texts), np.nan)
        if len(counted):
            heads = [texts[i][:MAX_TEXT] for i in counted.tolist()]
            tokens = self._measure.documents(heads)
            head_bytes = np.array([len(head.encode(errors="replace")) for head in heads])
            self._bytes_left -= int(head_bytes.sum())
            self._counted_bytes += int(head_bytes.sum())
            self._counted_tokens += int(tokens.sum())
            found[counted] = tokens * (sizes[counted] / np.maximum(head_bytes, 1))
        rest = np.isnan(found)
        found[rest] = sizes[rest] * (self._counted_tokens / max(self._counted_bytes, 1))
        return found

    def shared(self, ids: Int64) -> float:
        """The share of some documents' tokens that begin like another one's.

        What a trie of them saves. Beginnings are compared by characters; the last
        token of a common one is not counted, since what follows may be merged with it.
        """
        if not self._shares:
            return 0.0
        texts, size = [], 0
        for text in self._documents.texts(ids):
            size += len(text)
            if size > MAX_COMPARED:
                break
            texts.append(text)
        texts.sort()
        total = sum(map(len, texts))
        a_token = max(self._counted_bytes, 1) / max(self._counted_tokens, 1)
        common = (common_beginning(a, b) for a, b in itertools.pairwise(texts))
        saved = sum(length - a_token for length in common if length > a_token)
        return saved / total if total else 0.0
