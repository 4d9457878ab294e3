"""Corpora of the benchmark suite, made once a test run, and a small model for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from covey.arrays import Int64
from models.tiny import make_model
from suite.predicates import literals
from suite.tables import Corpus, make_corpus
from suite.tokens import CorpusTokens
from suite.words import make_tokenizer, write_tokenizer


@cache
def corpus(scale: float) -> Corpus:
    """The corpus of a scale factor, default seed."""
    return make_corpus(scale)


class ConstructedLengths(CorpusTokens):
    """Lengths as the generator planned them, which another test compares with real ones."""

    def lengths(self, source: tuple[str, str]) -> Int64:
        return self.corpus.lengths[source[0]]


def write_checkpoint(folder: Path) -> Path:
    """A small random model that has the suite's tokenizer, as the hub would hold it."""
    make_model("qwen3", tied=True, vocab_size=4_096).save_pretrained(folder)
    write_tokenizer(make_tokenizer(literals()), folder)
    return folder
