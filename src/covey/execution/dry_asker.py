"""An asker that asks nobody: it draws answers at given selectivities and counts the work.

A plan that runs with it goes the way of a true run: the same batches, stops and stored answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from covey.arrays import Bool, Float64, Int64, distinct, without
from covey.estimate.cost import Lengths
from covey.estimate.dry_result import SampledCall
from covey.estimate.lengths import DocumentLengths
from covey.execution.answers import QueryAnswers
from covey.execution.asking import Ticket, Tickets
from covey.execution.sql_values import log_odds, true_of
from covey.logical.calls import AICall, Reading
from covey.prompts.question import Question, QuestionKind

# Finds stored answers about (n, arity) documents: (n,) bool and (n, width) scores.
Stored = Callable[[Question, Int64], tuple[Bool, Float64]]

# Square roots of primes, whose multiples lie evenly over [0, 1) and independently of one
# another (Kronecker's sequence): few draws are as even as many random ones.
_ROOTS = np.sqrt([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71])
_NONE = np.empty(0, np.int64)
# A margin beyond any threshold but 0 and 1.
_SURE = 700.0


class DryAsker:
    """See `covey.execution.asking.Asking`.

    Args:
        answers: where drawn answers are kept; what is there already is not asked.
        lengths: of the documents.
        selectivities: by index of a call, the share that is drawn TRUE.
        room: tokens whose keys and values can be held at once; None for no bound.
        stored: finds answers of earlier runs, which are not asked again.

    Attributes:
        asked: by index of a call, what it asked.
        peak: most tokens held at once.
    """

    def __init__(
        self,
        answers: QueryAnswers,
        lengths: DocumentLengths,
        selectivities: Mapping[int, float],
        room: int | None,
        stored: Stored | None = None,
    ) -> None:
        self._stored = stored
        self._answers = answers
        self._lengths = lengths
        self._selectivities = selectivities
        self._room = room
        self._questions: dict[Question, int] = {}
        # Documents by ascending ids: anchors computed so far, those with each instruction
        # behind them, and those whose keys and values are held.
        self._computed = _NONE
        self._instructed: dict[object, Int64] = {}
        self._held = _NONE
        self._holding = 0.0
        self._anchors: dict[int, list[Int64]] = {}
        self.asked: dict[int, SampledCall] = {}
        self.peak = 0.0

    def ask(self, call: AICall, documents: Int64) -> None:
        self.submit(call, documents)

    def submit(self, call: AICall, documents: Int64, reads: float = 0.0) -> Tickets:
        """Draw answers at once."""
        table = self._answers.of(call.question)
        found, _ = table.find(documents)
        wanted = self._without_stored(call, documents[~found])
        if len(wanted):
            scores = self._draw(call, wanted)
            table.add(wanted, scores)
            self._count(call, wanted, reads)
        return frozenset()

    def _without_stored(self, call: AICall, wanted: Int64) -> Int64:
        """Take the answers of earlier runs; return what is left to ask."""
        if self._stored is None or not len(wanted):
            return wanted
        found, scores = self._stored(call.question, wanted)
        if not found.any():
            return wanted
        self._answers.of(call.question).add(wanted[found], scores[found])
        asked = self.asked.setdefault(call.index, SampledCall())
        asked.stored += int(found.sum())
        if call.reading is Reading.TRUTH:
            asked.stored_true += int(true_of(call, scores[found]).sum())
        return wanted[~found]

    def done(self, tickets: Tickets) -> bool:
        return True

    def wait(self) -> tuple[Ticket, Int64] | None:
        """There is nothing to wait for."""
        return None

    def reached(self, share: float) -> None:
        """Nothing is shown."""

    def release(self, documents: Int64) -> None:
        freed = np.intersect1d(documents, self._held)
        self._held = without(self._held, freed)
        self._holding -= float(self._lengths.of(freed).sum())

    def capacity(self) -> int | None:
        return self._room

    def check_budget(self) -> None:
        """An estimate has none."""

    def finish(self) -> None:
        """Work out what needs all anchors of a call together."""
        for index, parts in self._anchors.items():
            self.asked[index].shared = self._lengths.shared(np.concatenate(parts))

    def _draw(self, call: AICall, documents: Int64) -> Float64:
        number = self._questions.setdefault(call.question, len(self._questions))
        even = np.full(len(documents), 0.5)
        for column in range(documents.shape[1]):
            root = _ROOTS[(2 * number + column) % len(_ROOTS)]
            even += documents[:, column] * root
        even %= 1.0
        rate = self._selectivities.get(call.index, 0.5)
        if call.question.kind is not QuestionKind.JUDGE:
            return _drawn_labels(call.question, even, rate)
        if call.reading is Reading.TRUTH:
            edge = np.clip(log_odds(call.options.threshold), -_SURE, _SURE)
            margins: Float64 = np.where(even < rate, edge + 1.0, edge - 1.0)
            return margins[:, None]
        if rate in (0.0, 1.0):
            return np.full((len(even), 1), _SURE if rate else -_SURE)
        even = np.clip(even, 1e-9, 1.0 - 1e-9)
        drawn: Float64 = np.log(even) - np.log1p(-even)
        return drawn[:, None]

    def _count(self, call: AICall, wanted: Int64, reads: float) -> None:
        asked = self.asked.setdefault(call.index, SampledCall())
        question = call.question
        asked.prompts += len(wanted)
        if not question.arity:
            return
        column = wanted[:, question.anchor]
        asked.before |= Lengths.of(self._lengths.of(column))
        partners = np.zeros(len(wanted))
        for other in range(question.arity):
            if other != question.anchor:
                partners += self._lengths.of(wanted[:, other])
        asked.partners |= Lengths.of(partners)
        anchors = distinct(column)
        new = without(anchors, self._computed)
        self._computed = np.union1d(self._computed, new)
        self._anchors.setdefault(call.index, []).append(new)
        asked.prefixes |= Lengths.of(self._lengths.of(new))
        # Judgements of one document share their instruction, a join has its own.
        instruction = question.kind if question.arity == 1 else question
        before = self._instructed.get(instruction, _NONE)
        instructed = without(anchors, before)
        self._instructed[instruction] = np.union1d(before, instructed)
        asked.new_instructions += len(without(instructed, new))
        asked.anchors += len(anchors)
        if reads > 0 or question.arity > 1:
            asked.kept = True
            kept = without(anchors, self._held)
            self._held = np.union1d(self._held, kept)
            self._holding += float(self._lengths.of(kept).sum())
            self.peak = max(self.peak, self._holding)


def _drawn_labels(question: Question, even: Float64, rate: float) -> Float64:
    """Scores of labels that are drawn alike often, or all the first or the last."""
    count = len(question.labels)
    at = np.floor(even * count) if 0.0 < rate < 1.0 else np.full(len(even), rate * count)
    chosen = np.minimum(at, count - 1)
    picked = np.arange(count) == chosen[:, None]
    if question.kind is QuestionKind.EACH:
        return np.where(picked, _SURE, -_SURE)
    if question.full:
        return np.where(picked, 0.0, -np.inf)
    return np.stack([chosen, np.zeros(len(even))], axis=1)
