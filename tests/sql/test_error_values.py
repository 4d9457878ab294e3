"""`on_error => 'value'`: the answer beside the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import covey
from covey.errors import QueryError
from covey.testing import PlantedModel

REASON = "the planted answer is None"
GOOD, BAD, NOTHING = (
    {"value": True, "error": None},
    {"value": None, "error": REASON},
    {"value": None, "error": None},
)


@pytest.fixture
def model() -> PlantedModel:
    return PlantedModel(
        lambda question, documents: None if "bad" in documents[-1] else 0.75,
        lambda question, labels, documents: None if "bad" in documents[0] else 1,
    )


@pytest.fixture
def con(model: PlantedModel) -> Iterator[covey.Connection]:
    with covey.connect(model=model, progress=False) as connection:
        connection.duckdb.execute(
            "CREATE TABLE t AS FROM (VALUES (1, 'good'), (2, 'bad'), (3, NULL)) AS v(id, body)"
        )
        yield connection


@pytest.mark.parametrize(
    "call",
    [
        "AI.IF(PROMPT('x {0}', body), on_error => 'value')",
        "AI.IF(('x ', body), return_error_details => TRUE)",
        "AI_FILTER(PROMPT('x {0}', body), TRUE)",
        "AI_FILTER(PROMPT('x {0}', body), {'on_error': 'value', 'return_error_details': TRUE})",
        # On demand, not planned: the block has no source that could be loaded by itself.
        "(SELECT AI.IF(PROMPT('x {0}', t.body), on_error => 'value') FROM range(1))",
    ],
)
def test_one_of_value_and_error_is_null_and_both_for_a_null_document(
    con: covey.Connection, call: str
) -> None:
    rows = con.sql(f"SELECT id, {call} AS r FROM t ORDER BY id").fetchall()
    assert rows == [(1, GOOD), (2, BAD), (3, NOTHING)]


@pytest.mark.parametrize(
    ("call", "kind", "good"),
    [
        ("AI.SCORE(('x ', body), on_error => 'value')", "DOUBLE", 0.75),
        ("AI.CLASSIFY(body, ['a', 'b'], on_error => 'value')", "VARCHAR", "b"),
    ],
)
def test_the_struct_has_the_type_of_the_function(
    con: covey.Connection, call: str, kind: str, good: object
) -> None:
    text = f"SELECT typeof({call}), ({call}).value, ({call}).error FROM t WHERE id < 3 ORDER BY id"
    named = f'STRUCT("value" {kind}, "error" VARCHAR)'
    plain = f'STRUCT("value" {kind}, error VARCHAR)'
    rows = con.sql(text).fetchall()
    assert {row[0] for row in rows} <= {named, plain}
    assert [row[1:] for row in rows] == [(pytest.approx(good), None), (None, REASON)]


def test_the_error_column_filters_rows(con: covey.Connection, model: PlantedModel) -> None:
    query = con.sql(
        "SELECT id FROM t WHERE (AI.IF(('x ', body), on_error => 'value')).error IS NOT NULL"
    )
    assert query.fetchall() == [(2,)]
    assert sorted(model.calls) == [("x {0}", ("bad",)), ("x {0}", ("good",))]


def test_an_equal_call_shares_the_answer_and_its_reason(
    con: covey.Connection, model: PlantedModel
) -> None:
    query = con.sql(
        "SELECT id, AI.IF(('x ', body)) AS plain, AI.IF(('x ', body), on_error => 'value') AS r "
        "FROM t ORDER BY id"
    )
    assert query.fetchall() == [(1, True, GOOD), (2, None, BAD), (3, None, NOTHING)]
    assert len(model.calls) == 2


def test_pairs_keep_their_own_reasons(con: covey.Connection) -> None:
    query = con.sql(
        "SELECT a.id, b.id, (AI.IF(PROMPT('{0} {1}', a.body, b.body), on_error => 'value')).error "
        "FROM t AS a, t AS b WHERE a.id < 3 AND b.id < 3 ORDER BY ALL"
    )
    assert query.fetchall() == [(1, 1, None), (1, 2, REASON), (2, 1, None), (2, 2, REASON)]


def test_a_constant_call_gives_its_reason(con: covey.Connection) -> None:
    query = con.sql("SELECT AI.IF(PROMPT('x {0}', 'bad'), on_error => 'value') AS r")
    assert query.fetchall() == [(BAD,)]


def test_contradicting_options_are_refused(con: covey.Connection) -> None:
    with pytest.raises(QueryError, match="contradict each other"):
        con.sql("SELECT AI.IF(body, on_error => 'fail', return_error_details => TRUE) FROM t")
