"""A session of an engine that sees every answer on its way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from covey.engine.base import Answers, Counters, EngineSession, PromptBatch
from covey.prompts.question import Question
from suite.shapes import Int64


class WrappedSession(ABC):
    """See `covey.engine.base.EngineSession`; all but the answers is the inner session's."""

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
