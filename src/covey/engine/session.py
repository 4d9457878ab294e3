"""One query's work on a loaded model."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from covey.engine.base import Answers, Counters, PromptBatch
from covey.engine.chunk import BuiltChunk
from covey.engine.grove import Grove
from covey.engine.limits import Limits
from covey.engine.planning import JobPlanner, Pairs, pairs_of
from covey.engine.questions import QuestionEncoder, QuestionTokens
from covey.engine.reads import Reads
from covey.engine.retention import RecomputeCost
from covey.engine.runtime import ChunkRunner, Launched
from covey.engine.scheduler import Scheduler
from covey.errors import InputError, RunError, UnsupportedError
from covey.models.spec import ModelSpec
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import Layout
from covey.prompts.question import QuestionKind
from covey.prompts.tokens import DocumentTokens, Encoder, Int64

# What matters to retention is how a token's linear work compares with its attention.
_FLOPS = 1e12


@dataclass(frozen=True, slots=True)
class _Queued:
    """A batch whose documents are being tokenised."""

    ticket: int
    batch: PromptBatch
    asked: QuestionTokens
    pairs: Pairs
    tokenised: Future[None]


class LocalSession:
    """See `covey.engine.base.EngineSession`.

    Args:
        documents: the query's documents, to which more may be added.
        runner: runs chunks.
        spec: the model.
        encoder: its tokenizer.
        layout: how prompts are laid out.
        limits: what the session may use.
        close: called once when the session ends.
    """

    def __init__(
        self,
        documents: DocumentStore,
        runner: ChunkRunner,
        spec: ModelSpec,
        encoder: Encoder,
        layout: Layout,
        limits: Limits,
        close: Callable[[], None],
    ) -> None:
        self.counters = Counters()
        self._documents = documents
        self._runner = runner
        self._limits = limits
        self._close = close
        self._questions = QuestionEncoder(layout, encoder, spec.bos)
        self._tokens = DocumentTokens(documents, encoder, limits.spill_bytes)
        self._reads = Reads()
        self._planner = JobPlanner(self._tokens, limits, self._reads)
        cost = RecomputeCost(spec.flops_per_token / _FLOPS, spec.flops_per_pair / _FLOPS)
        self._grove = Grove(limits.slots, cost, self._questions.opening, limits.node_tokens + 1)
        self._scheduler = Scheduler(self._grove, limits.budget, self._reads, self._count_minimum)
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="covey-tokens")
        self._queue: deque[_Queued] = deque()
        self._flying: deque[tuple[BuiltChunk, Launched]] = deque()
        self._answers: deque[Answers] = deque()
        self._tickets = 0
        self._open = True

    def submit(self, batch: PromptBatch) -> int:
        """See `EngineSession.submit`.

        Raises:
            UnsupportedError: the question is a classification.
            InputError: the batch's documents are no ids of this session.
            RunError: the session is closed.
        """
        self._check_open()
        question, ids = batch.question, batch.documents
        if question.kind is not QuestionKind.JUDGE:
            raise UnsupportedError("AI.CLASSIFY does not run on a local model yet")
        if ids.ndim != 2 or ids.shape[1] != question.arity:
            raise InputError(
                f"a question about {question.arity} documents was given ids of shape"
                f" {list(ids.shape)}; (rows, {question.arity}) is needed."
            )
        if ids.size and (ids.min() < 0 or ids.max() >= len(self._documents)):
            raise InputError("a batch names documents that this session does not hold.")
        started = time.perf_counter()
        asked = self._questions.encode(question)
        pairs = pairs_of(batch, asked)
        self._reads.queue(pairs.anchors, batch.reads)
        self._value(pairs.anchors)
        needed = np.concatenate([pairs.anchors, pairs.partners.ravel()])
        tokenised = self._tokeniser.submit(self._tokens.ensure, needed)
        ticket = self._tickets
        self._tickets += 1
        self._queue.append(_Queued(ticket, batch, asked, pairs, tokenised))
        self.counters.host_seconds += time.perf_counter() - started
        return ticket

    @property
    def capacity(self) -> int:
        """See `EngineSession.capacity`."""
        return self._limits.slots

    def release(self, documents: Int64) -> None:
        """See `EngineSession.release`."""
        self._reads.release(documents)
        self._value(documents)

    def _value(self, documents: Int64) -> None:
        """Tell the grove how often resident documents are expected to be read now."""
        if not self._grove.documents:
            return
        held = [d for d in documents.tolist() if self._grove.holds(d)]
        expected = self._reads.expected(np.array(held, dtype=np.int64)).tolist()
        for document, reads in zip(held, expected, strict=True):
            self._grove.expect(document, None, reads)

    def run(self) -> Iterator[Answers]:
        """See `EngineSession.run`.

        An iterator that is dropped half-way leaves the rest to the next call. An error
        while a chunk is packed or run ends the session.
        """
        while True:
            self._check_open()
            while self._answers:
                yield self._answers.popleft()
                self._check_open()
            try:
                going = self._step()
            except BaseException:
                self._end()
                raise
            if not going and not self._answers:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        if not self._open:
            return
        self._open = False
        self._tokens.stop()
        self._tokeniser.shutdown(wait=True, cancel_futures=True)
        self._queue.clear()
        self._flying.clear()
        self._answers.clear()
        self._grove.pool.release_all()
        self._close()

    def _check_open(self) -> None:
        if not self._open:
            raise RunError("This session is closed. Open another with engine.session().")

    def _step(self) -> bool:
        """Take in what was submitted, keep the device busy, wait for one chunk."""
        started = time.perf_counter()
        while self._queue:
            self._take_in(self._queue.popleft())
        counters, waited = self.counters, 0.0
        while len(self._flying) < self._limits.in_flight:
            built = self._scheduler.next_chunk()
            if built is None:
                break
            launching = time.perf_counter()
            self._flying.append((built, self._runner.launch(built.chunk)))
            waited += time.perf_counter() - launching
            counters.chunks += 1
            counters.fresh_tokens += len(built.chunk)
            counters.chunk_capacity += max(self._limits.budget, len(built.chunk))
        pool = self._grove.pool
        counters.peak_slots, counters.evictions = pool.peak, pool.retention.evictions
        if not self._flying:
            return False
        waiting = time.perf_counter()
        built, launched = self._flying.popleft()
        margins, seconds = launched.result()
        waited += time.perf_counter() - waiting
        self._deliver(built, margins[:, None])
        counters.device_seconds += seconds
        counters.host_seconds += time.perf_counter() - started - waited
        return True

    def _take_in(self, item: _Queued) -> None:
        """Tell which rows of a batch fail, and queue the others' jobs."""
        item.tokenised.result()
        batch = item.batch
        errors = self._planner.failures(batch, item.asked, item.pairs)
        failed = np.array(sorted(errors), dtype=np.int64)
        if errors:
            self.counters.failed += len(failed)
            self.counters.prompts += len(failed)
            scores = np.full((len(failed), 1), np.nan)
            self._answers.append(Answers(item.ticket, failed, scores, errors))
        jobs = self._planner.jobs(item.ticket, batch.reads, item.asked, item.pairs, failed)
        self._scheduler.add(item.ticket, jobs)

    def _deliver(self, built: BuiltChunk, margins: np.ndarray) -> None:
        for part in built.parts:
            rows, prompt = part.job.rows.of(part.prompts)
            scores = margins[part.first : part.stop][prompt]
            self.counters.prompts += len(rows)
            self.counters.requested_tokens += int(part.job.requested(part.prompts)[prompt].sum())
            self._answers.append(Answers(part.job.ticket, rows, scores))

    def _count_minimum(self, tokens: int) -> None:
        self.counters.minimum_tokens += tokens
