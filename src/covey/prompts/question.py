"""What is asked of the model about a tuple of documents."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from covey.arrays import Float64

Margins = TypeVar("Margins", float, Float64)


class QuestionKind(Enum):
    """How the answer is read. AI.IF, AI.SCORE and AI.MARGIN are all `JUDGE`: one margin.

    CLASSIFY chooses one label; EACH asks TRUE or FALSE label by label.
    """

    JUDGE = "judge"
    CLASSIFY = "classify"
    EACH = "each"


class Method(Enum):
    """How a label is found; see `covey.engine.labels` for what its score is.

    TRIE and STEPWISE give the same labels and log-probabilities at different cost. LETTERS
    puts another prompt, with a letter before each label, so that its answers may differ.
    """

    TRIE = "trie"
    STEPWISE = "stepwise"
    LETTERS = "letters"


@dataclass(frozen=True, slots=True)
class Label:
    """One class of AI.CLASSIFY; `description` is shown to the model beside it."""

    text: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt that is shown with its answer, before the one that is asked.

    Attributes:
        documents: its texts, in the order of the question's documents.
        answer: TRUE, FALSE or a label.
        category: the label that is asked about, where it is asked label by label.
    """

    documents: tuple[str, ...]
    answer: str
    category: str | None = None


@dataclass(frozen=True, slots=True)
class Calibration:
    """A correction of scores, after which they are another answer.

    The scores of content-free documents are subtracted first, where `prior` says so (Zhao
    et al. 2021, "Calibrate before use"); a margin m then becomes slope * m + intercept
    (Platt 1999).

    Attributes:
        prior: whether content-free scores are subtracted.
        slope, intercept: of margins; 1 and 0 change nothing.
    """

    prior: bool = False
    slope: float = 1.0
    intercept: float = 0.0

    def line(self, margin: Margins) -> Margins:
        """A margin without content-free leanings, or an array of them, corrected."""
        return self.slope * margin + self.intercept


# Documents that say nothing: what a question gives for them is its own leaning.
CONTENT_FREE = ("N/A", "", "[MASK]")

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BRACES = re.compile(r"\{\{|\}\}|\{(\d+)\}")


@dataclass(frozen=True, slots=True)
class Question:
    """One question, apart from the documents it is asked about.

    Two calls with equal questions over equal documents are one prompt and are
    computed once, wherever they stand in the query. It holds all that the answer depends
    on besides the documents, the model and the layout.

    Attributes:
        kind: how the answer is read.
        template: the text as written in the query: `{0}`, `{1}` … mark documents,
            `{{` and `}}` are literal braces, any other brace is plain text. "" for a
            classification that has no task text.
        arity: number of documents, 0 for a prompt that names no column.
        labels: the classes of a classification, empty for `JUDGE`.
        anchor: index of the document that comes first in the prompt.
        method: how the label is found; None lets cost choose between TRIE and STEPWISE.
        full: whether the score of every label is wanted, or of the best alone.
        examples: shown before every prompt.
        calibration: how scores are corrected, None not at all.
    """

    kind: QuestionKind
    template: str
    arity: int
    labels: tuple[Label, ...] = ()
    anchor: int = 0
    method: Method | None = None
    full: bool = False
    examples: tuple[Example, ...] = ()
    calibration: Calibration | None = None

    @property
    def width(self) -> int:
        """Numbers in one answer.

        1 margin for a judgement; one margin a label for EACH; one log-probability a label
        for a classification that is `full`, otherwise 2: the number of the best label and
        its log-probability.
        """
        if self.kind is QuestionKind.JUDGE:
            return 1
        return len(self.labels) if self.full or self.kind is QuestionKind.EACH else 2

    @property
    def content_free(self) -> Question | None:
        """What `CONTENT_FREE` documents are asked for it; None where they are not."""
        if self.calibration is None or not self.calibration.prior:
            return None
        return replace(self, calibration=None, full=True)


def parse_template(text: str) -> list[str | int]:
    """Split a question's template into literal texts and placeholder indexes, in order.

    Neighbouring literals are joined and empty ones left out.

    >>> parse_template("Is {0} a {{json}} object?")
    ['Is ', 0, ' a {json} object?']
    """
    pieces: list[str | int] = []
    literal: list[str] = []
    end = 0
    for match in _BRACES.finditer(text):
        literal.append(text[end : match.start()])
        end = match.end()
        if match[1] is None:
            literal.append(match[0][0])
        else:
            pieces += ["".join(literal), int(match[1])]
            literal = []
    pieces.append("".join(literal) + text[end:])
    return [piece for piece in pieces if piece != ""]


def escape_braces(literal: str) -> str:
    """The template text that parses back to this literal, whatever braces it holds.

    >>> parse_template(escape_braces("a {0} b"))
    ['a {0} b']
    """
    return literal.replace("{", "{{").replace("}", "}}")
