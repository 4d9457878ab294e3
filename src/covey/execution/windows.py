"""Documents longer than the model's context: cut to what fits, or asked window by window.

A window is an ordinary document, so that its answer is shared and stored like any other.
What the windows of a prompt are answered becomes one answer when it is read: a judgement
is TRUE where it is TRUE of any window, a score is the largest, and a class is that of the
window that is surest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from covey.arrays import Float64, Int64, distinct_rows
from covey.execution.sql_values import true_of
from covey.logical.calls import AICall, LongDocuments, Reading
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind

# Tokens of some documents, (n, arity), and how many a prompt has room for; None is no limit.
Lengths = Callable[[Question, Int64], tuple[Int64, int | None]]

# Tokens do not spread evenly over a text: a window is cut somewhat shorter than its share.
_SHARE = 0.9
# A window is cut behind a blank, where there is one in its last part.
_LAST_PART = 0.2
# With less room than this beside the other documents, nothing is cut.
LEAST_TOKENS = 16


class Windows:
    """The prompts of one question that were cut, in one of two ways.

    Attributes:
        of: by a prompt that was cut, the (n, arity) prompts in its place.
        made: prompts that were cut, and windows made of them.
    """

    def __init__(self) -> None:
        self.of: dict[tuple[int, ...], Int64] = {}
        self.made = (0, 0)

    def cut(
        self, call: AICall, prompts: Int64, documents: DocumentStore, lengths: Lengths
    ) -> Int64:
        """Prompts, (n, arity) ids, with the windows of those that are too long in their place."""
        tokens, room = lengths(call.question, prompts)
        if room is None:
            return prompts
        long = np.flatnonzero(tokens.sum(axis=1) > room).tolist()
        if not long:
            return prompts
        parts = [np.delete(prompts, long, axis=0)]
        for row in long:
            prompt = tuple(prompts[row].tolist())
            if prompt not in self.of:
                found = _windows(call, prompts[row], tokens[row], room, documents, lengths)
                if found is None:
                    parts.append(prompts[row : row + 1])
                    continue
                self.of[prompt] = found
                self.made = self.made[0] + 1, self.made[1] + len(found)
            parts.append(self.of[prompt])
        return distinct_rows(np.concatenate(parts))[0]


def _windows(
    call: AICall,
    prompt: Int64,
    tokens: Int64,
    room: int,
    documents: DocumentStore,
    lengths: Lengths,
) -> Int64 | None:
    """The prompts in place of one, its longest document cut; None where that is no help."""
    place = int(tokens.argmax())
    left = room - int(tokens.sum() - tokens[place])
    if left < LEAST_TOKENS:
        return None
    (text,) = documents.texts(prompt[place : place + 1])
    size = max(int(len(text) * left / int(tokens[place]) * _SHARE), 1)
    first = call.options.long_documents is LongDocuments.TRUNCATE
    pieces = [text[:size]] if first else _cut(text, size)
    while True:
        made = np.repeat(prompt[None], len(pieces), axis=0)
        made[:, place] = documents.add(pieces)
        over = lengths(call.question, made)[0].sum(axis=1) > room
        if not over.any():
            return made
        smaller: list[str] = []
        for piece, too_long in zip(pieces, over.tolist(), strict=True):
            halves = _cut(piece, max(len(piece) // 2, 1)) if too_long else [piece]
            smaller += halves[:1] if first else halves
        if smaller == pieces:
            return None
        pieces = smaller


def _cut(text: str, size: int) -> list[str]:
    """A text in pieces of at most `size` characters."""
    pieces = []
    while len(text) > size:
        blank = max(text.rfind(" ", 0, size), text.rfind("\n", 0, size)) + 1
        end = blank if blank > size * (1 - _LAST_PART) else size
        pieces.append(text[:end])
        text = text[end:]
    return [*pieces, text]


def together(call: AICall, scores: Float64) -> Float64:
    """One answer of those to (windows, width) prompts; NaN where it is not known.

    A window that failed leaves open what its answer would have been, unless another one
    has made AI.IF TRUE already.
    """
    failed = np.isnan(scores[:, 0])
    if call.question.kind is QuestionKind.CLASSIFY and not call.question.full:
        nothing: Float64 = np.full(scores.shape[1], np.nan)
        return nothing if failed.any() else scores[scores[:, 1].argmax()]
    best: Float64 = np.where(np.isnan(scores), -np.inf, scores).max(axis=0)
    sure = call.reading is Reading.TRUTH and bool(true_of(call, best[None])[0])
    if failed.any() and not sure:
        best = np.full(scores.shape[1], np.nan)
    return best
