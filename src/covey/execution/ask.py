"""Ask the model what is not known yet, and keep the answers."""

from __future__ import annotations

import time
from typing import Any, Self

import numpy as np

from covey.arrays import Float64, Int64
from covey.engine.base import Answers as EngineAnswers
from covey.engine.base import EngineSession
from covey.engine.lazy import LazyModel
from covey.errors import RunError
from covey.execution.answers import QueryAnswers
from covey.execution.asking import Ticket, Tickets
from covey.execution.budget import NO_BUDGET, BudgetGuard
from covey.execution.client import EngineClient
from covey.execution.progress import CallProgress, Progress
from covey.execution.report import MAX_ERRORS_KEPT, OperatorReport, Report, RowError
from covey.execution.sql_values import true_of
from covey.execution.stop import Interrupts, Stopped
from covey.execution.store.store import AnswerStore
from covey.execution.store.stored_answers import StoredAnswers
from covey.logical.calls import AICall, LongDocuments, OnError, Reading
from covey.prompts.documents import DocumentStore

_SHOWN = 60
_NO_NUMBER = "the model's answer is no number"
# A share of failed prompts is judged while a query runs from so many on, and at its end.
JUDGED_FROM = 1000


class Asker:
    """Asks on behalf of calls; loads the model when the first prompt is asked.

    Args:
        model: is loaded when the first prompt is asked; stored answers are found without it where
            its identity is known before.
        report: is brought up to date, one operator a call.
        progress: is told how far each call is.
        interrupts: say when to stop.
        store: answers of earlier runs; None asks everything.
        guard: stops a run that passes its budget.
    """

    def __init__(
        self,
        model: LazyModel,
        documents: DocumentStore,
        answers: QueryAnswers,
        report: Report,
        progress: Progress,
        interrupts: Interrupts,
        store: AnswerStore | None = None,
        guard: BudgetGuard | None = None,
    ) -> None:
        self._client = EngineClient(model, documents, report)
        self._documents = documents
        self._answers = answers
        self._report = report
        self._progress = CallProgress(progress)
        self._interrupts = interrupts
        self._store = store
        self._model = model
        self._stored: StoredAnswers | None = None
        self._guard = guard or BudgetGuard(NO_BUDGET, None)
        self._tokens_seen = 0
        # Whose prompts the model was asked.
        self._calls: dict[int, AICall] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.close()
        try:
            self._client.stack.__exit__(*error)
        finally:
            if self._stored is not None:
                self._stored.close()

    def ask(self, call: AICall, documents: Int64) -> None:
        """See `Asking.ask`."""
        tickets = self.submit(call, documents)
        while not self.done(tickets):
            self.wait()

    def submit(self, call: AICall, documents: Int64, reads: float = 0.0) -> Tickets:
        """See `Asking.submit`."""
        if call.options.long_documents is not LongDocuments.ERROR and len(documents):
            lengths = self._open().lengths
            windows = self._answers.windows(call)
            documents = windows.cut(call, documents, self._documents, lengths)
        table = self._answers.of(call.question)
        found, _ = table.find(documents)
        wanted = documents[~found]
        keys = table.keys(wanted)
        tickets: set[Ticket] = set()
        for other in self._client.under_way:
            if other.call.question == call.question:
                under_way = np.isin(keys, other.keys)
                if under_way.any():
                    tickets.add(other)
                    wanted, keys = wanted[~under_way], keys[~under_way]
        if len(wanted):
            wanted, keys = self._take_stored(call, wanted, keys)
        if len(wanted):
            self._open()
            self._guard.before(len(wanted))
            ticket = Ticket(call, wanted, keys, reads)
            self._client.submit(ticket)
            self._progress.asked(call.index, self._operator(call).call, len(wanted))
            tickets.add(ticket)
        return frozenset(tickets)

    def done(self, tickets: Tickets) -> bool:
        """See `Asking.done`."""
        return not any(ticket.left for ticket in tickets)

    def wait(self) -> tuple[Ticket, Int64] | None:
        """Let the engine work until it gives some answers, and keep them; see `Asking.wait`.

        Raises:
            RunError: a prompt failed and its call says that the query then fails, or the
                engine ended and left some unanswered.
            Stopped: Ctrl-C was pressed meanwhile.
        """
        self._open()
        started = time.perf_counter()
        with self._interrupts.batch():
            received = self._client.receive()
        if received is None:
            for ticket in self._client.under_way:
                asked = f"{ticket.left:,} prompts of {self._operator(ticket.call).call}"
                raise RunError(f"The model left {asked} unanswered. {self._client.how_to_go_on}")
            return None
        ticket, answers = received
        self._operator(ticket.call).seconds += time.perf_counter() - started
        documents = ticket.documents[answers.rows]
        self._keep(ticket.call, documents, answers)
        self._count(ticket.call, len(documents))
        if self._interrupts.wanted:
            raise Stopped(self._client.how_to_go_on)
        return ticket, documents

    def check(self) -> None:
        """Judge the shares of failed prompts, now that every prompt has its answer.

        Raises:
            RunError: more failed than `max_error_ratio` allows.
        """
        for call in self._calls.values():
            operator = self._operator(call)
            cut, windows = self._answers.windows(call).made
            if cut:
                note = f"{operator.call}: {cut:,} prompts were too long and became {windows:,}."
                self._report.notes.append(note)
            self._check_errors(call)

    def reached(self, share: float) -> None:
        """See `Asking.reached`: totals are expected to grow in the same proportion."""
        self._progress.share = share

    def release(self, documents: Int64) -> None:
        """See `Asking.release`."""
        self._client.release(documents)

    def paused(self, seconds: float) -> None:
        """For so long whoever reads the result has kept the query waiting."""
        self._guard.paused(seconds)

    def check_budget(self) -> None:
        """See `Asking.check_budget`."""
        self._guard.after(0, 0)

    def capacity(self) -> int | None:
        """See `Asking.capacity`: None before the engine is loaded."""
        return self._client.capacity

    def _operator(self, call: AICall) -> OperatorReport:
        return self._report.operators[call.index]

    def _open(self) -> EngineSession:
        """The session; from its preamble on stored answers are known and the clock runs."""
        self._find_store()
        session = self._client.session
        self._guard.start(kept=self._stored is not None)
        return session

    def _find_store(self) -> None:
        """Make the answers of earlier runs known, the first time; loads the model at need."""
        store, self._store = self._store, None
        if store is None:
            return
        known = self._model.identity()
        if known is None:
            _ = self._client.engine
            known = self._model.identity()
        if known is not None:
            self._client.fingerprint = known[1]
            self._stored = StoredAnswers(store, *known, self._documents, self._report.notes)

    def _take_stored(self, call: AICall, wanted: Int64, keys: Int64) -> tuple[Int64, Int64]:
        """Take the answers of earlier runs; return what is left to ask."""
        self._find_store()
        if self._stored is None:
            return wanted, keys
        found, scores = self._stored.find(call.question, wanted)
        if found.any():
            self._answers.of(call.question).add(wanted[found], scores[found])
            self._operator(call).stored += int(found.sum())
            self._count_true(call, scores[found])
        return wanted[~found], keys[~found]

    def _keep(self, call: AICall, documents: Int64, answers: EngineAnswers) -> None:
        self._calls[call.index] = call
        # Errors come by position in the batch, answers by position in this delivery.
        at = {int(row): i for i, row in enumerate(answers.rows)} if answers.errors else {}
        errors = {at[row]: reason for row, reason in answers.errors.items()}
        failed = np.asarray(np.isnan(answers.scores).any(axis=1))
        for i in np.flatnonzero(failed).tolist():
            errors.setdefault(i, _NO_NUMBER)
        scores = np.where(failed[:, None], np.nan, answers.scores)
        self._answers.of(call.question).add(documents, scores, errors)
        if self._stored is not None:
            self._stored.keep(call.question, documents, scores)
        operator = self._operator(call)
        operator.prompts += len(documents)
        operator.failed += int(failed.sum())
        self._count_true(call, scores)
        for i, reason in errors.items():
            self._note_error(call, documents[i], reason)

    def _count(self, call: AICall, prompts: int) -> None:
        """Count answered prompts, and the tokens computed since the last ones."""
        fresh = self._report.counters.fresh_tokens - self._tokens_seen
        self._tokens_seen += fresh
        self._guard.after(prompts, fresh)
        finished = self._progress.answered(call.index, prompts, fresh)
        if finished and self._operator(call).answers >= JUDGED_FROM:
            self._check_errors(call)

    def _count_true(self, call: AICall, scores: Float64) -> None:
        if call.reading is Reading.TRUTH:
            operator = self._operator(call)
            operator.true = (operator.true or 0) + int(true_of(call, scores).sum())

    def _note_error(self, call: AICall, documents: Int64, reason: str) -> None:
        written = self._operator(call).call
        if len(self._report.errors) < MAX_ERRORS_KEPT:
            shown = tuple(text[:_SHOWN] for text in self._documents.texts(documents))
            self._report.errors.append(RowError(written, shown, reason))
        if call.options.on_error is OnError.FAIL:
            raise RunError(
                f"A prompt of {written} failed: {reason}. "
                "With the option on_error => 'null' such rows become NULL instead."
            )

    def _check_errors(self, call: AICall) -> None:
        limit, operator = call.options.max_error_ratio, self._operator(call)
        if limit is None or not operator.failed:
            return
        ratio = operator.failed / operator.answers
        if ratio > limit:
            first = next((e.reason for e in self._report.errors if e.call == operator.call), "")
            raise RunError(
                f"{operator.failed:,} of {operator.answers:,} prompts of {operator.call} failed "
                f"({ratio:.1%}), more than max_error_ratio {limit:g} allows. First reason: {first}"
            )
