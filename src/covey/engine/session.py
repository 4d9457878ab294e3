"""One query's work on a loaded model."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np

from covey.arrays import Float64, Int64
from covey.engine.base import Answers, Counters, PromptBatch
from covey.engine.batch import AnswerPart, PackedBatch
from covey.engine.device_errors import device_errors
from covey.engine.job_planner import JobPlanner
from covey.engine.jobs import Job
from covey.engine.kv_cache.eviction import RecomputeCost
from covey.engine.kv_cache.radix_tree import RadixTree
from covey.engine.kv_cache.reads import DocumentReads
from covey.engine.limits import Limits
from covey.engine.model_runner import Launched, ModelRunner
from covey.engine.pairs import Pairs, pairs_of
from covey.engine.questions import QuestionEncoder
from covey.engine.queued_batch import Priors, QueuedBatch, QueuedPart
from covey.engine.scheduler import Scheduler
from covey.engine.scores import BatchReading, Values, scores_of
from covey.engine.slices import is_large, slices
from covey.errors import InputError, RunError
from covey.models.spec import ModelSpec
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import Layout
from covey.prompts.question import CONTENT_FREE, Question
from covey.prompts.tokens import DocumentTokens, Encoder

# What matters to eviction is how a token's linear work compares with its attention.
_FLOPS = 1e12
# Tokens of the first slice of a large batch: two of the widest forward batches, which keep a GPU
# busy for longer than it takes to tokenise as many again. See `covey.engine.slices`.
SLICE_TOKENS = 1 << 17


class LocalSession:
    """See `covey.engine.base.EngineSession`.

    It belongs to one thread at a time, that of the query: any may go on where another stopped.
    The tokenising thread has the queue of its pool, reads the store of documents, and writes
    nothing but `DocumentTokens`, which says what is whose.

    Args:
        documents: the query's documents, to which more may be added.
        runner: runs forward batches.
        spec: the model.
        encoder: its tokenizer.
        layout: how prompts are laid out.
        limits: what the session may use.
        close: called once when the session ends.
    """

    def __init__(
        self,
        documents: DocumentStore,
        runner: ModelRunner,
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
        cost = RecomputeCost(spec.flops_per_token / _FLOPS, spec.flops_per_pair / _FLOPS)
        self._tree = RadixTree(limits.slots, cost, self._questions.preamble, limits.node_tokens + 1)
        self._reads = DocumentReads(self._tree)
        self._planner = JobPlanner(self._tokens, limits, self._reads)
        self._scheduler = Scheduler(self._tree, limits.max_batched_tokens, self._reads)
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="covey-tokens")
        self._queue: deque[QueuedBatch] = deque()
        self._running: dict[int, QueuedBatch] = {}
        self._numbers = itertools.count()
        self._priors = Priors()
        self._flying: deque[tuple[PackedBatch, BatchReading, Launched]] = deque()
        self._evictions = 0
        self._answers: deque[Answers] = deque()
        self._tickets = 0
        self._open = True

    def lengths(self, question: Question, documents: Int64) -> tuple[Int64, int | None]:
        """See `EngineSession.lengths`."""
        self._check_open()
        self._tokeniser.submit(self._tokens.ensure, documents.ravel()).result()
        room = self._limits.context - self._questions.encode(question).fixed
        return self._tokens.lengths(documents).astype(np.int64), room

    def submit(self, batch: PromptBatch) -> int:
        """See `EngineSession.submit`.

        Raises:
            InputError: the batch's documents are no ids of this session, or the model cannot
                tell the question's labels apart.
            RunError: the session is closed.
        """
        self._check_open()
        question, ids = batch.question, batch.documents
        if ids.ndim != 2 or ids.shape[1] != question.arity:
            raise InputError(
                f"a question about {question.arity} documents was given ids of shape"
                f" {list(ids.shape)}; (rows, {question.arity}) is needed."
            )
        if ids.size and (ids.min() < 0 or ids.max() >= len(self._documents)):
            raise InputError("a batch names documents that this session does not hold.")
        started = time.perf_counter()
        plain = self._priors.unknown(question)
        if plain is not None:
            self._enqueue(self._queued(None, PromptBatch(plain, self._content_free(plain))))
        ticket = self._tickets
        self._enqueue(self._queued(ticket, batch))
        self._tickets += 1
        self.counters.host_seconds += time.perf_counter() - started
        return ticket

    def _content_free(self, question: Question) -> Int64:
        texts = self._documents.add(CONTENT_FREE)
        return np.repeat(texts[:, None], question.arity, axis=1)

    def _queued(self, ticket: int | None, batch: PromptBatch) -> QueuedBatch:
        asked = self._questions.encode(batch.question)
        rows = np.arange(len(batch.documents), dtype=np.int64)
        return QueuedBatch(ticket, batch, asked, pairs_of(batch.documents, rows, asked))

    def _enqueue(self, queued: QueuedBatch) -> None:
        """Queue a batch or a step of one, and have its documents tokenised."""
        pairs = queued.pairs
        self._reads.queue(pairs.anchors, queued.reads)
        if queued.known is None:
            for part in self._sliced(pairs):
                needed = np.concatenate([part.anchors, part.partners.ravel()])
                queued.parts.append(
                    QueuedPart(part, self._tokeniser.submit(self._tokens.ensure, needed))
                )
        else:
            queued.parts.append(QueuedPart(pairs, None))
        self._queue.append(queued)

    def _sliced(self, pairs: Pairs) -> Iterator[Pairs]:
        """Cut a large batch: its first documents run while the others are tokenised."""
        if not is_large(self._documents.sizes(pairs.anchors), SLICE_TOKENS):
            yield pairs  # most batches are small, and their texts need not be read for this
            return
        texts = self._documents.texts(pairs.anchors)
        for part in slices(texts, SLICE_TOKENS):
            chosen = np.zeros(len(texts), dtype=np.bool_)
            chosen[part] = True
            yield pairs.of_anchors(chosen)

    @property
    def capacity(self) -> int:
        """See `EngineSession.capacity`."""
        return self._limits.slots

    def release(self, documents: Int64) -> None:
        """See `EngineSession.release`."""
        self._reads.release(documents)

    def run(self) -> Iterator[Answers]:
        """See `EngineSession.run`.

        An iterator that is dropped half-way leaves the rest to the next call. An error
        while a forward batch is packed or run ends the session.
        """
        while True:
            self._check_open()
            while self._answers:
                yield self._answers.popleft()
                self._check_open()
            try:
                with device_errors():
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
        self._running.clear()
        self._answers.clear()
        self._count_slots()
        self._close()

    def _check_open(self) -> None:
        if not self._open:
            raise RunError("This session is closed. Open another with engine.session().")

    def _step(self) -> bool:
        """Take in what was submitted, keep the device busy, wait for one forward batch."""
        started = time.perf_counter()
        for queued in self._priors.ready(self._queue):
            self._take_in(queued)
        counters, waited = self.counters, 0.0
        while len(self._flying) < self._limits.in_flight:
            packed = self._scheduler.next_batch()
            self._count_slots()
            if packed is None:
                break
            trees = [self._running[part.job.ticket].asked.tree for part in packed.parts]
            reading = BatchReading(packed.parts, trees)
            launching = time.perf_counter()
            launched = self._runner.launch(packed.batch, reading.wanted)
            self._flying.append((packed, reading, launched))
            waited += time.perf_counter() - launching
            counters.batches += 1
            counters.fresh_tokens += len(packed.batch)
            counters.batch_capacity += max(self._limits.max_batched_tokens, len(packed.batch))
        if not self._flying:
            return bool(self._queue)
        waiting = time.perf_counter()
        packed, reading, launched = self._flying.popleft()
        found, seconds = launched.result()
        waited += time.perf_counter() - waiting
        for number, part in enumerate(packed.parts):
            self._deliver(part, reading.values(number, part, found))
        counters.minimum_tokens += packed.minimum_tokens
        counters.device_seconds += seconds
        counters.host_seconds += time.perf_counter() - started - waited
        return True

    def _take_in(self, queued: QueuedBatch) -> None:
        """Queue the jobs of a batch, or of a step of one."""
        number = next(self._numbers)
        queued.left = len(queued.pairs.rows) * queued.answers
        if queued.left:
            self._running[number] = queued
            self._scheduler.add(number, self._jobs(number, queued))

    def _jobs(self, number: int, queued: QueuedBatch) -> Iterator[Job]:
        """Part by part, tell which rows fail, and make the others' jobs.

        The scheduler asks for the next part when it has packed the one before, so that
        what shares a forward batch does not depend on how fast documents are tokenised.
        """
        for part in queued.parts:
            pairs, errors = part.pairs, dict[int, str]()
            if part.tokenised is not None:
                part.tokenised.result()
                errors = self._planner.failures(queued.batch, queued.asked, pairs)
            if self._priors.failed(queued.question):
                reason = "the question is too long for the model, even without a document"
                errors = {row: errors.get(row, reason) for row in pairs.rows.tolist()}
            failed = np.array(sorted(errors), dtype=np.int64)
            if errors:
                scores = np.full((len(failed), queued.question.width), np.nan)
                self._answer(queued, failed, scores, errors)
                self._count_down(number, queued, len(failed) * queued.answers)
            nodes = None if queued.nodes is None else queued.nodes[_places(queued.pairs, pairs)]
            yield from self._planner.jobs(number, queued.asked, pairs, failed, nodes)

    def _count_down(self, number: int, queued: QueuedBatch, answers: int) -> None:
        queued.left -= answers
        if not queued.left:
            del self._running[number]

    def _deliver(self, part: AnswerPart, values: Values) -> None:
        """Hand on what some answers of a forward batch hold."""
        queued = self._running[part.job.ticket]
        keys, prompt = part.job.rows.of(part.prompts)
        requested = part.job.requested(part.prompts)[prompt]
        if queued.asked.tree is not None:  # what is read behind the cue is no prompt more
            requested = requested[keys % queued.asked.tree.nodes == 0]
        self.counters.requested_tokens += int(requested.sum())
        self._count_down(part.job.ticket, queued, len(keys))
        prior = self._priors.of(queued.question)
        if queued.asked.probes is None:
            margins = values.flat[part.first : part.stop][prompt][:, None]
            self._answer(queued, keys, scores_of(queued.question, queued.asked, margins, prior), {})
        elif queued.asked.stepwise:
            self._go_on(queued, keys, values.take(prompt), prior)
        else:
            rows, found = queued.values.add(keys, values.take(prompt))
            if len(rows):
                self._answer(
                    queued, rows, scores_of(queued.question, queued.asked, found, prior), {}
                )

    def _go_on(
        self, queued: QueuedBatch, keys: Int64, values: Values, prior: Float64 | None
    ) -> None:
        """Answer the rows whose label is found, and ask the others' next nodes."""
        known, following = queued.step(keys, values, prior)
        finished = following < 0
        done, going = np.flatnonzero(finished), np.flatnonzero(~finished)
        if len(going):
            left = known.some(going)
            ids = queued.batch.documents[left.rows]
            pairs = pairs_of(ids, left.rows, queued.asked)
            self._enqueue(queued.following(pairs, following[going], left))
        if len(done):
            found = known.some(done)
            self._answer(queued, found.rows, found.scores(), {})
            if queued.asked.anchor is not None:
                ended = np.unique(queued.batch.documents[found.rows, queued.asked.anchor])
                self._reads.expect(ended, queued.batch.reads)

    def _answer(
        self, queued: QueuedBatch, rows: Int64, scores: Float64, errors: dict[int, str]
    ) -> None:
        if queued.ticket is None:
            self._priors.add(queued.question, scores, len(queued.batch.documents))
            return
        self.counters.prompts += len(rows)
        self.counters.failed += len(errors)
        self._answers.append(Answers(queued.ticket, rows, scores, errors))

    def _count_slots(self) -> None:
        """Bring the account of the KV cache up to date, on top of what earlier sessions did."""
        tree, counters = self._tree, self.counters
        counters.peak_slots = max(counters.peak_slots, tree.peak)
        counters.evictions += tree.evictions - self._evictions
        self._evictions = tree.evictions


def _places(pairs: Pairs, some: Pairs) -> Int64:
    """Where the rows of some of the pairs stand among all."""
    return np.searchsorted(pairs.rows, some.rows)
