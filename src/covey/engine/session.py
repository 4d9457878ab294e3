"""One query's work on a loaded model."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from covey.engine.base import Answers, Counters, PromptBatch
from covey.engine.packing import PackedChunk, pack, sort_prompts
from covey.engine.prompts import QuestionTokens, prompt_lengths, prompt_tokens, question_tokens
from covey.engine.runtime import Runtime
from covey.errors import InputError, RunError, UnsupportedError
from covey.models.spec import ModelSpec
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import Layout
from covey.prompts.question import QuestionKind
from covey.prompts.tokens import DocumentTokens, Encoder, Int64, Tokens

_SLICE_TOKENS = 1_000_000  # prompts laid out and sorted at a time


@dataclass(frozen=True, slots=True)
class _Queued:
    """A batch that waits, with its question in tokens."""

    ticket: int
    batch: PromptBatch
    asked: QuestionTokens


@dataclass(frozen=True, slots=True)
class _Slice:
    """Some prompts: which batch, which row, how long; sorted by their first document."""

    batches: Int64
    rows: Int64
    lengths: Int64


class LocalSession:
    """See `covey.engine.base.EngineSession`.

    Args:
        documents: the query's documents, to which more may be added.
        runtime: runs chunks.
        spec: the model.
        encoder: its tokenizer.
        layout: how prompts are laid out.
        budget: most new tokens of a chunk.
        close: called once when the session ends.
    """

    def __init__(
        self,
        documents: DocumentStore,
        runtime: Runtime[Any],
        spec: ModelSpec,
        encoder: Encoder,
        layout: Layout,
        budget: int,
        close: Callable[[], None],
    ) -> None:
        self._documents = documents
        self.counters = Counters()
        self._runtime = runtime
        self._spec = spec
        self._encoder = encoder
        self._layout = layout
        self._budget = budget
        self._close = close
        self._tokens = DocumentTokens(documents, encoder)
        self._queue: deque[_Queued] = deque()
        self._work: Iterator[Answers] | None = None
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
        question = batch.question
        if question.kind is not QuestionKind.JUDGE:
            raise UnsupportedError("AI.CLASSIFY does not run on a local model yet")
        ids = batch.documents
        if ids.ndim != 2 or ids.shape[1] != question.arity:
            raise InputError(
                f"a question about {question.arity} documents was given ids of shape"
                f" {list(ids.shape)}; (rows, {question.arity}) is needed."
            )
        if ids.size and (ids.min() < 0 or ids.max() >= len(self._documents)):
            raise InputError("a batch names documents that this session does not hold.")
        started = time.perf_counter()
        asked = question_tokens(question, self._layout, self._encoder, self._spec.bos)
        ticket = self._tickets
        self._tickets += 1
        self._queue.append(_Queued(ticket, batch, asked))
        self.counters.host_seconds += time.perf_counter() - started
        return ticket

    @property
    def capacity(self) -> int:
        """See `EngineSession.capacity`: the chunk budget, nothing outlives a chunk."""
        return self._budget

    def release(self, documents: Int64) -> None:
        """See `EngineSession.release`: nothing outlives a chunk."""

    def run(self) -> Iterator[Answers]:
        """See `EngineSession.run`.

        An iterator that is dropped half-way leaves the rest to the next call.
        """
        while True:
            self._check_open()
            if self._work is None:
                if not self._queue:
                    return
                queued = list(self._queue)
                self._queue.clear()
                self._work = self._answers(queued)
            answers = next(self._work, None)
            if answers is None:
                self._work = None
            else:
                yield answers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._open:
            return
        self._open = False
        self._queue.clear()
        self._work = None
        self._tokens = DocumentTokens(DocumentStore(), self._encoder)
        self._close()

    def _check_open(self) -> None:
        if not self._open:
            raise RunError("This session is closed. Open another with engine.session().")

    def _answers(self, queued: list[_Queued]) -> Iterator[Answers]:
        """Run some batches together, so that they share the prefixes of their documents."""
        started = time.perf_counter()
        runnable: list[_Slice] = []
        for number, item in enumerate(queued):
            good, lengths, failed = self._measure(item)
            if failed is not None:
                yield failed
            runnable.append(_Slice(np.full(len(good), number), good, lengths))
        slices = _slices(queued, runnable)
        self.counters.host_seconds += time.perf_counter() - started
        for part in slices:
            yield from self._run_slice(queued, part)

    def _measure(self, item: _Queued) -> tuple[Int64, Int64, Answers | None]:
        """Rows that can run, their lengths, and the answers of those that cannot."""
        self._tokens.ensure(item.batch.documents)
        lengths = prompt_lengths(item.asked, item.batch, self._tokens)
        long = lengths > self._spec.context
        undecodable = np.array(sorted(self._tokens.errors), dtype=np.int64)
        bad = np.isin(item.batch.documents, undecodable).any(axis=1)
        wrong = np.flatnonzero(long | bad)
        good = np.flatnonzero(~(long | bad))
        if not len(wrong):
            return good, lengths, None
        errors = {}
        for row in wrong.tolist():
            reasons = (self._tokens.errors.get(i) for i in item.batch.documents[row].tolist())
            errors[row] = next(filter(None, reasons), None) or (
                f"the prompt is {lengths[row]:,} tokens long; {self._spec.context:,} is the"
                " model's limit"
            )
        self.counters.failed += len(wrong)
        self.counters.prompts += len(wrong)
        scores = np.full((len(wrong), 1), np.nan)
        return good, lengths[good], Answers(item.ticket, wrong, scores, errors)

    def _run_slice(self, queued: list[_Queued], part: _Slice) -> Iterator[Answers]:
        started = time.perf_counter()
        prompts = self._lay_out(queued, part)
        order, shared = sort_prompts(prompts)
        self.counters.minimum_tokens += minimum_tokens(prompts, shared)
        self.counters.host_seconds += time.perf_counter() - started
        for packed in pack(prompts, order, shared, self._budget):
            yield from self._run_chunk(queued, part, prompts, packed)

    def _lay_out(self, queued: list[_Queued], part: _Slice) -> Tokens:
        """The prompts of a slice, which is ordered by batch."""
        laid_out = []
        for number in np.unique(part.batches).tolist():
            item = queued[number]
            rows = part.rows[part.batches == number]
            laid_out.append(prompt_tokens(item.asked, item.batch, rows, self._tokens))
        lengths = np.concatenate([tokens.lengths for tokens in laid_out])
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Tokens(np.concatenate([tokens.flat for tokens in laid_out]), offsets)

    def _run_chunk(
        self, queued: list[_Queued], part: _Slice, prompts: Tokens, packed: PackedChunk
    ) -> Iterator[Answers]:
        started = time.perf_counter()
        found = self._runtime.margins(packed.chunk)[packed.answers]
        counters = self.counters
        counters.device_seconds += time.perf_counter() - started
        fresh = len(packed.chunk)
        counters.chunks += 1
        counters.fresh_tokens += fresh
        counters.chunk_capacity += max(self._budget, fresh)
        counters.prompts += len(packed.prompts)
        counters.requested_tokens += int(prompts.lengths[packed.prompts].sum())
        batches = part.batches[packed.prompts]
        for number in np.unique(batches).tolist():
            mine = batches == number
            yield Answers(
                queued[number].ticket,
                part.rows[packed.prompts[mine]],
                found[mine][:, None],
            )


def minimum_tokens(prompts: Tokens, shared: Int64) -> int:
    """Distinct prefixes of some sorted prompts: the size of their trie."""
    return int(prompts.lengths.sum() - shared.sum())


def _slices(queued: list[_Queued], runnable: list[_Slice]) -> Iterator[_Slice]:
    """Cut prompts into slices of bounded size, each ordered by batch.

    Prompts about one document stay together: whole runs of the same first document go
    into a slice, unless one run alone is larger.
    """
    if not runnable:
        return
    batches = np.concatenate([part.batches for part in runnable]).astype(np.int64)
    rows = np.concatenate([part.rows for part in runnable])
    lengths = np.concatenate([part.lengths for part in runnable])
    first = np.concatenate(
        [_first_document(item, part) for item, part in zip(queued, runnable, strict=True)]
    )
    order = np.lexsort((rows, batches, first))
    if not len(order):
        return
    totals = np.cumsum(lengths[order])
    numbers = (totals - 1) // _SLICE_TOKENS
    for number in np.unique(numbers).tolist():
        inside = order[numbers == number]
        inside = inside[np.lexsort((rows[inside], batches[inside]))]
        yield _Slice(batches[inside], rows[inside], lengths[inside])


def _first_document(item: _Queued, part: _Slice) -> Int64:
    if item.batch.question.arity == 0:
        return np.full(len(part.rows), -1, dtype=np.int64)
    found: Int64 = item.batch.documents[part.rows, item.batch.question.anchor]
    return found
