"""Batches on their way through a session, and what they wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np

from covey.arrays import Float64, Int64
from covey.engine.base import PromptBatch
from covey.engine.pairs import Pairs
from covey.engine.questions import QuestionTokens
from covey.engine.scores import Branches, RowValues, Stepper, Values
from covey.prompts.question import Question


@dataclass(frozen=True, slots=True)
class QueuedPart:
    """Some of a batch's pairs, and when their documents are tokenised (None: they are)."""

    pairs: Pairs
    tokenised: Future[None] | None


@dataclass(eq=False)
class QueuedBatch:
    """A batch, or a step of one, that the scheduler packs.

    Attributes:
        ticket: of the batch; None for content-free documents, whose answers nobody gets.
        batch: the whole batch.
        asked: its question.
        pairs: the rows that are asked.
        nodes: (rows,) int64, the node that each is asked in a step; None for all probes, or
            for node 0 where more steps follow.
        known: what earlier steps found, in the order of the rows; None before the first.
        parts: its pairs in the order in which they are packed.
        values: where the answers of a row with several come together.
        left: answers that have not come back.
    """

    ticket: int | None
    batch: PromptBatch
    asked: QuestionTokens
    pairs: Pairs
    nodes: Int64 | None = None
    known: Branches | None = None
    parts: list[QueuedPart] = field(default_factory=list)
    values: RowValues = field(init=False)
    stepper: Stepper | None = None
    left: int = 0

    def __post_init__(self) -> None:
        self.values = RowValues(1 if self.asked.probes is None else len(self.asked.probes))
        if self.asked.stepwise and self.nodes is None:
            self.nodes = np.zeros(len(self.pairs.rows), dtype=np.int64)

    @property
    def question(self) -> Question:
        return self.batch.question

    @property
    def answers(self) -> int:
        """Answers that each row waits for."""
        return 1 if self.nodes is not None or self.asked.probes is None else len(self.asked.probes)

    @property
    def reads(self) -> float:
        """How often its anchors are expected to be read afterwards."""
        return self.batch.reads + (1.0 if self.asked.stepwise else 0.0)

    def step(self, keys: Int64, values: Values, prior: Float64 | None) -> tuple[Branches, Int64]:
        """Read nodes of some rows.

        Args:
            keys: (n,) int64, row * nodes + node.
            values: the logits of the nodes' options.
            prior: is subtracted from the labels' scores.

        Returns:
            what is known of the rows now, and (n,) the node to read next, -1 for none.
        """
        if self.asked.tree is None:
            raise ValueError("only a classification goes step by step")
        if self.stepper is None:
            self.stepper = Stepper(self.asked.tree, prior)
        order = np.argsort(keys)
        rows, nodes = np.divmod(keys[order], self.asked.tree.nodes)
        if self.known is None:
            known = self.stepper.begin(rows)
        else:
            known = self.known.some(np.searchsorted(self.known.rows, rows))
        return known, self.stepper.read(known, nodes, values.take(order))

    def following(self, pairs: Pairs, nodes: Int64, known: Branches) -> QueuedBatch:
        """The next step of some rows."""
        return replace(self, pairs=pairs, nodes=nodes, known=known, parts=[])


class Priors:
    """The scores of content-free documents, by question, and the work that waits for them."""

    def __init__(self) -> None:
        self._found: dict[Question, Float64] = {}
        self._parts: dict[Question, list[Float64]] = {}

    def unknown(self, question: Question) -> Question | None:
        """The question to ask content-free documents, where that has not been done."""
        plain = question.content_free
        if plain is None or plain in self._parts:
            return None
        self._parts[plain] = []
        return plain

    def add(self, plain: Question, scores: Float64, expected: int) -> None:
        """Keep scores of content-free documents; NaN where one failed."""
        parts = self._parts[plain]
        parts.append(scores)
        if sum(map(len, parts)) == expected:
            scores = np.concatenate(parts)
            good = scores[~np.isnan(scores[:, 0])]
            self._found[plain] = good.mean(axis=0) if len(good) else scores[0]

    def of(self, question: Question) -> Float64 | None:
        """(width,) float64, what to subtract from the scores of a question, if anything."""
        plain = question.content_free
        return None if plain is None else self._found.get(plain)

    def failed(self, question: Question) -> bool:
        """Whether no content-free document could be asked."""
        prior = self.of(question)
        return prior is not None and bool(np.isnan(prior[0]))

    def ready(self, queue: deque[QueuedBatch]) -> Iterator[QueuedBatch]:
        """Take the work out of a queue whose prior is known or not needed."""
        for _ in range(len(queue)):
            queued = queue.popleft()
            plain = queued.question.content_free
            if plain is None or plain in self._found:
                yield queued
            else:
                queue.append(queued)
