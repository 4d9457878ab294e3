"""Ask the model what is not known yet, and keep the answers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np

from covey.arrays import Float64, Int64
from covey.engine.base import Answers as EngineAnswers
from covey.engine.base import Engine, EngineSession, OutOfMemory, PromptBatch, carry_on
from covey.errors import RunError
from covey.execution.answers import QueryAnswers
from covey.execution.budget import BudgetGuard
from covey.execution.memory import open_session, shrink
from covey.execution.progress import Progress
from covey.execution.report import MAX_ERRORS_KEPT, OperatorReport, Report, RowError
from covey.execution.sql_values import true_of
from covey.execution.stop import Interrupts, Stopped
from covey.execution.store.session import StoredAnswers
from covey.execution.store.store import AnswerStore
from covey.execution.tickets import CallUnderWay, Ticket
from covey.logical.calls import AICall, LongDocuments, OnError, Reading
from covey.prompts.documents import DocumentStore

_SHOWN = 60
_NO_NUMBER = "the model's answer is no number"
# A share of failed prompts is judged while a query runs from so many on, and at its end.
JUDGED_FROM = 1000


class Asker:
    """Asks on behalf of calls; loads the model when the first prompt is asked.

    Args:
        load: gives the loaded model; called at most once.
        documents: the documents of the query.
        answers: where answers are kept.
        report: is brought up to date, one operator a call.
        progress: is told how far each call is.
        interrupts: say when to stop.
        store: answers of earlier runs; None asks everything.
        known: the model's name and fingerprint, without loading it: None where its files
            do not tell. Stored answers are then found without it.
        watch: stops a run that passes its budget.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        documents: DocumentStore,
        answers: QueryAnswers,
        report: Report,
        progress: Progress,
        interrupts: Interrupts,
        store: AnswerStore | None = None,
        known: Callable[[], tuple[str, str] | None] = lambda: None,
        watch: BudgetGuard | None = None,
    ) -> None:
        self._known = known
        self._watch = watch
        self._load = load
        self._store = store
        self._stored: StoredAnswers | None = None
        self._looked_for = False
        self._fingerprint: str | None = None
        self._documents = documents
        self._answers = answers
        self._report = report
        self._progress = progress
        self._engine: Engine | None = None
        self._session: EngineSession | None = None
        self._work: Iterator[EngineAnswers] | None = None
        self._asking: dict[int, CallUnderWay] = {}
        self._tickets: dict[int, Ticket] = {}
        self._numbers = itertools.count()
        # The session's number of a ticket -> its own: a second session counts anew.
        self._submitted: dict[int, int] = {}
        self._tokens_seen = 0
        self._share = 1.0
        self._interrupts = interrupts
        self._stack = ExitStack()
        self._calls: dict[int, AICall] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for asking in self._asking.values():
            self._progress.finish(asking.operator.call)
        try:
            self._stack.__exit__(kind, error, trace)
        finally:
            if self._stored is not None:
                self._stored.close()

    def ask(self, call: AICall, documents: Int64) -> None:
        """Ask about tuples of documents and wait for the answers; see `submit`."""
        tickets = self.submit(call, documents)
        while not self.done(tickets):
            self.wait()

    def submit(self, call: AICall, documents: Int64, reads: float = 0.0) -> frozenset[int]:
        """Queue prompts about tuples of documents.

        Those with an answer, and those already under way, are left out.

        Args:
            documents: (n, arity) distinct document ids, none NULL.
            reads: see `PromptBatch.reads`.

        Returns:
            tickets for `done`, empty where every answer is there.
        """
        if call.options.long_documents is not LongDocuments.ERROR and len(documents):
            lengths = self._open().lengths
            windows = self._answers.windows(call)
            documents = windows.cut(call, documents, self._documents, lengths)
        table = self._answers.of(call.question)
        found, _ = table.find(documents)
        wanted = documents[~found]
        keys = table.keys(wanted)
        tickets: set[int] = set()
        for number, other in self._tickets.items():
            if other.asking.call.question == call.question:
                under_way = np.isin(keys, other.keys)
                if under_way.any():
                    tickets.add(number)
                    wanted, keys = wanted[~under_way], keys[~under_way]
        if not len(wanted):
            return frozenset(tickets)
        self._find_store()
        wanted, keys = self._take_stored(call, wanted, keys)
        if not len(wanted):
            return frozenset(tickets)
        session = self._open()
        if self._watch is not None:
            self._watch.before(len(wanted))
        ticket = next(self._numbers)
        self._submitted[session.submit(PromptBatch(call.question, wanted, reads))] = ticket
        asking = self._asking.get(call.index)
        if asking is None:
            asking = self._asking[call.index] = CallUnderWay(
                call, self._report.operators[call.index]
            )
            self._progress.start(asking.operator.call, None)
        asking.total += len(wanted)
        self._tickets[ticket] = Ticket(asking, wanted, keys, len(wanted), reads)
        return frozenset({ticket, *tickets})

    def _take_stored(self, call: AICall, wanted: Int64, keys: Int64) -> tuple[Int64, Int64]:
        """Take the answers of earlier runs; return what is left to ask."""
        if self._stored is None:
            return wanted, keys
        found, scores = self._stored.find(call.question, wanted)
        if found.any():
            self._answers.of(call.question).add(wanted[found], scores[found])
            operator = self._report.operators[call.index]
            operator.stored += int(found.sum())
            self._count_true(call, operator, scores[found])
        return wanted[~found], keys[~found]

    def done(self, tickets: frozenset[int]) -> bool:
        """Whether all prompts of some tickets have their answers."""
        return tickets.isdisjoint(self._tickets)

    def wait(self) -> tuple[int, Int64] | None:
        """Let the engine work until it gives some answers, and keep them.

        Returns:
            the ticket and the (n, arity) documents that were answered; None where nothing
            was left to answer.

        Raises:
            RunError: a prompt failed and its call says that the query then fails, or the
                engine ended and left some unanswered.
            Stopped: Ctrl-C was pressed meanwhile.
        """
        if self._work is None:
            self._work = self._open().run()
        started = time.perf_counter()
        with self._interrupts.chunk():
            answers = self._next()
        if answers is None:
            self._work = None
            for ticket in self._tickets.values():
                asked = f"{ticket.left:,} prompts of {ticket.asking.operator.call}"
                raise RunError(f"The model left {asked} unanswered. {self._how_to_go_on()}")
            return None
        number = self._submitted[answers.ticket]
        ticket = self._tickets[number]
        ticket.asking.operator.seconds += time.perf_counter() - started
        self._keep(ticket, answers)
        if ticket.left == 0:
            del self._submitted[answers.ticket]
        if self._interrupts.wanted:
            raise Stopped(self._how_to_go_on())
        return number, ticket.wanted[answers.rows]

    def _next(self) -> EngineAnswers | None:
        """Some answers of the engine, which uses less memory where it had too little."""
        while self._work is not None:
            try:
                return next(self._work, None)
            except OutOfMemory as error:
                reason = str(error)
            self._use_less(reason)
        return None

    def _use_less(self, reason: str) -> None:
        """Go on with what has no answer in a session that needs less memory.

        Raises:
            RunError: the engine cannot do with less.
        """
        self._stack.close()
        self._session = self._work = None
        if self._engine is not None:
            shrink(self._engine, reason, self._report.notes, self._how_to_go_on())
        session = self._open()
        self._submitted.clear()
        for number, ticket in self._tickets.items():
            question = ticket.asking.call.question
            found, _ = self._answers.of(question).find(ticket.wanted)
            ticket.wanted, ticket.keys = ticket.wanted[~found], ticket.keys[~found]
            batch = PromptBatch(question, ticket.wanted, ticket.reads)
            self._submitted[session.submit(batch)] = number
        self._work = session.run()

    def check(self) -> None:
        """Judge the shares of failed prompts, now that every prompt has its answer.

        Raises:
            RunError: more failed than `max_error_ratio` allows.
        """
        for index, call in self._calls.items():
            operator = self._report.operators[index]
            cut, windows = self._answers.windows(call).made
            if cut:
                note = f"{operator.call}: {cut:,} prompts were too long and became {windows:,}."
                self._report.notes.append(note)
            self._check_errors(call, operator)

    def _how_to_go_on(self) -> str:
        if self._stored is None:
            return "Stopped. Its answers are not kept: there is no answer store for them."
        return (
            "Stopped. The answers so far are kept: run the same query again and it goes on "
            "where it was."
        )

    def reached(self, share: float) -> None:
        """See `Asking.reached`: totals are expected to grow in the same proportion."""
        self._share = share

    def release(self, documents: Int64) -> None:
        """Tell the engine that documents will not be read again."""
        if self._session is not None:
            self._session.release(documents)

    def paused(self, seconds: float) -> None:
        """For so long whoever reads the result has kept the query waiting."""
        if self._watch is not None:
            self._watch.paused(seconds)

    def check_budget(self) -> None:
        """See `Asking.check_budget`."""
        if self._watch is not None:
            self._watch.after(0, 0)

    def capacity(self) -> int | None:
        """Tokens the engine can hold; None before it is loaded."""
        return None if self._session is None else self._session.capacity

    def _open(self) -> EngineSession:
        if self._session is None:
            self._find_store()
            engine = self._engine or self._loaded()
            how = self._how_to_go_on()
            session = open_session(engine, self._documents, self._report.notes, how)
            self._session = self._stack.enter_context(session)
            carry_on(self._session.counters, self._report.counters)
            self._report.counters = self._session.counters
            if self._watch is not None:
                self._watch.start(kept=self._stored is not None)
        return self._session

    def _find_store(self) -> None:
        """Make the answers of earlier runs known, the first time; loads the model at need."""
        if self._store is None or self._looked_for:
            return
        self._looked_for = True
        known = self._known()
        if known is None:
            engine = self._engine or self._loaded()
            known = None if engine.fingerprint is None else (engine.name, engine.fingerprint)
        if known is not None:
            self._fingerprint = known[1]
            notes = self._report.notes
            self._stored = StoredAnswers(self._store, *known, self._documents, notes)

    def _loaded(self) -> Engine:
        started = time.perf_counter()
        self._engine = engine = self._load()
        if self._stored is not None and engine.fingerprint != self._fingerprint:
            raise RunError(
                f"{engine.name} is not computed as it was when it was last loaded, so that the "
                "stored answers are not its own. Run the query again, which knows it now; where"
                " the cache folder cannot be written, with cache=False."
            )
        self._report.load_seconds = time.perf_counter() - started
        self._report.model = engine.name
        return engine

    def _keep(self, ticket: Ticket, answers: EngineAnswers) -> None:
        call, operator = ticket.asking.call, ticket.asking.operator
        self._calls[call.index] = call
        # Errors come by position in the batch, answers by position in this delivery.
        at = {int(row): i for i, row in enumerate(answers.rows)} if answers.errors else {}
        errors = {at[row]: reason for row, reason in answers.errors.items()}
        documents, scores = ticket.wanted[answers.rows], answers.scores
        failed = np.asarray(np.isnan(scores).any(axis=1))
        for i in np.flatnonzero(failed).tolist():
            errors.setdefault(i, _NO_NUMBER)
        scores = np.where(failed[:, None], np.nan, scores)
        self._answers.of(call.question).add(documents, scores, errors)
        if self._stored is not None:
            self._stored.keep(call.question, documents, scores)
        operator.prompts += len(answers.rows)
        operator.failed += int(failed.sum())
        self._count_true(call, operator, scores)
        for i, reason in errors.items():
            self._note_error(call, operator, documents[i], reason)
        self._count(ticket, answers)

    def _count_true(self, call: AICall, operator: OperatorReport, scores: Float64) -> None:
        if call.reading is Reading.TRUTH:
            true = int(true_of(call, scores).sum())
            operator.true = (operator.true or 0) + true

    def _count(self, ticket: Ticket, answers: EngineAnswers) -> None:
        asking = ticket.asking
        asking.done += len(answers.rows)
        ticket.left -= len(answers.rows)
        if ticket.left == 0:
            del self._tickets[self._submitted[answers.ticket]]
        fresh = self._report.counters.fresh_tokens - self._tokens_seen
        self._tokens_seen += fresh
        asking.tokens += fresh
        if self._watch is not None:
            self._watch.after(len(answers.rows), fresh)
        operator = asking.operator
        total = round(asking.total / self._share)
        self._progress.update(operator.call, asking.done, total, asking.tokens)
        if (
            self._share == 1.0
            and asking.done == asking.total
            and not any(other.asking is asking for other in self._tickets.values())
        ):
            self._progress.finish(operator.call)
            del self._asking[asking.call.index]
            if operator.answers >= JUDGED_FROM:
                self._check_errors(asking.call, operator)

    def _note_error(
        self, call: AICall, operator: OperatorReport, documents: Int64, reason: str
    ) -> None:
        if len(self._report.errors) < MAX_ERRORS_KEPT:
            shown = tuple(text[:_SHOWN] for text in self._documents.texts(documents))
            self._report.errors.append(RowError(operator.call, shown, reason))
        if call.options.on_error is OnError.FAIL:
            raise RunError(
                f"A prompt of {operator.call} failed: {reason}. "
                "With the option on_error => 'null' such rows become NULL instead."
            )

    def _check_errors(self, call: AICall, operator: OperatorReport) -> None:
        limit = call.options.max_error_ratio
        if limit is None or not operator.failed:
            return
        ratio = operator.failed / operator.answers
        if ratio > limit:
            first = next((e.reason for e in self._report.errors if e.call == operator.call), "")
            raise RunError(
                f"{operator.failed:,} of {operator.answers:,} prompts of {operator.call} failed "
                f"({ratio:.1%}), more than max_error_ratio {limit:g} allows. First reason: {first}"
            )
