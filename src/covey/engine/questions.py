"""The tokens of a question's prompts: what stands above, between and below its documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.prompts.forest import concatenate
from covey.prompts.forest.ragged import Int64
from covey.prompts.layout import Layout, Role
from covey.prompts.question import Question, QuestionKind
from covey.prompts.tokens import DocumentTokens, Encoder, Int32, Tokens

_PROBES = ("a", "b")


@dataclass(frozen=True, slots=True)
class QuestionTokens:
    """A question's prompts: opening + anchor + frame + suffix.

    Attributes:
        anchor: index of the anchor, None for a question without documents.
        opening: (o,) int32, equal for all questions that have documents.
        frame: (f,) int32, what follows the anchor before anything varies.
        suffix: the pieces behind it: literal tokens, or the index of a partner.
    """

    anchor: int | None
    opening: Int32
    frame: Int32
    suffix: tuple[Int32 | int, ...]

    @property
    def partners(self) -> list[int]:
        """Indices of the documents after the anchor, in prompt order."""
        return [piece for piece in self.suffix if isinstance(piece, int)]

    @property
    def fixed(self) -> int:
        """Tokens of a prompt that are no document's."""
        literal = sum(len(piece) for piece in self.suffix if not isinstance(piece, int))
        return len(self.opening) + len(self.frame) + literal


class QuestionEncoder:
    """Tokenises questions, each literal part by itself.

    Args:
        layout: how prompts are laid out.
        encoder: the model's tokenizer.
        bos: the token every prompt begins with, or None.

    Attributes:
        opening: (o,) int32, the tokens before every anchor.
    """

    def __init__(self, layout: Layout, encoder: Encoder, bos: int | None) -> None:
        self._layout = layout
        self._encoder = encoder
        self._bos = [] if bos is None else [bos]
        probes = [Question(QuestionKind.JUDGE, text, 1) for text in _PROBES]
        parts = layout.parts(probes[0])
        before = [part.text for part in parts if part.role is Role.PREAMBLE]
        self.opening = self._ids(self._bos, *before)
        tails = [self._ids([], layout.parts(probe)[-1].text) for probe in probes]
        # All judgements of one document go on alike behind it: part of what is kept of it.
        self._judged = tails[0][: _common(*tails)]

    def encode(self, question: Question) -> QuestionTokens:
        """The tokens of a question's prompts."""
        parts = self._layout.parts(question)
        if question.arity == 0:
            tail = self._ids([], *(part.text for part in parts))
            return QuestionTokens(None, self._ids(self._bos), self._ids([]), (tail,))
        first = next(i for i, part in enumerate(parts) if part.role is Role.DOCUMENT)
        frame: list[int] = []
        suffix: list[Int32 | int] = []
        for part in parts[first + 1 :]:
            if part.document is not None:
                suffix.append(part.document)
            elif question.arity > 1 and not suffix:
                frame += self._encoder.ids(part.text)
            else:
                suffix.append(self._ids([], part.text))
        if question.arity == 1:
            tail = np.concatenate([piece for piece in suffix if not isinstance(piece, int)])
            shared = min(_common(tail, self._judged), len(tail) - 1)
            frame, suffix = tail[:shared].tolist(), [tail[shared:]]
        return QuestionTokens(question.anchor, self.opening, self._ids(frame), tuple(suffix))

    def _ids(self, ids: list[int], *texts: str) -> Int32:
        found = list(ids)
        for text in texts:
            found += self._encoder.ids(text)
        return np.array(found, dtype=np.int32)


def _common(left: Int32, right: Int32) -> int:
    """Length of the common beginning of two runs."""
    size = min(len(left), len(right))
    differs = left[:size] != right[:size]
    return int(differs.argmax()) if differs.any() else size


def literal(ids: Int32) -> Tokens:
    """A column of one run."""
    return Tokens(ids, np.array([0, len(ids)], dtype=np.int64))


def stem_tokens(asked: QuestionTokens, anchors: Int64, documents: DocumentTokens) -> Tokens:
    """Anchor and frame of each anchor, which must be ensured; (n,) ids give n runs."""
    rows = np.arange(len(anchors), dtype=np.int64)
    taken = documents.take(anchors)
    if not len(asked.frame):
        return taken
    return concatenate([(taken, rows), (literal(asked.frame), np.zeros_like(rows))])


def suffix_tokens(asked: QuestionTokens, partners: Int64, documents: DocumentTokens) -> Tokens:
    """The suffixes of some tuples of partners.

    Args:
        partners: (n, partners) ids, in the order of `asked.partners`; n is 1 where there
            are none.
    """
    rows = np.arange(len(partners), dtype=np.int64)
    parts: list[tuple[Tokens, Int64]] = []
    place = 0
    for piece in asked.suffix:
        if isinstance(piece, int):
            parts.append((documents.take(partners[:, place]), rows))
            place += 1
        else:
            parts.append((literal(piece), np.zeros_like(rows)))
    return concatenate(parts)
