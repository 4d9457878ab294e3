"""What a statement is expected to take, for those who ask."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from covey.api.explain import Explained
from covey.api.frontend import Frontend, PreparedPlan, run_error
from covey.errors import InputError, ModelError, RunError
from covey.estimate.dry_result import DryResult
from covey.estimate.figures import ZERO, Range
from covey.estimate.forecast import Forecast, forecast
from covey.estimate.lengths import DocumentLengths
from covey.estimate.profile import ByteMeasure, ModelProfile
from covey.estimate.scenarios import hinted, scenarios, with_stored
from covey.execution.answers import QueryAnswers
from covey.execution.dry_asker import DryAsker, Stored
from covey.execution.dry_run import DryRun
from covey.execution.ordering.chooser import OrderChooser
from covey.execution.source_samples import SourceSamples
from covey.execution.steps import StepRunner
from covey.execution.store.stored_answers import StoredAnswers
from covey.prompts.documents import DocumentStore
from covey.prompts.layout import DEFAULT_LAYOUT, LAYOUTS
from covey.sql.call_parser import RawCall
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

    Each figure has its bounds and an expected value. Where selectivities are not known before
    the query runs, `known` is False: the bounds hold, and the expected values are but their
    middle.

    Attributes:
        calls: model calls: distinct prompts.
        tokens: tokens computed.
        seconds: of the model's work, loading it apart; None where the device is not known
            or the model does no work of its own.
        money: US dollars for that time; None likewise.
        known: whether every selectivity that matters is known.
    """

    calls: Range
    tokens: Range
    seconds: Range | None
    money: Range | None
    known: bool

    @classmethod
    def of(cls, parts: Sequence[Forecast]) -> Estimate:
        """The estimate of some statements, one behind the other."""
        seconds = [part.seconds for part in parts if part.seconds is not None]
        money = [part.money for part in parts if part.money is not None]
        return cls(
            sum((part.calls for part in parts), ZERO),
            sum((part.fresh for part in parts), ZERO),
            sum(seconds, ZERO) if seconds else None,
            sum(money, ZERO) if money else None,
            all(part.known for part in parts),
        )


def explained(frontend: Frontend, expanded: RewrittenSql, calls: tuple[RawCall, ...]) -> Explained:
    """Plan a statement and say what it is expected to take; nothing is asked.

    Raises:
        QueryError: it is wrong; at the place in the user's text.
    """
    answers, documents = QueryAnswers(), DocumentStore()
    with frontend.prepare(expanded, calls, answers, documents) as planned:
        plan = planned.plan
        if not plan.calls:
            return Explained(plan)
        profile = _profile(frontend.connection)
        found = _forecast(frontend.connection, planned, answers, documents, profile)
        return Explained(plan, found, None if profile.costs is None else profile.costs.kv_bytes)


def _profile(connection: Connection) -> ModelProfile:
    """What is known of the model; why that is little where its files are damaged."""
    try:
        return connection.model.source.profile()
    except ModelError as error:
        return ModelProfile(ByteMeasure(LAYOUTS[DEFAULT_LAYOUT]), note=str(error))


def _stored(
    connection: Connection, profile: ModelProfile, documents: DocumentStore
) -> Stored | None:
    """Finds answers of earlier runs, where it is known which are this model's."""
    engine, store = connection.model.loaded, connection.store
    fingerprint = profile.fingerprint if engine is None else engine.fingerprint
    if store is None or fingerprint is None:
        return None
    return StoredAnswers(store, connection.model.source.name, fingerprint, documents, []).find


def _forecast(
    connection: Connection,
    planned: PreparedPlan,
    answers: QueryAnswers,
    documents: DocumentStore,
    profile: ModelProfile,
) -> Forecast:
    plan, calls = planned.plan, planned.plan.calls
    selectivities = hinted(calls)
    alike = {call.index: call.same_as for call in calls}
    lengths = DocumentLengths(documents, profile.measure, profile.shares)
    stored = _stored(connection, profile, documents)
    chooser = OrderChooser(calls, lambda: profile)
    samples = SourceSamples(plan, connection.duckdb, planned.objects)

    def run(shares: Mapping[int, float]) -> DryResult:
        answers.clear()
        asker = DryAsker(answers, lengths, shares, profile.capacity, stored)
        steps = StepRunner(calls, samples.relations, planned.lookups, asker, documents)
        return DryRun(plan, samples, steps, asker, chooser).run()

    try:
        with samples:
            results = [run(shares) for shares in scenarios(selectivities, alike)]
            known = with_stored(selectivities, results[0])
            if known != selectivities:
                selectivities = known
                results = [run(shares) for shares in scenarios(known, alike)]
    except (duckdb.Error, RunError) as error:
        # The run will meet the same, and say so in its place.
        reason = str(run_error(error) if isinstance(error, duckdb.Error) else error)
        if isinstance(error, duckdb.InterruptException):
            reason = "its sources take DuckDB too long to count"
        results = [DryResult(unknown={call.index: reason for call in calls})]
    return forecast(calls, results, selectivities, samples.loads, profile, connection.price)
