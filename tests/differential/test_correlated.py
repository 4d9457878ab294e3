"""Subqueries whose conditions mix an AI call with an expression over a column outside."""

from __future__ import annotations

import pytest

from differential.statements import Statements

SCORE = "AI.SCORE(PROMPT('q {0}', u.b))"
# Conditions that neither the subquery nor the query around it decides alone.
MIXED = (
    f"{SCORE} > t.n / 3",
    f"{SCORE} * t.n > 1",
    f"t.n / 3 < {SCORE} AND u.n > 1",
    "AI.IF(PROMPT('q {0}', u.b)) = (t.n = 1)",
    "AI.CLASSIFY(u.b, ['x', 'y']) = lower(t.a)",
    "AI.CLASSIFY(u.b, ['x', 'y']) || t.a > 'x'",
    f"{SCORE} > coalesce(t.n, 0) / 4",
    "CASE WHEN t.n > 2 THEN AI.IF(PROMPT('q {0}', u.b)) ELSE t.n = 1 END",
    f"({SCORE}, u.n) > (t.n / 3, t.n)",
    f"u.n BETWEEN {SCORE} * t.n AND t.n * 2",
    f"{SCORE} * 3 > t.n AND AI.IF(PROMPT('z {{0}}', t.a))",
    f"AI.IF(PROMPT('z {{0}}', u.b)) AND {SCORE} * 3 > t.n AND AI.IF(PROMPT('y {{0}}', u.b))",
    f"AI.IF(PROMPT('z {{0}}', u.b || t.a)) OR {SCORE} * 3 > t.n",
)
AROUND = (
    "SELECT n FROM t WHERE EXISTS (SELECT 1 FROM u WHERE {})",
    "SELECT n FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE {})",
    "SELECT n FROM t WHERE n IN (SELECT n FROM u WHERE {})",
    "SELECT n FROM t WHERE n NOT IN (SELECT n FROM u WHERE {} LIMIT 2)",
    "SELECT n FROM t WHERE n < ANY (SELECT n FROM u WHERE {})",
    "SELECT n FROM t WHERE n < ALL (SELECT n FROM u WHERE {})",
    "SELECT n, (SELECT count(*) FROM u WHERE {}) AS c FROM t",
    "SELECT n, (SELECT max(u.n) FILTER (WHERE {}) FROM u) AS c FROM t",
    "SELECT t.n, x.b FROM t, LATERAL (SELECT b FROM u WHERE {}) AS x",
    "SELECT n FROM t WHERE EXISTS (SELECT 1 FROM (SELECT * FROM u WHERE {}) AS v WHERE v.n > 1)",
    "SELECT n FROM t WHERE EXISTS (WITH c AS (SELECT * FROM u WHERE {}) SELECT 1 FROM c)",
    "SELECT n FROM t WHERE EXISTS (SELECT 1 FROM u JOIN u AS w ON {})",
    "SELECT n FROM t WHERE EXISTS (SELECT 1 FROM u LEFT JOIN u AS w ON w.n > 1 WHERE {})",
)
CHANGES = (
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE {})",
    "UPDATE t SET n = 9 WHERE n IN (SELECT n FROM u WHERE {})",
)


def some(arounds: tuple[str, ...]) -> list[str]:
    """Each condition in three of the places, each place with three conditions or so."""
    return [
        around.format(condition)
        for i, around in enumerate(arounds)
        for j, condition in enumerate(MIXED)
        if (i + j) % 4 == 0
    ]


@pytest.mark.parametrize("statement", some(AROUND))
def test_they_give_what_duckdb_gives(statements: Statements, statement: str) -> None:
    assert statements.check(statement) is None
    asked = statements.recorder.asked
    assert len(asked) == len(set(asked)), "a prompt was asked twice"


@pytest.mark.parametrize("statement", some(CHANGES))
def test_they_change_the_rows_that_duckdb_changes(statements: Statements, statement: str) -> None:
    assert statements.check(statement, then="FROM t") is None
