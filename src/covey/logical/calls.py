"""An AI call, understood: what is asked, of which expressions, read how."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from covey.logical.text_span import TextSpan
from covey.prompts.question import Method, Question, QuestionKind


class Reading(Enum):
    """What a call makes of the model's answer, and its SQL type."""

    TRUTH = "truth"
    SCORE = "score"
    MARGIN = "margin"
    LABEL = "label"
    LABELS = "labels"
    PROBABILITIES = "probabilities"

    @property
    def sql_type(self) -> str:
        return _SQL_TYPES[self]


_SQL_TYPES = {
    Reading.TRUTH: "BOOLEAN",
    Reading.SCORE: "DOUBLE",
    Reading.MARGIN: "DOUBLE",
    Reading.LABEL: "VARCHAR",
    Reading.LABELS: "VARCHAR[]",
    Reading.PROBABILITIES: "MAP(VARCHAR, DOUBLE)",
}


class OnError(Enum):
    """What a row becomes that the model could not answer.

    With VALUE the call gives a struct of value and error, one of which is NULL.
    """

    NULL = "null"
    FAIL = "fail"
    VALUE = "value"


class LongDocuments(Enum):
    """What becomes of a document that is longer than the model's context.

    With ERROR its row fails; TRUNCATE asks about its beginning; SPLIT asks about it part by
    part: AI.IF is TRUE where it is TRUE of any part, AI.SCORE the largest.
    """

    ERROR = "error"
    TRUNCATE = "truncate"
    SPLIT = "split"


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of one call, with their defaults.

    Attributes:
        selectivity: the hint of the share of TRUE, in [0, 1].
        threshold: P(TRUE) above which AI.IF is TRUE, and above which a label applies that is
            asked for itself; None is one half. Of a choice between labels the probability
            that the best must reach, lest it be `fallback`; None is any.
        on_error: what a failed row becomes.
        max_error_ratio: largest share of failed prompts that the query survives.
        long_documents: what becomes of documents that are longer than the context.
        fallback: the label that says that none of the others applies, if there is one.
        top_k: labels that are given, best first; None for one, or for all probabilities.
        labelled: whether the calibration that was learned from labelled rows is wanted.
    """

    selectivity: float | None = None
    threshold: float | None = None
    on_error: OnError = OnError.NULL
    max_error_ratio: float | None = None
    long_documents: LongDocuments = LongDocuments.ERROR
    fallback: str | None = None
    top_k: int | None = None
    labelled: bool = False


@dataclass(frozen=True, slots=True)
class AICall:
    """One call in the text of a query.

    Attributes:
        index: 0, 1, 2 … in the order in which calls end in the text, so that a call in
            another's argument has the smaller index.
        name: the function, as messages call it.
        reading: what it makes of the answer.
        question: what is asked; equal questions over equal documents are asked once.
        arguments: spans of the document expressions in the user's text, in the order
            of the placeholders.
        span: the whole call in the user's text.
        name_span: the function's name in the user's text.
        same_as: index of the first call that is written alike.
        shares: index of the call whose UDFs it uses: DuckDB must see one function in
            `GROUP BY f(x)` and `SELECT f(t.x)`, which it knows to be the same.
        prefix: of its UDFs' names.
        constant: whether its documents depend on no column, so that DuckDB would look
            it up while it binds.
        options: how it is asked.
    """

    index: int
    name: str
    reading: Reading
    question: Question
    arguments: tuple[TextSpan, ...]
    span: TextSpan
    name_span: TextSpan
    same_as: int
    shares: int
    prefix: str
    constant: bool
    options: CallOptions

    @property
    def sql_type(self) -> str:
        """The SQL type of what the call gives."""
        value = self.reading.sql_type
        if self.options.on_error is OnError.VALUE:
            return f'STRUCT("value" {value}, error VARCHAR)'
        return value

    @property
    def note(self) -> str | None:
        """How its labels are found, where that is not plain from the call."""
        asked = self.question
        if asked.kind is QuestionKind.EACH:
            return f"one TRUE or FALSE for each of {len(asked.labels)} labels"
        if asked.kind is not QuestionKind.CLASSIFY:
            return None
        if asked.method is Method.LETTERS:
            return "by letters, another prompt: its labels may differ from those of trie and steps"
        if asked.full:
            return "by trie: the probabilities of all labels in one pass"
        if asked.method is None:
            return "by trie or by steps, whichever takes fewer tokens: both find the same label"
        return f"by {'trie' if asked.method is Method.TRIE else 'steps'}, as the query says"

    @property
    def text_udf(self) -> str:
        """The SQL function that looks up its answers by the texts of its documents."""
        return f"{self.prefix}_{self.shares}"

    @property
    def row_udf(self) -> str:
        """The SQL function that looks up its answers by row ids of loaded sources."""
        return f"{self.prefix}_rows_{self.index}"


class CallPlaces:
    """Finds the calls of one text by where they stand."""

    def __init__(self, calls: Iterable[AICall]) -> None:
        self._calls = sorted(calls, key=lambda call: call.span)
        self._starts = [call.span[0] for call in self._calls]
        self._spans = {call.span: call for call in self._calls}
        self._name_ends = {call.name_span[1] for call in self._calls}

    def inside(self, span: TextSpan) -> frozenset[int]:
        """The indexes of the calls inside a span."""
        first, last = bisect_left(self._starts, span[0]), bisect_left(self._starts, span[1])
        return frozenset(c.index for c in self._calls[first:last] if c.span[1] <= span[1])

    def at(self, span: TextSpan) -> AICall | None:
        """The call that a span is the whole of."""
        return self._spans.get(span)

    def named_before(self, place: int) -> bool:
        """Whether the name of a call ends at a place."""
        return place in self._name_ends
