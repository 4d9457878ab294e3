"""Ask the model what is not known yet, and keep the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from covey.engine.base import Answers as EngineAnswers
from covey.engine.base import Engine, EngineSession, PromptBatch
from covey.errors import RunError
from covey.execution.answers import Answers
from covey.execution.progress import Progress
from covey.execution.readout import log_odds
from covey.execution.report import MAX_ERRORS_KEPT, OperatorReport, Report, RowError
from covey.logical.calls import AICall, OnError, Reading
from covey.prompts.documents import DocumentStore

Ints = npt.NDArray[np.int64]
_SHOWN = 60


class Asker:
    """Asks on behalf of calls; loads the model when the first prompt is asked.

    Args:
        load: gives the loaded model; called at most once.
        documents: the documents of the query.
        answers: where answers are kept.
        report: is brought up to date, one operator a call.
        progress: is told how far each call is.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        documents: DocumentStore,
        answers: Answers,
        report: Report,
        progress: Progress,
    ) -> None:
        self._load = load
        self._documents = documents
        self._answers = answers
        self._report = report
        self._progress = progress
        self._session: EngineSession | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def ask(self, call: AICall, documents: Ints) -> None:
        """Ask about tuples of documents; those with an answer are left out.

        Args:
            documents: (n, arity) distinct document ids, none NULL.

        Raises:
            RunError: a prompt failed and the call says that the query then fails.
        """
        found, _ = self._answers.of(call.question).find(documents)
        wanted = documents[~found]
        if not len(wanted):
            return
        session = self._open()
        operator = self._report.operators[call.index]
        started = time.perf_counter()
        tokens = session.counters.fresh_tokens
        done = 0
        self._progress.start(operator.call, len(wanted))
        try:
            session.submit(PromptBatch(call.question, wanted))
            for answers in session.run():
                self._keep(call, operator, wanted, answers)
                done += len(answers.rows)
                fresh = session.counters.fresh_tokens - tokens
                self._progress.update(operator.call, done, len(wanted), fresh)
        finally:
            self._progress.finish(operator.call)
            operator.seconds += time.perf_counter() - started
        self._check_errors(call, operator)

    def _open(self) -> EngineSession:
        if self._session is None:
            started = time.perf_counter()
            engine = self._load()
            self._report.load_seconds = time.perf_counter() - started
            self._report.model = engine.name
            self._session = self._stack.enter_context(engine.session(self._documents))
            self._report.counters = self._session.counters
        return self._session

    def _keep(
        self, call: AICall, operator: OperatorReport, wanted: Ints, answers: EngineAnswers
    ) -> None:
        documents = wanted[answers.rows]
        self._answers.of(call.question).add(documents, answers.scores)
        failed = int(np.isnan(answers.scores[:, 0]).sum())
        operator.prompts += len(answers.rows)
        operator.failed += failed
        if call.reading is Reading.TRUTH:
            true = int((answers.scores[:, 0] > log_odds(call.options.threshold)).sum())
            operator.true = (operator.true or 0) + true
        for row, reason in answers.errors.items():
            if len(self._report.errors) < MAX_ERRORS_KEPT:
                texts = self._documents.texts(wanted[row])
                shown = tuple(text[:_SHOWN] for text in texts)
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
        ratio = operator.failed / operator.prompts
        if ratio > limit:
            first = next((e.reason for e in self._report.errors if e.call == operator.call), "")
            raise RunError(
                f"{operator.failed:,} of {operator.prompts:,} prompts of {operator.call} failed "
                f"({ratio:.1%}), more than max_error_ratio {limit:g} allows. First reason: {first}"
            )
