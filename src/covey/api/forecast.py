"""What a statement is expected to take, and what it took, for those who ask."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from covey.api.explain import explain, explain_values
from covey.api.frontend import Frontend, PreparedPlan, run_error
from covey.errors import InputError, ModelError, RunError
from covey.estimate.figures import Range
from covey.estimate.forecast import Actual, CallActual, DryResult, Forecast
from covey.estimate.lengths import LengthBook
from covey.estimate.profile import ByteMeasure, ModelProfile
from covey.execution.answers import QueryAnswers
from covey.execution.dry import Stored
from covey.execution.dry_run import DryRun
from covey.execution.report import Report
from covey.execution.store.stored_answers import StoredAnswers
from covey.optimizer.choice import OrderChooser
from covey.optimizer.estimate import estimate, pass_rates, scenarios, with_stored
from covey.plan.nodes import PhysicalPlan
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import DEFAULT_LAYOUT, LAYOUTS
from covey.sql.rewritten import RewrittenSql

if TYPE_CHECKING:
    from covey.api.connection import Connection


PRICE_VARIABLE = "COVEY_PRICE_PER_HOUR"


def read_price(given: float | None) -> float | None:
    """US dollars an hour as the user gives them, None where nothing is given.

    Raises:
        InputError: it is no number of at least 0.
    """
    written = os.environ.get(PRICE_VARIABLE) if given is None else given
    if written is None:
        return None
    try:
        price = float(written)
    except (TypeError, ValueError):
        price = math.nan
    if not 0 <= price < math.inf:
        name = PRICE_VARIABLE if given is None else "price_per_hour"
        raise InputError(
            f"{name} is in US dollars an hour, a number of at least 0, not {written!r}."
        )
    return price


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a query is expected to take; nothing was asked to find it out.

    Each figure has its bounds and an expected value. Where pass rates are not known before
    the query runs, `known` is False: the bounds hold, and the expected values are but their
    middle.

    Attributes:
        calls: model calls: distinct prompts.
        tokens: tokens computed.
        seconds: of the model's work, loading it apart; None where the device is not known
            or the model does no work of its own.
        money: US dollars for that time; None likewise.
        known: whether every pass rate that matters is known.
    """

    calls: Range
    tokens: Range
    seconds: Range | None
    money: Range | None
    known: bool

    @classmethod
    def of(cls, parts: Sequence[Forecast]) -> Estimate:
        """The estimate of some statements, one behind the other."""
        whole = Range.exactly(0.0)
        seconds = [part.seconds for part in parts if part.seconds is not None]
        money = [part.money for part in parts if part.money is not None]
        return cls(
            sum((part.calls for part in parts), whole),
            sum((part.fresh for part in parts), whole),
            sum(seconds, whole) if seconds else None,
            sum(money, whole) if money else None,
            all(part.known for part in parts),
        )


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan and its forecast.

    Attributes:
        plan: what would run.
        forecast: of it.
        kv_bytes: of one token's keys and values; None where they are not known.
        note: stands for the plan of what DuckDB does not run.
    """

    plan: PhysicalPlan
    forecast: Forecast
    kv_bytes: float | None = None
    note: str | None = None

    def text(self, report: Report | None = None) -> str:
        """As text; with a report, beside what happened."""
        if self.note is not None:
            return self.note if report is None else f"{self.note}\n{report}"
        return explain(self.plan, self.forecast, self._actual(report))

    def values(self, report: Report | None = None) -> dict[str, Any]:
        """As plain values."""
        if self.note is not None:
            happened = {} if report is None else {"report": report.to_dict()}
            return {"note": self.note} | happened
        return explain_values(self.plan, self.forecast, self._actual(report))

    def _actual(self, report: Report | None) -> Actual | None:
        if report is None:
            return None
        counters, price = report.counters, self.forecast.price
        peak = None if self.kv_bytes is None else counters.peak_slots * self.kv_bytes
        return Actual(
            calls=counters.prompts,
            requested=counters.requested_tokens,
            fresh=counters.fresh_tokens,
            minimum=counters.minimum_tokens,
            seconds=report.seconds,
            money=None if price is None else report.seconds * price / 3600.0,
            peak=peak,
            asked={
                index: CallActual(done.prompts, done.stored, done.true, done.failed)
                for index, done in enumerate(report.operators)
            },
        )


# Stands for a statement that cannot be planned before those in front of it have run.
LATER = Explained(
    PhysicalPlan("", [], [], ""),
    Forecast(),
    note="planned when the statements before it have run",
)


# Stands for one that has run and cannot be planned any more.
DONE = Explained(PhysicalPlan("", [], [], ""), Forecast(), note="it has run, and cannot run again")


def explained(frontend: Frontend, expanded: RewrittenSql) -> Explained:
    """Plan a statement and say what it is expected to take; nothing is asked.

    Raises:
        QueryError: it is wrong; at the place in the user's text.
    """
    answers, documents = QueryAnswers(), DocumentStore()
    with frontend.prepare(expanded, answers, documents) as planned:
        plan = planned.plan
        if not plan.calls:
            return Explained(plan, Forecast())
        profile, note = _profile(frontend.connection)
        found = _forecast(frontend.connection, planned, (answers, documents), profile, note)
        kv_bytes = None if profile.costs is None else profile.costs.kv_bytes
        return Explained(plan, found, kv_bytes)


def _profile(connection: Connection) -> tuple[ModelProfile, str | None]:
    """What is known of the model, and why that is little where its files are damaged."""
    try:
        return connection.model_profile(), None
    except ModelError as error:
        return ModelProfile(ByteMeasure(LAYOUTS[DEFAULT_LAYOUT])), str(error)


def _stored(
    connection: Connection, profile: ModelProfile, documents: DocumentStore
) -> Stored | None:
    """Finds answers of earlier runs, where it is known which are this model's."""
    engine, store = connection.loaded, connection.store
    fingerprint = profile.fingerprint if engine is None else engine.fingerprint
    if store is None or fingerprint is None:
        return None
    notes: list[str] = []
    return StoredAnswers(store, connection.model_name, fingerprint, documents, notes).find


def _forecast(
    connection: Connection,
    planned: PreparedPlan,
    parts: tuple[QueryAnswers, DocumentStore],
    profile: ModelProfile,
    note: str | None,
) -> Forecast:
    plan, (answers, documents) = planned.plan, parts
    rates = pass_rates(plan.calls)
    alike = {call.index: call.same_as for call in plan.calls}
    lengths = LengthBook(documents, profile.measure, profile.shares)
    dry = DryRun(
        plan, connection.duckdb, planned.objects, planned.lookups, answers, documents, lengths,
        profile.capacity,
        OrderChooser(plan.calls, lambda: profile), _stored(connection, profile, documents),
    )  # fmt: skip
    try:
        with dry:
            results = [dry.run(scenario) for scenario in scenarios(rates, alike)]
            known = with_stored(rates, results[0])
            if known != rates:
                rates = known
                results = [dry.run(scenario) for scenario in scenarios(rates, alike)]
    except (duckdb.Error, RunError) as error:
        # The run will meet the same, and say so in its place.
        reason = str(run_error(error) if isinstance(error, duckdb.Error) else error)
        if isinstance(error, duckdb.InterruptException):
            reason = "its sources take DuckDB too long to count"
        results = [DryResult({}, 0.0, {call.index: reason for call in plan.calls})]
    notes = () if note is None else (note,)
    return estimate(plan.calls, results, rates, dry.loads, profile, connection.price, notes)
