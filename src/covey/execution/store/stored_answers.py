"""One run's dealings with the answer store: look-ups at once, writing on the side."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress

import numpy as np

from covey.arrays import Bool, Float64, Int64, UInt64
from covey.errors import first_line
from covey.execution.store.database import StoreError
from covey.execution.store.keys import prompt_keys, question_digest
from covey.execution.store.store import AnswerStore, NewAnswers, StoredQuestion
from covey.prompts.digests import UNKNOWN, DigestIndex
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question

# What is lost at most when the process is killed: this much time, or this many answers.
SECONDS_BETWEEN_WRITES = 1.0
ANSWERS_A_WRITE = 100_000
# While the store cannot be written, so many answers wait for it.
MOST_WAITING = 2_000_000
# Each look-up opens the file and scans the answers of its question. From so many on they are
# held in memory, where all that are held take no more than this; an answer takes its key, its
# scores, and 20 bytes of an index.
LOOKUPS_BEFORE_HELD = 2
HELD_BYTES = 64 << 20
_INDEX_BYTES = 20


class _Held:
    """Answers in memory.

    Args:
        keys: (n, 2) uint64.
        scores: (n, width) float64.
    """

    def __init__(self, keys: UInt64, scores: Float64) -> None:
        self._index = DigestIndex()
        self._index.add(keys)
        self._scores = scores

    def find(self, keys: UInt64) -> tuple[Bool, Float64]:
        """See `AnswerStore.find`."""
        places = self._index.find(keys)
        found = places != UNKNOWN
        scores = np.full((len(keys), self._scores.shape[1]), np.nan)
        scores[found] = self._scores[places[found]]
        return found, scores


class StoredAnswers:
    """What one model has answered before, and now answers.

    A store that fails never fails the query: it is left alone, and `notes` says why and how
    many answers were not kept.

    The thread of the query owns everything but what `_changed` guards, which it shares with the
    writing thread: `_waiting`, `_count`, `_lost`, `_failure` and `_closing`. The writing thread
    owns `_shrinking` until it has ended.

    Args:
        store: the store.
        model, fingerprint: the engine.
        documents: the documents of the query.
        notes: lines for the report.
    """

    def __init__(
        self,
        store: AnswerStore,
        model: str,
        fingerprint: str,
        documents: DocumentStore,
        notes: list[str],
    ) -> None:
        self._store = store
        self._model = model
        self._fingerprint = fingerprint
        self._documents = documents
        self._notes = notes
        self._questions: dict[Question, StoredQuestion] = {}
        # Looked at once a question: answers that another process adds meanwhile are not
        # looked for.
        self._counts: dict[str, int] = {}
        self._looked: Counter[str] = Counter()
        self._held: dict[str, _Held] = {}
        self._held_bytes = 0
        # That the keys of a run are made with, also where the file is begun anew meanwhile.
        self._salt: UInt64 | None = None
        self._unreadable = False
        self._waiting: list[NewAnswers] = []
        self._count = 0
        self._lost = 0
        self._failure = ""
        self._changed = threading.Condition()
        self._closing = False
        self._shrinking: list[str] = []
        self._writer: threading.Thread | None = None

    def find(self, question: Question, documents: Int64) -> tuple[Bool, Float64]:
        """The stored answers about tuples of documents.

        Returns:
            (n,) bool, and (n, question.width) float64, NaN where there is none.
        """
        nothing = np.zeros(len(documents), np.bool_)
        scores = np.full((len(documents), question.width), np.nan)
        digest = self._stored(question).digest
        if self._unreadable or self._counts.get(digest) == 0:
            return nothing, scores
        try:
            if digest not in self._counts:
                self._counts[digest] = self._store.count(digest)
            if not self._counts[digest]:
                return nothing, scores
            keys = self._keys(documents)
            held = self._hold(digest, question.width)
            if held is None:
                return self._store.find(digest, keys, question.width)
            return held.find(keys)
        except Exception as error:
            self._leave(error)
            self._notes.append(f"No answers were looked up: {self._failure}.")
            return nothing, scores

    def _hold(self, digest: str, width: int) -> _Held | None:
        """All answers to a question that is looked up again and again, where they are few."""
        held = self._held.get(digest)
        self._looked[digest] += 1
        if held is None and self._looked[digest] > LOOKUPS_BEFORE_HELD:
            size = self._counts[digest] * (8 * (2 + width) + _INDEX_BYTES)
            if self._held_bytes + size <= HELD_BYTES:
                self._held_bytes += size
                held = self._held[digest] = _Held(*self._store.all(digest, width))
        return held

    def keep(self, question: Question, documents: Int64, scores: Float64) -> None:
        """Store answers soon; those of failed prompts, which are NaN, are left out."""
        good = ~np.isnan(scores).any(axis=1)
        if not good.any():
            return
        try:
            batch = None
            if not self._unreadable:
                keys = self._keys(documents[good])
                batch = NewAnswers(self._stored(question), keys, scores[good])
        except Exception as error:
            self._leave(error)
        with self._changed:
            if batch is None:
                self._lost += int(good.sum())
                return
            self._waiting.append(batch)
            self._count += len(batch.keys)
            if self._count >= ANSWERS_A_WRITE:
                self._changed.notify()
        if self._writer is None:
            self._begin()

    def _begin(self) -> None:
        writer = threading.Thread(target=self._write_on, name="covey-store", daemon=True)
        # Where the system gives no thread, all is written at the end.
        with suppress(RuntimeError):
            writer.start()
            self._writer = writer

    def _leave(self, error: Exception) -> None:
        """Leave the store alone for the rest of the run."""
        self._unreadable = True
        with self._changed:
            self._failure = _reason(error)

    def close(self) -> None:
        """Write what waits, and shrink a store that has grown too large."""
        if self._writer is not None:
            with self._changed:
                self._closing = True
                self._changed.notify()
            self._writer.join()
            self._writer = None
        elif self._waiting:
            self._write()
        with self._changed:
            lost, self._lost, self._count = self._lost + self._count, 0, 0
            self._waiting.clear()
        if lost:
            self._notes.append(f"{lost:,} new answers were not kept: {self._failure}.")
        self._notes += self._shrinking + self._store.take_notes()

    def _stored(self, question: Question) -> StoredQuestion:
        known = self._questions.get(question)
        if known is None:
            known = self._questions[question] = StoredQuestion(
                question_digest(self._fingerprint, question),
                self._model,
                self._fingerprint,
                question.kind.value,
                question.template,
                tuple(label.text for label in question.labels),
            )
        return known

    def _keys(self, documents: Int64) -> UInt64:
        if self._salt is None:
            self._salt = self._store.salt()
        return prompt_keys(self._documents.digests(documents), self._salt)

    def _write_on(self) -> None:
        """Write batch after batch until the run is over, whatever becomes of one."""
        closing = False
        while not closing:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closing or self._count >= ANSWERS_A_WRITE,
                    SECONDS_BETWEEN_WRITES,
                )
                closing = self._closing
            # What could not be written waits, and is counted. A thread that ends without a word
            # would lose what comes later, too.
            with suppress(BaseException):
                self._write()
        try:
            shrunk = self._store.shrink()
        except BaseException as error:
            self._shrinking.append(f"The answer store was not shrunk: {_reason(error)}.")
        else:
            if shrunk:
                self._shrinking.append(f"The answer store was full: {shrunk:,} old answers went.")

    def _write(self) -> None:
        with self._changed:
            batch, self._waiting = self._waiting, []
            taken, self._count = self._count, 0
        if not batch:
            return
        try:
            self._store.add(batch, self._salt)
        except BaseException as error:
            with self._changed:
                self._failure = _reason(error)
                if taken + self._count > MOST_WAITING:
                    self._lost += taken
                else:
                    # The disk may have room again later.
                    self._waiting = batch + self._waiting
                    self._count += taken
            if not isinstance(error, Exception):
                raise


def _reason(error: BaseException) -> str:
    """Why, in a sentence without its full stop."""
    if isinstance(error, StoreError):
        return str(error)
    return f"{type(error).__name__} {first_line(error)}".strip()
