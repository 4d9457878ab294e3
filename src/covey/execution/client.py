"""The engine of one query: loaded with the first prompt, and kept going where memory runs out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from covey.arrays import Int64
from covey.engine.base import Answers, Engine, EngineSession, OutOfMemory, PromptBatch, carry_on
from covey.engine.lazy import LazyModel
from covey.errors import RunError
from covey.execution.asking import Ticket
from covey.execution.report import Report
from covey.prompts.documents import DocumentStore


class EngineClient:
    """Has prompts answered in a session of the engine.

    Where the device has too little memory the session is closed, the engine uses less, and
    what has no answer is submitted to a new session.

    Args:
        model: is loaded when its engine is first asked for.
        report: is told of the model, its account, and of memory that ran out.

    Attributes:
        fingerprint: that the engine must have, since stored answers were found by it; None
            where no answers are kept.
        stack: closes the session.
    """

    def __init__(self, model: LazyModel, documents: DocumentStore, report: Report) -> None:
        self._model = model
        self._documents = documents
        self._report = report
        self._engine: Engine | None = None
        self._session: EngineSession | None = None
        self._answers: Iterator[Answers] | None = None
        # By the session's number of a batch.
        self._tickets: dict[int, Ticket] = {}
        self.fingerprint: str | None = None
        self.stack = ExitStack()

    @property
    def engine(self) -> Engine:
        """The engine, loaded now if it was not.

        Raises:
            RunError: it is not the one whose answers are stored.
        """
        if self._engine is None:
            started = time.perf_counter()
            self._engine = self._model.engine()
            if self.fingerprint not in (None, self._engine.fingerprint):
                raise RunError(
                    f"{self._engine.name} is not computed as it was when it was last loaded, so "
                    "that the stored answers are not its own. Run the query again, which knows "
                    "it now; where the cache folder cannot be written, with cache=False."
                )
            self._report.load_seconds = time.perf_counter() - started
            self._report.model = self._engine.name
        return self._engine

    @property
    def session(self) -> EngineSession:
        """The session, opened now if none is.

        Raises:
            RunError: the engine has no room for one, and cannot do with less.
        """
        while self._session is None:
            try:
                self._session = self.engine.session(self._documents)
            except OutOfMemory as error:
                reason = str(error)
            else:
                self.stack.enter_context(self._session)
                carry_on(self._session.counters, self._report.counters)
                self._report.counters = self._session.counters
                break
            # Not within the block above: the error holds on to what found no room.
            self._shrink(reason)
        return self._session

    @property
    def capacity(self) -> int | None:
        """Tokens that the open session can hold; None where none is open."""
        return None if self._session is None else self._session.capacity

    @property
    def under_way(self) -> list[Ticket]:
        """The tickets with prompts that have no answer, in the order of submission."""
        return list(self._tickets.values())

    @property
    def how_to_go_on(self) -> str:
        """What a person is told whose query ends early."""
        if self.fingerprint is None:
            return "Stopped. Its answers are not kept: there is no answer store for them."
        return (
            "Stopped. The answers so far are kept: run the same query again and it goes on "
            "where it was."
        )

    def submit(self, ticket: Ticket) -> None:
        """Queue the prompts of a ticket."""
        batch = PromptBatch(ticket.call.question, ticket.documents, ticket.reads)
        self._tickets[self.session.submit(batch)] = ticket

    def receive(self) -> tuple[Ticket, Answers] | None:
        """Let the engine work until it gives some answers; None where nothing is left to answer.

        Raises:
            RunError: the device is out of memory, and the engine cannot do with less.
        """
        while True:
            self._answers = self._answers or self.session.run()
            try:
                answers = next(self._answers, None)
            except OutOfMemory as error:
                reason = str(error)
            else:
                if answers is None:
                    self._answers = None
                    return None
                ticket = self._tickets[answers.ticket]
                ticket.answered(answers.rows)
                if not ticket.left:
                    del self._tickets[answers.ticket]
                return ticket, answers
            self._go_on_with_less(reason)

    def release(self, documents: Int64) -> None:
        """Tell the engine that documents, (n,) ids, will not be anchors again."""
        if self._session is not None:
            self._session.release(documents)

    def _go_on_with_less(self, reason: str) -> None:
        """Submit what has no answer to a session that needs less memory."""
        self.stack.close()
        self._session = self._answers = None
        self._shrink(reason)
        left = self.under_way
        self._tickets.clear()
        for ticket in left:
            ticket.drop_answered()
            self.submit(ticket)

    def _shrink(self, reason: str) -> None:
        """Let the engine, which has no open session, use less memory, and note it.

        Raises:
            RunError: it cannot do with less.
        """
        done = self.engine.shrink()
        if done is None:
            raise RunError(f"{reason} It cannot use less. {self.how_to_go_on}")
        self._report.notes.append(f"The device was out of memory: the query went on with {done}.")
