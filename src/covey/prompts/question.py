"""What is asked of the model about a tuple of documents."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class QuestionKind(Enum):
    """How the answer is read. AI.IF, AI.SCORE and AI.MARGIN are all `JUDGE`: one margin."""

    JUDGE = "judge"
    CLASSIFY = "classify"


@dataclass(frozen=True, slots=True)
class Label:
    """One class of AI.CLASSIFY; `description` is shown to the model beside it."""

    text: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One question, apart from the documents it is asked about.

    Two calls with equal questions over equal documents are one prompt and are
    computed once, wherever they stand in the query.

    Attributes:
        kind: how the answer is read.
        template: the text as written in the query: `{0}`, `{1}` … mark documents,
            `{{` and `}}` are literal braces, any other brace is plain text. "" for a
            classification that has no task text.
        arity: number of documents, 0 for a prompt that names no column.
        labels: the classes of a classification, empty for `JUDGE`.
        anchor: index of the document that comes first in the prompt.
    """

    kind: QuestionKind
    template: str
    arity: int
    labels: tuple[Label, ...] = ()
    anchor: int = 0

    @property
    def width(self) -> int:
        """Numbers in one answer: 1 margin, or one log-probability a label."""
        return len(self.labels) if self.kind is QuestionKind.CLASSIFY else 1
