"""A model that computes nothing: with planted answers, a query's planner and executor alone.

Unlike `covey.testing.PlantedModel`, which calls a function for each prompt, it gives answers in
columns, so that it takes about as long as a real model's answers do beside its work.

    covey.connect(ForcedModel(BlankModel(), oracle), cache=False)
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import numpy as np

from covey.engine.base import Answers, Counters, PromptBatch
from covey.estimate.profile import ModelProfile
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind
from covey.testing import PlantedModel
from suite.shapes import Int64

PROMPTS_A_BATCH = 4_096  # about what a batch of 65,536 tokens holds of pairs
_CAPACITY = 900_000  # tokens, as of a large GPU: rows go on in batches of its size


class BlankModel:
    """A model source and its engine; every margin is 0."""

    name = "planted"
    kinds = frozenset(QuestionKind)
    fingerprint = None

    def profile(self) -> ModelProfile:
        """Lengths as a planted model's."""
        return PlantedModel(lambda question, documents: 0.5).profile()

    def open(self) -> Self:
        """Nothing to load."""
        return self

    def shrink(self) -> str | None:
        """It needs no memory of a device."""
        return None

    def session(self, documents: DocumentStore) -> BlankSession:
        """See `covey.engine.base.Engine`."""
        return BlankSession(documents)


class BlankSession:
    """See `covey.engine.base.EngineSession`; a token is four bytes."""

    capacity = _CAPACITY

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._queue: deque[tuple[int, PromptBatch]] = deque()
        self._tickets = 0
        self.counters = Counters()

    def lengths(self, question: Question, documents: Int64) -> tuple[Int64, int | None]:
        return (self._documents.sizes(documents) + 3) // 4, None

    def submit(self, batch: PromptBatch) -> int:
        self._tickets += 1
        self._queue.append((self._tickets, batch))
        return self._tickets

    def release(self, documents: Int64) -> None:
        """Nothing is held."""

    def run(self) -> Iterator[Answers]:
        while self._queue:
            ticket, batch = self._queue.popleft()
            for start in range(0, len(batch.documents), PROMPTS_A_BATCH):
                started = time.perf_counter()
                stop = min(start + PROMPTS_A_BATCH, len(batch.documents))
                scores = np.zeros((stop - start, batch.question.width))
                self.counters.prompts += stop - start
                self.counters.batches += 1
                self.counters.host_seconds += time.perf_counter() - started
                yield Answers(ticket, np.arange(start, stop), scores)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.clear()
