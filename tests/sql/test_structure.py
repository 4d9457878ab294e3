"""Blocks, sources, joins and conjuncts, read from tokens alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.logical.calls import CallPlaces
from covey.logical.query_blocks import JoinKind, Kind, QueryBlock
from covey.sql.boolean import conjuncts, read_expression
from covey.sql.structure import find_blocks
from covey.sql.text import TokenList
from covey.testing import PlantedModel


def blocks_of(sql: str) -> list[QueryBlock]:
    return find_blocks(TokenList(sql), [])


def conjuncts_of(condition: str) -> list[str]:
    tokens = TokenList(condition)
    found = conjuncts(tokens, 0, len(tokens), CallPlaces([]))
    return [condition[slice(*expr.span)] for expr in found]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a AND b", ["a", "b"]),
        ("a OR b AND c", ["a OR b AND c"]),
        ("x BETWEEN 1 AND 2 AND y", ["x BETWEEN 1 AND 2", "y"]),
        ("(a AND (b AND c)) AND d", ["a", "b", "c", "d"]),
        ("CASE WHEN a AND b THEN c END AND d", ["CASE WHEN a AND b THEN c END", "d"]),
        ("NOT a AND b", ["NOT a", "b"]),
        ("f(a AND b)", ["f(a AND b)"]),
        ("x NOT BETWEEN 1 AND 2 OR y AND z", ["x NOT BETWEEN 1 AND 2 OR y AND z"]),
        ("EXISTS (SELECT 1 WHERE p AND q) AND r", ["EXISTS (SELECT 1 WHERE p AND q)", "r"]),
    ],
)
def test_conjuncts_follow_the_precedence_of_sql(condition, expected):
    assert conjuncts_of(condition) == expected


@pytest.mark.parametrize(
    ("text", "kind", "parts"),
    [
        ("a OR b OR c", Kind.OR, ["a", "b", "c"]),
        ("NOT (a OR b)", Kind.NOT, ["a OR b"]),
        ("CASE WHEN a THEN b ELSE c END", Kind.CASE, ["a", "b", "c"]),
        ("CASE x WHEN a THEN b END", Kind.CASE_OF, ["x", "a", "b"]),
        ("COALESCE(a, b)", Kind.COALESCE, ["a", "b"]),
        ("ifnull(a, b)", Kind.COALESCE, ["a", "b"]),
        ("if(a, b, c)", Kind.CASE, ["a", "b", "c"]),
        ("sum(a) FILTER (WHERE b)", Kind.FILTER, ["b", "a"]),
        ("CASE WHEN a THEN CASE WHEN b THEN c END END", Kind.CASE, ["a", "CASE WHEN b THEN c END"]),
    ],
)
def test_expressions_are_read_into_the_parts_that_may_be_skipped(text, kind, parts):
    tokens = TokenList(text)
    expr = read_expression(tokens, 0, len(tokens), CallPlaces([]))
    assert expr.kind is kind
    assert [text[slice(*part.span)] for part in expr.parts] == parts


def test_from_gives_sources_aliases_and_join_kinds():
    sql = (
        "SELECT 1 FROM t AS x JOIN 'dir/file.parquet' ON a = b "
        "LEFT JOIN (SELECT 2) s ON c, range(5) r(i) ANTI JOIN u USING (id)"
    )
    block = blocks_of(sql)[-1]
    written = [sql[slice(*source.span)] for source in block.sources]
    assert written == ["t", "'dir/file.parquet'", "(SELECT 2)", "range(5)", "u"]
    assert [source.alias for source in block.sources] == ["x", "file", "s", "r", "u"]
    names = [
        None if source.names is None else sql[slice(*source.names)] for source in block.sources
    ]
    assert names == [None, None, None, "(i)", None]
    kinds = [JoinKind.INNER, JoinKind.LEFT, JoinKind.INNER, JoinKind.ANTI]
    assert [join.kind for join in block.joins] == kinds
    assert [join.merges for join in block.joins] == [False, False, False, True]
    assert not block.inner


@pytest.mark.parametrize(
    ("joins", "keeps"),
    [
        ("a JOIN b ON x", [True, True]),
        ("a LEFT JOIN b ON x", [True, False]),
        ("a RIGHT JOIN b ON x", [False, True]),
        ("a FULL JOIN b ON x", [False, False]),
        ("a LEFT JOIN b ON x JOIN c ON y", [True, False, True]),
        ("a JOIN b ON x RIGHT JOIN c ON y", [False, False, True]),
    ],
)
def test_a_source_is_kept_where_no_join_fills_it_with_null(joins, keeps):
    block = blocks_of(f"SELECT 1 FROM {joins}")[0]
    assert [block.keeps(i) for i in range(len(keeps))] == keeps


def test_blocks_know_the_common_table_expressions_they_can_see():
    sql = "WITH a AS (SELECT 1 FROM t), b AS (SELECT 2 FROM a) SELECT 3 FROM b"
    seen = {
        sql[slice(*block.span)]: [sql[slice(*span)] for span in block.scope]
        for block in blocks_of(sql)
    }
    first, second = "a AS (SELECT 1 FROM t)", "b AS (SELECT 2 FROM a)"
    assert seen == {
        "SELECT 1 FROM t": [],
        "SELECT 2 FROM a": [first],
        "SELECT 3 FROM b": [first, second],
    }


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM a, LATERAL (SELECT a.x) l",
        "SELECT 1 FROM (a JOIN b ON x)",
        "SELECT 1 FROM a ASOF JOIN b ON x",
    ],
)
def test_a_form_of_from_that_planning_does_not_know_is_left_with_a_reason(sql):
    block = blocks_of(sql)[-1]
    assert not block.sources
    assert block.reason


def test_operands_of_a_set_operation_are_not_alone():
    alone = [block.alone for block in blocks_of("SELECT 1 FROM a UNION SELECT 2 FROM b LIMIT 3")]
    assert alone == [False, False]


def test_is_distinct_from_is_no_from_clause():
    block = blocks_of("SELECT a IS NOT DISTINCT FROM b FROM t WHERE c IS DISTINCT FROM d")[0]
    assert [source.alias for source in block.sources] == ["t"]
    assert len(block.where) == 1


def test_a_comma_at_the_end_of_a_list_is_allowed_as_in_duckdb():
    model = PlantedModel(lambda question, documents: 0.9 if documents[0] == "a" else 0.1)
    with covey.connect(model, progress=False) as con:
        con.register("t", pa.table({"s": ["a", "b"]}))
        query = con.run("SELECT s, AI.IF(s), FROM t, WHERE s > '' OR AI.IF(s) ORDER BY s")
        assert query.fetchall() == [("a", True), ("b", False)]
        assert [operator.how for operator in query.report.operators] == ["planned", "planned"]
