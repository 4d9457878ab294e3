"""The token ids of a corpus and of what a layout puts around its documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from covey.arrays import Int32, Int64
from covey.models.tokenizer import TextEncoder
from covey.prompts.layout import RAW_V1, Layout, Role
from covey.prompts.tokens import Tokens
from suite.predicates import PREDICATES, Predicate, literals
from suite.tables import Corpus
from suite.words import make_tokenizer


def suite_encoder() -> TextEncoder:
    """The suite's own tokenizer; see `words`."""
    return TextEncoder(make_tokenizer(literals()))


@dataclass(frozen=True, slots=True)
class Pieces:
    """The literal tokens of a predicate's prompts, each run int32.

    A filter or classification of one document is preamble, document, tail; a join is
    preamble, anchor, instruction, heading, partner, tail.
    """

    preamble: Int32
    instruction: Int32
    heading: Int32
    tail: Int32

    @property
    def pair_tokens(self) -> int:
        """What a pair costs beside its partner."""
        return len(self.heading) + len(self.tail)


class CorpusTokens:
    """The tokens of a corpus, each column encoded when it is first needed.

    Args:
        corpus: the tables.
        encoder: the tokenizer; the suite's own where None.
        bos: the token that the model puts before every prompt, or None.
        layout: what stands around documents.
    """

    def __init__(
        self,
        corpus: Corpus,
        encoder: TextEncoder | None = None,
        bos: int | None = None,
        layout: Layout = RAW_V1,
    ) -> None:
        self.corpus = corpus
        self.encoder = encoder or suite_encoder()
        self._bos = [] if bos is None else [bos]
        self._layout = layout
        self._columns: dict[tuple[str, str], Tokens] = {}

    def column(self, source: tuple[str, str]) -> Tokens:
        """The tokens of a table's column, one run a row."""
        if source not in self._columns:
            table, column = source
            texts = self.corpus.tables[table][column].to_pylist()
            self._columns[source] = Tokens(*self.encoder.encode(texts))
        return self._columns[source]

    def lengths(self, source: tuple[str, str]) -> Int64:
        """(rows,) tokens of each row of a table's column."""
        return self.column(source).lengths

    def pieces(self, predicate: Predicate) -> Pieces:
        """The literal tokens around a predicate's documents."""
        found: dict[Role, list[int]] = {role: [] for role in Role}
        for part in self._layout.parts(predicate.question):
            found[part.role] += self.encoder.ids(part.text)
        found[Role.PREAMBLE] = self._bos + found[Role.PREAMBLE]
        roles = (Role.PREAMBLE, Role.INSTRUCTION, Role.HEADING, Role.TAIL)
        return Pieces(*(np.array(found[role], dtype=np.int32) for role in roles))

    @cached_property
    def judged_alike(self) -> int:
        """Tokens with which every judgement goes on behind its one document."""
        tails = [
            self.pieces(p).tail
            for p in PREDICATES.values()
            if not p.labels and len(p.documents) == 1
        ]
        shortest = min(len(tail) for tail in tails)
        block = np.stack([tail[:shortest] for tail in tails])
        alike = (block == block[0]).all(0)
        return shortest if alike.all() else int(alike.argmin())
