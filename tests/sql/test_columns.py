"""Sources are loaded without the columns that a statement cannot read."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.sql.columns import named_columns
from covey.sql.structure import find_blocks
from covey.sql.text import TokenList
from covey.testing import PlantedModel


def names(sql: str) -> frozenset[str] | None:
    tokens = TokenList(sql)
    return named_columns(tokens, find_blocks(tokens, []))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t",
        "SELECT t.* FROM t",
        "SELECT a, COLUMNS('b.*') FROM t",
        "SELECT t FROM t",
        "SELECT x['a'] FROM t AS x",
        "SELECT a FROM t NATURAL JOIN u",
        "FROM t",
        "SELECT a FROM (SELECT * FROM t)",
        "SELECT x FROM t AS x(a, b)",
    ],
)
def test_a_statement_that_may_read_more_than_it_names_keeps_all_columns(sql):
    assert names(sql) is None


@pytest.mark.parametrize(
    ("sql", "read", "unread"),
    [
        ("SELECT a FROM t WHERE b > 1", {"a", "b"}, {"c"}),
        ('SELECT "A" FROM t', {"a"}, {"b"}),
        # Names are given by place: all that have one are loaded.
        ("SELECT a FROM t AS x(a, b)", {"a", "b"}, {"c"}),
        ("SELECT count(*), a * 2 FROM t GROUP BY ALL", {"a"}, {"b"}),
        ("SELECT x.a FROM t AS x JOIN u USING (k)", {"a", "k"}, {"b"}),
        ("SELECT t.a FROM t, s.t2 AS u WHERE u.k = t.k", {"a", "k"}, {"b"}),
    ],
)
def test_the_columns_read_are_among_the_names(sql, read, unread):
    found = names(sql)
    assert found is not None
    assert read <= found
    assert not unread & found


def test_a_source_is_loaded_with_the_columns_it_is_read_by():
    with covey.connect(model=PlantedModel(lambda question, documents: 0.9)) as con:
        con.register("t", pa.table({"id": [1, 2], "body": ["x", "y"], "unread": [b"1", b"2"]}))
        query = con.sql("SELECT count(*) AS n FROM t WHERE AI.IF(PROMPT('Q {0}', body))")
        assert query.fetchall() == [(2,)]
        assert con.run("SELECT t FROM t WHERE AI.IF(t.body)").fetchall()[0][0]["unread"] == b"1"
