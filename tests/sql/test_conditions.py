"""Which calls stand as conditions: what is compared, or a bound of BETWEEN, does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import covey
from covey.errors import QueryError
from covey.testing import PlantedModel

SCORE = "AI.SCORE(PROMPT('Is it? {0}', body))"
LABEL = "AI.CLASSIFY(body, ['a', 'b'])"
VALUE = "AI.IF(PROMPT('Is it? {0}', body), on_error => 'value')"


@pytest.fixture(scope="module")
def con() -> Iterator[covey.Connection]:
    model = PlantedModel(lambda question, documents: 0.75, lambda question, labels, documents: 0)
    with covey.connect(model=model, progress=False) as connection:
        connection.run("CREATE TABLE t AS SELECT 1 AS id, 'x' AS body")
        yield connection


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT id FROM t WHERE {SCORE} > 0.5 AND {LABEL} = 'a'",
        f"SELECT id FROM t WHERE ({SCORE}) > 0.5 AND NOT ({LABEL}) = 'b'",
        f"SELECT id FROM t WHERE 0.8 BETWEEN 0.1 AND {SCORE} OR id = 1",
        f"SELECT id FROM t WHERE 0.8 BETWEEN {SCORE} AND 1",
        f"SELECT id FROM t WHERE id = 1 AND 0.5 < {SCORE}",
        f"SELECT id FROM t WHERE {VALUE}.value AND ({VALUE}).value",
        f"SELECT DISTINCT ON ({LABEL}) id FROM t",
        f"SELECT id FROM t WHERE ({LABEL}, id) = ('a', 1)",
        f"SELECT id FROM t WHERE NOT {LABEL} IS NULL AND {LABEL} IN ('a')",
        f"SELECT id FROM t WHERE {SCORE}::BOOLEAN",
        f"SELECT id FROM t WHERE CASE WHEN {SCORE} > 0 THEN {SCORE} ELSE 0 END > 0",
    ],
)
def test_a_value_that_is_used_as_one_is_taken(con: covey.Connection, sql: str) -> None:
    assert con.sql(sql).fetchall() == [(1,)]


@pytest.mark.parametrize("call", [SCORE, LABEL, VALUE])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM t WHERE {}",
        "SELECT id FROM t WHERE (({}) AND id = 1)",
        "SELECT id FROM t WHERE id BETWEEN 0 AND 1 AND {} LIMIT 1",
        "SELECT t.id FROM t JOIN t AS u USING (id) WHERE t.id = 1 OR {}",
        "SELECT {} AND id = 1 FROM t",
        "SELECT count(*) FILTER (WHERE {}) FROM t",
        "SELECT id FROM t WHERE NOT {} UNION ALL SELECT 1",
        "SELECT id FROM t QUALIFY {}",
    ],
)
def test_a_value_that_is_no_condition_is_refused(
    con: covey.Connection, sql: str, call: str
) -> None:
    with pytest.raises(QueryError, match="and a condition is TRUE or FALSE"):
        con.sql(sql.format(call))
