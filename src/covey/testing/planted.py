"""A stand-in for a model whose answers a function gives: no tensors, real counters."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import numpy as np

from covey.arrays import Float64, Int64
from covey.engine.base import Answers, Counters, PromptBatch
from covey.errors import ModelError
from covey.estimate.profile import ModelProfile, QuestionLengths
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind

Answer = Callable[[str, tuple[str, ...]], float | None]
LabelAnswer = Callable[[str, tuple[str, ...], tuple[str, ...]], int | Sequence[float] | None]

# Answers are given back in pieces, as an engine does after each batch.
PROMPTS_A_BATCH = 1024
CAPACITY = 4_000_000
_HALF = re.compile("[\ud800-\udfff]")
# What needs no closer look.
_NUMBERS = {float, int, type(None)}


class PlantedModel:
    """A model that answers as a function says.

    Runs the whole planner and executor and reports the counters of a real engine. A
    token is four bytes of UTF-8. It has no leaning, so that calibration => 'prior' changes
    nothing; examples, descriptions and methods are not shown to the functions.

        con = covey.connect(model=PlantedModel(lambda question, documents: 0.9))

    Args:
        answer: (question, documents) -> P(TRUE) in [0, 1], or None for a prompt that
            fails. `question` is the template as written in the query, `documents` the
            texts in argument order.
        label: (question, labels, documents) -> index of the right label, or a weight for
            each, or None, for AI.CLASSIFY. Weights are probabilities up to a factor; where
            each label is asked for itself they are its P(TRUE), and an index is the one label
            that applies. `question` is "" for a classification without a task text.
        fingerprint: names what the functions do; with it their answers are kept in the
            answer store. Without, they are not: a function may change between two runs.
        context: the longest prompt in tokens, longer ones fail; None is no limit.

    Attributes:
        calls: every prompt asked so far, as (question, documents).
    """

    name = "planted"
    kinds = frozenset(QuestionKind)

    def __init__(
        self,
        answer: Answer,
        label: LabelAnswer | None = None,
        *,
        fingerprint: str | None = None,
        context: int | None = None,
    ) -> None:
        self.context = context
        self._answer = answer
        self._label = label
        self.fingerprint = fingerprint
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def open(self) -> Self:
        """Nothing to load."""
        return self

    def profile(self) -> ModelProfile:
        """Lengths in its own tokens; it does no work that takes time."""
        return ModelProfile(
            _PlantedMeasure(), capacity=CAPACITY, shares=False, fingerprint=self.fingerprint
        )

    def session(self, documents: DocumentStore) -> PlantedSession:
        """Open a session; see `covey.engine.base.Engine`."""
        return PlantedSession(self, documents)

    def shrink(self) -> str | None:
        """It needs no memory of a device."""
        return None

    def scores(self, question: Question, documents: Sequence[tuple[str, ...]]) -> Float64:
        """The scores of some prompts: (n, question.width) float64, NaN where one fails."""
        if question.kind is QuestionKind.JUDGE:
            margins = _logits(self._probabilities(question.template, documents))
            if question.calibration is not None:
                margins = question.calibration.line(margins)
            return margins[:, None]
        scores = np.full((len(documents), question.width), np.nan)
        for row, texts in enumerate(documents):
            self.calls.append((question.template, texts))
            found = self._labels(question, texts)
            if found is not None:
                scores[row] = found
        return scores

    def _probabilities(
        self, template: str, documents: Sequence[tuple[str, ...]]
    ) -> list[float | None]:
        # A million prompts come by here.
        answer, note = self._answer, self.calls.append
        found = []
        for texts in documents:
            note((template, texts))
            found.append(answer(template, texts))
        return found

    def _labels(self, question: Question, documents: tuple[str, ...]) -> list[float] | None:
        """The scores of one classification; None where it fails."""
        if self._label is None:
            raise ModelError(
                "This PlantedModel has no labels. Give it some: PlantedModel(answer, label)."
            )
        labels = tuple(label.text for label in question.labels)
        chosen = self._label(question.template, labels, documents)
        if chosen is None:
            return None
        if isinstance(chosen, int | np.integer):
            if not 0 <= chosen < len(labels):
                raise ModelError(_wrong_label(chosen, len(labels)))
            weights = [float(i == chosen) for i in range(len(labels))]
        elif isinstance(chosen, str):
            raise ModelError(_wrong_label(chosen, len(labels)))
        else:
            weights = list(chosen)
        if question.kind is QuestionKind.EACH and None not in weights:
            return list(_logits(weights))
        if len(weights) != len(labels) or min(weights) < 0.0 or not sum(weights) > 0.0:
            raise ModelError(_wrong_label(chosen, len(labels)))
        found = [math.log(w / sum(weights)) if w else -math.inf for w in weights]
        best = max(found)
        return found if question.full else [float(found.index(best)), best]


def _wrong_label(chosen: object, count: int) -> str:
    return (
        f"The label function gave {repr(chosen)[:60]}, but there are labels 0 to {count - 1}:"
        f" give one of these numbers, or {count} weights."
    )


def _logits(answers: Sequence[float | None]) -> Float64:
    """The log-odds of some probabilities, NaN for None."""
    if not set(map(type, answers)) <= _NUMBERS:
        for answer in answers:
            if not isinstance(answer, int | float | np.number | None):
                raise ModelError(_no_probability(answer))
    p = np.array(answers, np.float64)
    wrong = np.flatnonzero(~((p >= 0.0) & (p <= 1.0)))
    for row in wrong.tolist():
        if answers[row] is not None:
            raise ModelError(_no_probability(answers[row]))
    with np.errstate(divide="ignore"):
        margins: Float64 = np.log(p) - np.log1p(-p)
    return margins


def _no_probability(answer: object) -> str:
    return f"The answer function gave {answer!r}, which is no number from 0 to 1."


class PlantedSession:
    """See `covey.engine.base.EngineSession`."""

    def __init__(self, model: PlantedModel, documents: DocumentStore) -> None:
        self._model = model
        self._documents = documents
        self._queue: list[tuple[int, PromptBatch]] = []
        self._tickets = 0
        self._seen = np.zeros(0, np.bool_)
        self.counters = Counters()

    @property
    def capacity(self) -> int:
        """No keys, no values, no limit but the size of a batch that is good to handle."""
        return CAPACITY

    def release(self, documents: Int64) -> None:
        """Nothing is held."""

    def lengths(self, question: Question, documents: Int64) -> tuple[Int64, int | None]:
        """See `EngineSession.lengths`."""
        context = self._model.context
        room = None if context is None else context - _tokens(question.template)
        return (self._documents.sizes(documents) + 3) // 4, room

    def submit(self, batch: PromptBatch) -> int:
        self._tickets += 1
        self._queue.append((self._tickets, batch))
        return self._tickets

    def run(self) -> Iterator[Answers]:
        while self._queue:
            ticket, batch = self._queue.pop(0)
            for start in range(0, len(batch.documents), PROMPTS_A_BATCH):
                yield self._answer(ticket, batch, start)

    def _answer(self, ticket: int, batch: PromptBatch, start: int) -> Answers:
        started = time.perf_counter()
        piece = batch.documents[start : start + PROMPTS_A_BATCH]
        flat = iter(self._documents.texts(piece.ravel()))
        tuples = list(zip(*[flat] * batch.question.arity, strict=True)) if piece.size else [()]
        errors = self._too_long(batch.question, piece, start) | _broken(tuples, start)
        if errors:
            scores = np.full((len(piece), batch.question.width), np.nan)
            fitting = [i for i in range(len(piece)) if start + i not in errors]
            scores[fitting] = self._model.scores(batch.question, [tuples[i] for i in fitting])
        else:
            scores = self._model.scores(batch.question, tuples)
        for i in np.flatnonzero(np.isnan(scores[:, 0])).tolist():
            errors.setdefault(start + i, "the planted answer is None")
        self._count(batch.question, piece, len(errors))
        self.counters.host_seconds += time.perf_counter() - started
        return Answers(ticket, np.arange(start, start + len(piece)), scores, errors)

    def _too_long(self, question: Question, piece: Int64, start: int) -> dict[int, str]:
        """Position in the batch -> why the prompt does not fit."""
        tokens, room = self.lengths(question, piece)
        if room is None:
            return {}
        sums = tokens.sum(axis=1)
        return {
            start + i: f"the documents are {sums[i]:,} tokens long, {room:,} fit"
            for i in np.flatnonzero(sums > room).tolist()
        }

    def _count(self, question: Question, piece: Int64, failed: int) -> None:
        counters = self.counters
        counters.prompts += len(piece)
        counters.failed += failed
        counters.batches += 1
        tail = _tokens(question.template)
        lengths = (self._documents.sizes(piece) + 3) // 4
        counters.requested_tokens += int(lengths.sum()) + tail * len(piece)
        if question.arity:
            # The anchor is computed once, whatever asks; what follows it once a prompt.
            ids, first = np.unique(piece[:, question.anchor], return_index=True)
            more = len(self._documents) - len(self._seen)
            if more > 0:
                self._seen = np.append(self._seen, np.zeros(max(more, len(self._seen)), np.bool_))
            first = first[~self._seen[ids]]
            self._seen[ids] = True
            anchors = int(lengths[first, question.anchor].sum())
            rest = int(np.delete(lengths, question.anchor, axis=1).sum())
        else:
            anchors = rest = 0
        fresh = anchors + rest + tail * len(piece)
        counters.fresh_tokens += fresh
        counters.minimum_tokens += fresh
        counters.batch_capacity += fresh

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.clear()


def _broken(tuples: Sequence[tuple[str, ...]], start: int) -> dict[int, str]:
    """Position in the batch -> why the prompt cannot be read, as a tokenizer would say it."""
    try:
        "".join(map("".join, tuples)).encode()
        return {}
    except UnicodeEncodeError as error:
        reason = f"the text is not valid Unicode: {error.reason}"
        wrong = (i for i, each in enumerate(tuples) if _HALF.search("".join(each)))
        return {start + i: reason for i in wrong}


class _PlantedMeasure:
    """See `covey.estimate.profile.Measure`."""

    exact = True

    def question(self, question: Question) -> QuestionLengths:
        tokens = _tokens(question.template)
        return QuestionLengths(0, 0, tokens, 1, tokens)

    def documents(self, texts: Sequence[str]) -> Int64:
        return np.array([_tokens(text) for text in texts], dtype=np.int64)


def _tokens(text: str) -> int:
    return (len(text.encode(errors="replace")) + 3) // 4
