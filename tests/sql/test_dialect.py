"""Both vendors' spellings: accepted side by side, detected for messages, fixed on demand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import covey
from covey.errors import InputError, QueryError, UnsupportedError
from covey.sql.call_parser import detect, find_calls
from covey.sql.functions import Dialect
from covey.sql.text import TokenList
from covey.testing import PlantedModel


def answer(question: str, documents: tuple[str, ...]) -> float | None:
    return None if "bad" in documents[0] else 0.9 if "refund" in documents[0] else 0.1


def label(question: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> int | None:
    return 1 if "refund" in documents[0] else 0


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    with covey.connect(model=PlantedModel(answer, label), progress=False) as connection:
        connection.duckdb.execute(
            "CREATE TABLE t AS FROM (VALUES (1, 'a refund'), (2, 'hello')) AS v(id, body)"
        )
        yield connection


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("SELECT AI_FILTER(PROMPT('x {0}', a))", Dialect.SNOWFLAKE),
        ("SELECT AI_CLASSIFY(a, ['x', 'y'])", Dialect.SNOWFLAKE),
        ("SELECT AI.IF(a)", Dialect.BIGQUERY),
        ("SELECT AI_SCORE(('x', a))", Dialect.BIGQUERY),
        ("SELECT AI_SCORE(prompt => a)", Dialect.BIGQUERY),
        ("SELECT AI.IF(PROMPT('x {0}', a))", None),
        ("SELECT AI_SCORE((a))", None),
        ("SELECT 1", None),
    ],
)
def test_the_dialect_is_read_off_the_calls(text: str, dialect: Dialect | None) -> None:
    tokens = TokenList(text)
    assert detect(find_calls(tokens, lambda name: False), tokens) is dialect


@pytest.mark.parametrize(
    "condition",
    [
        "AI_FILTER(PROMPT('Refund? {0}', body))",
        "AI_FILTER(PROMPT('Refund? {0}', body), {'selectivity': 0.2})",
        "AI.IF(('Refund? ', body))",
        "AI.IF(prompt => ('Refund? ', body), connection_id => 'us.x', endpoint => 'e',"
        " optimization_mode => 'MINIMIZE_COST', max_error_ratio => 0.1)",
        "AI.IF(PROMPT('Refund? {0}', body))",
        "AI_IF(PROMPT('Refund? {0}', body)) AND AI.IF(('Refund? ', body))",
        "AI.CLASSIFY(input => body, categories => ['other', 'refund']) = 'refund'",
        "AI_CLASSIFY(body, ['other', 'refund'], {'task_description': 'Topic?'}) = 'refund'",
    ],
)
def test_both_spellings_give_the_same_rows(con: covey.Connection, condition: str) -> None:
    assert con.sql(f"SELECT id FROM t WHERE {condition}").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("dialect", "call", "counterpart"),
    [
        ("snowflake", "AI.IF(body)", "Write AI_FILTER, or"),
        ("snowflake", "AI.CLASSIFY(body, ['a', 'b']) = 'a'", "Write AI_CLASSIFY, or"),
        ("bigquery", "AI_FILTER(body)", "Write AI.IF, or"),
        ("bigquery", "AI_SCORE(body) > 0", "Write AI.SCORE, or"),
        ("bigquery", "AI.IF(PROMPT('x {0}', body))", "AI.IF(('Is it urgent? ', t.body))"),
    ],
)
def test_a_fixed_dialect_names_its_own_spelling(
    con: covey.Connection, dialect: str, call: str, counterpart: str
) -> None:
    with pytest.raises(QueryError, match="is not written so in the dialect") as caught:
        con.sql(f"SELECT id FROM t WHERE {call}", dialect=dialect)
    assert caught.value.hint is not None
    assert counterpart in caught.value.hint


def test_the_dialect_of_the_connection_holds_unless_a_query_names_one() -> None:
    model = PlantedModel(answer, label)
    with covey.connect(model=model, progress=False, dialect="BigQuery") as con:
        assert con.sql("SELECT AI.IF('' || 'refund')").fetchall() == [(True,)]
        with pytest.raises(QueryError):
            con.sql("SELECT AI_FILTER('refund')")
        text = "SELECT AI_FILTER(PROMPT('x {0}', 'refund'))"
        assert con.sql(text, dialect="snowflake").fetchall() == [(True,)]


def test_an_unknown_dialect_is_refused_before_anything_opens() -> None:
    with pytest.raises(InputError, match="'snowflake' or 'bigquery', or None for both"):
        covey.connect(model=PlantedModel(answer), dialect="mysql")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("AI_FILTER()", "Write AI_FILTER(PROMPT('Is it urgent? {0}', t.body))."),
        ("AI.IF()", "Write AI.IF(('Is it urgent? ', t.body))."),
        ("AI_FILTR(body)", "Did you mean AI_FILTER?"),
        ("AI.FI(body)", "Did you mean AI.IF?"),
        ("AI_COMPLETE(body)", "Covey has AI_FILTER, AI_SCORE, AI_MARGIN and AI_CLASSIFY."),
        ("AI.GENERATE(body)", "Covey has AI.IF, AI.SCORE, AI.MARGIN and AI.CLASSIFY."),
    ],
)
def test_hints_are_spelled_as_the_user_spells(con: covey.Connection, call: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        con.sql(f"SELECT {call} FROM t")
    assert caught.value.hint == hint


def test_an_option_that_would_change_the_answer_is_never_ignored(con: covey.Connection) -> None:
    with pytest.raises(UnsupportedError, match="is not supported yet"):
        con.sql("SELECT AI.CLASSIFY(body, ['a', 'b'], embeddings => body) FROM t")
