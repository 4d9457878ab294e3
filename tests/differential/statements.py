"""Statements in Covey's SQL, each run by Covey and, its calls written over, by the oracle."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

import covey
from covey.testing import PlantedModel
from differential.compare import difference
from differential.oracle import Oracle, Recorder
from differential.translate import translate

# Made anew for every statement, so that those that change rows are apart from each other.
TABLES = """
    CREATE OR REPLACE TABLE t AS FROM (VALUES
        ('an apple', 1, DATE '2026-01-31'), ('banana', 2, DATE '2026-02-01'),
        ('cherry', 3, NULL), (NULL, 4, DATE '2026-03-01'), ('12', 5, DATE '2026-04-01')
    ) AS v(a, n, d);
    CREATE OR REPLACE TABLE u AS FROM (VALUES ('pan', 1), ('dog', 2), ('fan', 3), (NULL, 2))
    AS v(b, n);
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What Covey said to a statement that the oracle runs."""

    error: covey.CoveyError


class Statements:
    """A Covey connection and an oracle with the same tables."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        model = PlantedModel(self.recorder.answer, self.recorder.label)
        self._covey = covey.connect(model=model, cache=False, progress=False)
        self._oracle = Oracle()

    def check(
        self, statement: str, then: str | None = None, ordered: bool = False
    ) -> Refusal | None:
        """Assert that Covey does as the oracle; where both refuse it, that Covey says where.

        Args:
            statement: one statement with AI calls.
            then: a query without calls that shows what the statement did.
            ordered: it has a total ORDER BY.

        Returns:
            Covey's refusal of what the oracle runs; the caller says whether it may refuse.
        """
        for side in (self._covey.duckdb.execute, self._oracle.execute):
            side(TABLES)
        self.recorder.clear()
        try:
            expected = self._oracle.run(translate(statement), then)
        except duckdb.Error:
            expected = None
        try:
            got = self._covey.sql(statement).arrow()
            got = got if then is None else self._covey.sql(then).arrow()
        except covey.CoveyError as error:
            if expected is not None:
                return Refusal(error)
            return None
        assert expected is not None, f"DuckDB refuses {statement}, Covey gave {got}"
        # An output without an alias is called after its text, which differs.
        found = difference(got.rename_columns(expected.column_names), expected, ordered=ordered)
        assert found is None, f"{statement}\n{found}"
        return None

    def names(self, query: str) -> list[str]:
        """What Covey calls the columns of a query."""
        return [str(name) for name in self._covey.sql(query).arrow().column_names]
