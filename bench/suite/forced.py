"""A model that does its work and gives the planted answers.

Random weights let any number of rows through, and so does a small model on texts that mean
nothing. `ForcedModel` wraps any model source: every prompt is computed, then its scores are
replaced by the truth, so that what follows is the same for every engine. What the model itself
would have said is kept, for agreement between engines.

    covey.connect(ForcedModel(LocalModel("/path/to/checkpoint"), oracle), cache=False)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np

from covey.engine.base import Answers, Counters, Engine, EngineSession, ModelSource, PromptBatch
from covey.errors import RunError
from covey.estimate.profile import ModelProfile
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind
from suite.answers import Said
from suite.oracle import DocumentRows, Oracle
from suite.shapes import Int64


class WrappedSession(ABC):
    """An `EngineSession` that sees every answer on its way out; the rest is the inner one's."""

    def __init__(self, inner: EngineSession) -> None:
        self._inner = inner
        self._batches: dict[int, PromptBatch] = {}

    @abstractmethod
    def seen(self, batch: PromptBatch, answers: Answers) -> Answers:
        """What goes out instead of some answers of a batch."""

    @property
    def counters(self) -> Counters:
        return self._inner.counters

    @property
    def capacity(self) -> int:
        return self._inner.capacity

    def lengths(self, question: Question, documents: Int64) -> tuple[Int64, int | None]:
        return self._inner.lengths(question, documents)

    def submit(self, batch: PromptBatch) -> int:
        ticket = self._inner.submit(batch)
        self._batches[ticket] = batch
        return ticket

    def release(self, documents: Int64) -> None:
        self._inner.release(documents)

    def run(self) -> Iterator[Answers]:
        for answers in self._inner.run():
            yield self.seen(self._batches[answers.ticket], answers)

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)


class ForcedModel:
    """A model source and, once opened, an engine whose answers are planted.

    Args:
        source: the model that does the work.
        oracle: the answers.
        force: False lets the model's own answers through, which are noted all the same.
        engine: the model, where it is loaded already.

    Attributes:
        fingerprint: None, so that no answer is kept for a later run.
        said: the model's own answers, in the order they came.
    """

    fingerprint = None

    def __init__(
        self,
        source: ModelSource,
        oracle: Oracle,
        *,
        force: bool = True,
        engine: Engine | None = None,
    ) -> None:
        self._source = source
        self._oracle = oracle
        self._force = force
        self._engine = engine
        self.said: list[Said] = []

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def kinds(self) -> frozenset[QuestionKind]:
        return self._source.kinds

    def profile(self) -> ModelProfile:
        """See `ModelSource.profile`."""
        return self._source.profile()

    def open(self) -> Self:
        """Load the model, once for all connections."""
        if self._engine is None:
            self._engine = self._source.open()
        return self

    @property
    def engine(self) -> Engine:
        """The engine that does the work; RunError before it is opened."""
        if self._engine is None:
            raise RunError("This model is not loaded: call open() first.")
        return self._engine

    def shrink(self) -> str | None:
        """See `Engine.shrink`."""
        return self.engine.shrink()

    def session(self, documents: DocumentStore) -> ForcedSession:
        """See `Engine.session`."""
        inner = self.engine.session(documents)
        return ForcedSession(inner, documents, self._oracle, self._force, self.said)


class ForcedSession(WrappedSession):
    """Replaces scores on their way out."""

    def __init__(
        self,
        inner: EngineSession,
        documents: DocumentStore,
        oracle: Oracle,
        force: bool,
        said: list[Said],
    ) -> None:
        super().__init__(inner)
        self._oracle = oracle
        self._rows = DocumentRows(oracle, documents)
        self._force = force
        self._said = said

    def seen(self, batch: PromptBatch, answers: Answers) -> Answers:
        """The planted answers, where they are forced."""
        template = batch.question.template
        rows = self._rows.of(template, batch.documents[answers.rows])
        self._said.append(Said(template, np.stack(rows, axis=1), answers.scores))
        if not self._force:
            return answers
        scores = self._oracle.scores(batch.question, rows)
        scores[np.isnan(answers.scores).any(axis=1)] = np.nan  # a failed prompt stays failed
        return replace(answers, scores=scores)
