"""Corpora of the benchmark suite, made once a test run."""

from __future__ import annotations

from functools import cache

from covey.prompts.tokens import Int64
from suite.tables import Corpus, make_corpus
from suite.tokens import CorpusTokens


@cache
def corpus(scale: float) -> Corpus:
    """The corpus of a scale factor, default seed."""
    return make_corpus(scale)


class ConstructedLengths(CorpusTokens):
    """Lengths as the generator planned them, which another test compares with real ones."""

    def lengths(self, source: tuple[str, str]) -> Int64:
        return self.corpus.lengths[source[0]]
