"""From batches of document ids to the tokens of their prompts, without a loop over rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.engine.base import PromptBatch
from covey.prompts.layout import Layout
from covey.prompts.question import Question
from covey.prompts.tokens import DocumentTokens, Encoder, Int32, Int64, Tokens, gather


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """The parts of a question's prompts, literal text already in tokens.

    Attributes:
        literals: the tokens of all literal parts, one behind the other.
        spans: for each part its (start, length) in `literals`, or None for a document.
        documents: for each part the index of its document, or None for literal text.
    """

    literals: Int32
    spans: tuple[tuple[int, int] | None, ...]
    documents: tuple[int | None, ...]

    @property
    def fixed(self) -> int:
        """Tokens of a prompt that are no document's."""
        return sum(span[1] for span in self.spans if span is not None)


def question_tokens(
    question: Question, layout: Layout, encoder: Encoder, bos: int | None
) -> QuestionTokens:
    """Tokenise the literal parts of a question's prompts, each by itself."""
    literals = [] if bos is None else [bos]
    spans: list[tuple[int, int] | None] = [] if bos is None else [(0, 1)]
    documents: list[int | None] = [None] * len(spans)
    for part in layout.parts(question):
        documents.append(part.document)
        if part.document is None:
            ids = encoder.ids(part.text)
            spans.append((len(literals), len(ids)))
            literals.extend(ids)
        else:
            spans.append(None)
    return QuestionTokens(np.array(literals, dtype=np.int32), tuple(spans), tuple(documents))


def prompt_lengths(asked: QuestionTokens, batch: PromptBatch, documents: DocumentTokens) -> Int64:
    """Tokens of every prompt of a batch, (n,) int64; its documents must be ensured."""
    of_documents = documents.lengths(batch.documents).sum(axis=1, dtype=np.int64)
    return np.asarray(of_documents + asked.fixed, dtype=np.int64)


def prompt_tokens(
    asked: QuestionTokens, batch: PromptBatch, rows: Int64, documents: DocumentTokens
) -> Tokens:
    """The whole prompts of some rows of a batch, in the order given."""
    ids = batch.documents[rows]
    parts = len(asked.spans)
    starts = np.empty((len(rows), parts), dtype=np.int64)
    lengths = np.empty((len(rows), parts), dtype=np.int64)
    for place, (span, document) in enumerate(zip(asked.spans, asked.documents, strict=True)):
        if span is not None:
            starts[:, place], lengths[:, place] = span
        elif document is not None:
            column = ids[:, document]
            starts[:, place] = documents.starts(column) + len(asked.literals)
            lengths[:, place] = documents.lengths(column)
    flat = np.concatenate([asked.literals, documents.flat])
    runs = gather(flat, starts.ravel(), lengths.ravel())
    return Tokens(runs.flat, runs.offsets[::parts])
