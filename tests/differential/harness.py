"""Runs one random query through Covey and through the oracle.

A failure prints both texts, the tables as statements, and the variables of `effort` to see it
again.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, Phase, event, note, seed, settings

import covey
from covey.execution import batch_size
from covey.testing import PlantedModel
from differential.compare import difference
from differential.oracle import Asked, Oracle, Recorder, classification, judgement
from differential.tables import as_values
from differential.tree import Call, Sql
from effort import EXAMPLES, SEED, USUAL, scaled


@dataclass(frozen=True, slots=True)
class Case:
    """A query with its tables.

    Attributes:
        query: the whole query; for `limit`, the query without its LIMIT.
        tables: name -> rows.
        ordered: it has a total ORDER BY.
        limit: append LIMIT n; any n of its rows are right.
        bounds: (call, relation): the call may be asked only about rows of the
            relation, "FROM ... WHERE ..." with the conditions that need no model.
        planned: the bounds hold also where Covey runs a call by fixpoint re-execution.
    """

    query: Sql
    tables: dict[str, pa.Table]
    ordered: bool = False
    limit: int | None = None
    bounds: tuple[tuple[Call, Sql], ...] = ()
    planned: bool = False

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # The harness prints a failing case as SQL; Hypothesis would print the tree.
        printer.text("Case(see below)")


def fuzz(share: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: this test runs its share of the examples."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        chosen = settings(
            max_examples=scaled(USUAL * share),
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        )
        return seed(SEED)(chosen(test))

    return decorate


class Pair:
    """One Covey connection and one oracle for all examples of a test module."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        model = PlantedModel(self._recorder.answer, self._recorder.label)
        self._covey = covey.connect(model=model, progress=False)
        self._oracle = Oracle()

    def check(self, case: Case) -> None:
        """Assert that Covey answers as the oracle does, and asks no more than it may."""
        self._describe(case)
        for name, table in case.tables.items():
            self._covey.register(name, table)
            self._oracle.register(name, table)
        text = case.query.covey()
        if case.limit is not None:
            text += f" LIMIT {case.limit}"
        try:
            expected = self._oracle.arrow(case.query.oracle())
        except duckdb.Error as error:
            event("refused by the oracle")
            note(f"the oracle refuses: {error}")
            self._check_refusal(text)
            return
        self._recorder.clear()
        query = self._covey.sql(text)
        got = self._result(query, text)
        found = difference(got, expected, ordered=case.ordered, limit=case.limit)
        assert found is None, found
        on_demand = [each.how for each in query.report.operators if each.how != "planned"]
        for reason in on_demand:
            event(f"on demand: {reason}")
        # A call that runs by fixpoint re-execution may ask more than a plan would.
        self._check_asked(case.bounds if case.planned or not on_demand else ())

    def _result(self, query: covey.Query, text: str) -> pa.Table:
        """The result, of every other text read in batches, of which the first are very small."""
        if zlib.crc32(text.encode()) % 2:
            return query.arrow()
        with patch.object(batch_size, "FIRST_BATCH", 2):
            return pa.Table.from_batches(list(query.batches(early=True)))

    def _check_refusal(self, text: str) -> None:
        try:
            got = self._covey.sql(text).arrow()
        except (covey.QueryError, covey.RunError):
            return
        raise AssertionError(f"DuckDB refuses this query, Covey gave {got}")

    def _check_asked(self, bounds: tuple[tuple[Call, Sql], ...]) -> None:
        counts = Counter(self._recorder.exact)
        twice = {prompt: n for prompt, n in counts.items() if n > 1}
        assert not twice, f"asked more than once: {twice}"
        if not bounds:
            return
        allowed: set[Asked] = set()
        for call, relation in bounds:
            allowed |= self._may_be_asked(call, relation)
        beyond = set(self._recorder.asked) - allowed
        assert not beyond, f"asked about no candidate row: {beyond}"

    def _may_be_asked(self, call: Call, relation: Sql) -> set[Asked]:
        if not call.prompt.documents():
            return {judgement(call.template(), ())}
        found = self._oracle.arrow(f"SELECT DISTINCT {call.documents()} {relation.oracle()}")
        prompts = set()
        for documents in found.column(0).to_pylist():
            if None in documents:
                continue
            if call.labels:
                prompts.add(classification(call.template(), call.labels, tuple(documents)))
            else:
                prompts.add(judgement(call.template(), tuple(documents)))
        return prompts

    def _describe(self, case: Case) -> None:
        note(f"COVEY_FUZZ_SEED={SEED} COVEY_FUZZ_EXAMPLES={EXAMPLES}")
        for name, table in case.tables.items():
            note(as_values(name, table))
        limit = "" if case.limit is None else f" LIMIT {case.limit}"
        note(f"Covey:  {case.query.covey()}{limit}")
        note(f"oracle: {case.query.oracle()}")
