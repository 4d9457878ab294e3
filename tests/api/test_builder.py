"""The builder writes SQL: the text, its results beside hand-written SQL, its refusals."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.api.builder import Builder
from covey.errors import InputError, QueryError
from covey.testing import PlantedModel
from effort import examples


def answer(question: str, documents: tuple[str, ...]) -> float:
    return 0.9 if "refund" in documents[0] else 0.2


def label(question: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> int:
    return 1 if "refund" in documents[0] else 0


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    with covey.connect(model=PlantedModel(answer, label), progress=False) as connection:
        connection.duckdb.execute(
            "CREATE TABLE t AS FROM (VALUES (1, 'a refund', 'x'), (2, 'hello', 'y'), "
            "(3, NULL, 'y'), (4, 'refund now', 'y')) AS v(id, body, product);"
            "CREATE TABLE p AS FROM (VALUES (7, 'refunds', 'x'), (8, 'other', 'y')) "
            "AS v(number, words, product)"
        )
        yield connection


BUILDS: dict[str, tuple[Callable[[covey.Connection], Builder], str]] = {
    "filter": (
        lambda con: con.table("t").ai_filter("A {{refund}}? {body}", selectivity=0.5),
        "SELECT * FROM t WHERE AI.IF(PROMPT('A {{refund}}? {0}', body))",
    ),
    "filter, where, select": (
        lambda con: (
            con.table("t")
            .alias("x")
            .where("x.id < 3 OR x.id = 4 -- some")
            .ai_filter("Is {x.body} or {upper(x.body)} a refund? {x.body}")
            .select("x.id", loud="upper(body)")
        ),
        "SELECT id, upper(body) AS loud FROM t WHERE (id < 3 OR id = 4) AND "
        "AI.IF(PROMPT('Is {0} or {1} a refund? {0}', body, upper(body)))",
    ),
    "join": (
        lambda con: con.table("t").ai_join(
            con.table("p"), "Does {t.body} match {p.words}?", on="t.product = p.product"
        ),
        "SELECT * FROM t JOIN p ON t.product = p.product AND "
        "AI.IF(PROMPT('Does {0} match {1}?', t.body, p.words))",
    ),
    "left join": (
        lambda con: con.table("t").ai_join(con.table("p"), "{t.body} {p.words}", how="left"),
        "SELECT * FROM t LEFT JOIN p ON AI.IF(PROMPT('{0} {1}', t.body, p.words))",
    ),
    "semi join": (
        lambda con: con.table("t").ai_join(
            con.table("p"), "{t.body} {p.words}", how="semi", on="t.product = p.product OR id = 4"
        ),
        "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM p WHERE (t.product = p.product OR id = 4) "
        "AND AI.IF(PROMPT('{0} {1}', t.body, p.words)))",
    ),
    "anti join": (
        lambda con: con.table("t").ai_join(con.table("p"), "{t.body} {p.words}", how="anti"),
        "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM p WHERE "
        "AI.IF(PROMPT('{0} {1}', t.body, p.words)))",
    ),
    "plain joins": (
        lambda con: (
            con.table("t")
            .join(con.table("p").where("number > 7"), "t.product = p.product", how="left")
            .join(con.table("p").alias("q"), how="cross")
            .ai_filter("{t.body}")
            .select("t.id", "p.number", other="q.number")
        ),
        "SELECT t.id, p.number, q.number AS other FROM t LEFT JOIN (SELECT * FROM p WHERE "
        "number > 7) AS p ON t.product = p.product CROSS JOIN p AS q WHERE AI.IF(t.body)",
    ),
    "classify, group, having, order": (
        lambda con: (
            con.table("t")
            .ai_classify("{body}", ["other", "refund"], name="topic")
            .group_by("topic")
            .agg(n="count(*)")
            .having("n > 1")
            .order_by("topic DESC")
        ),
        "SELECT AI.CLASSIFY(body, ['other', 'refund']) AS topic, count(*) AS n FROM t "
        "GROUP BY topic HAVING n > 1 ORDER BY topic DESC",
    ),
    "classify with descriptions, filtered by the label": (
        lambda con: (
            con.table("t")
            .ai_classify("Topic of {body}", {"other": None, "refund": "it's money"}, name="topic")
            .where("topic = 'refund'")
            .select("id")
        ),
        "SELECT id FROM t WHERE AI.CLASSIFY(PROMPT('Topic of {0}', body), "
        "[{'label': 'other', 'description': NULL}, {'label': 'refund', 'description': "
        "'it''s money'}]) = 'refund'",
    ),
    "score in an aggregate": (
        lambda con: con.table("t").ai_score("A refund? {body}").agg("avg(score)", n="count(score)"),
        "SELECT avg(AI.SCORE(PROMPT('A refund? {0}', body))), "
        "count(AI.SCORE(PROMPT('A refund? {0}', body))) AS n FROM t",
    ),
    "a computed column in a placeholder": (
        lambda con: (
            con.table("t")
            .ai_classify("{body}", ["other", "refund"], name="topic")
            .ai_filter("Is {topic} a refund?")
            .select("id", "topic")
        ),
        "SELECT id, AI.CLASSIFY(body, ['other', 'refund']) AS topic FROM t WHERE "
        "AI.IF(PROMPT('Is {0} a refund?', AI.CLASSIFY(body, ['other', 'refund'])))",
    ),
    "steps behind a limit apply to its rows": (
        lambda con: con.table("t").order_by("id DESC").limit(2).ai_filter("{t.body}").select("id"),
        "SELECT id FROM (SELECT * FROM t ORDER BY id DESC LIMIT 2) AS t WHERE AI.IF(t.body)",
    ),
    "steps behind groups apply to the groups": (
        lambda con: con.table("t").group_by("product").agg(n="count(*)").where("n > 1").limit(9),
        "SELECT * FROM (SELECT product, count(*) AS n FROM t GROUP BY product) WHERE n > 1 LIMIT 9",
    ),
    "distinct": (
        lambda con: con.table("t").ai_filter("{body}").select("product").distinct(),
        "SELECT DISTINCT product FROM t WHERE AI.IF(body)",
    ),
}


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, zip(*(c.to_pylist() for c in table.columns), strict=True)))


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("dialect", [None, "snowflake", "bigquery"])
def test_what_is_built_gives_the_rows_of_sql_written_by_hand(
    con: covey.Connection, name: str, dialect: str | None
) -> None:
    make, text = BUILDS[name]
    expected = con.sql(text).arrow()
    with covey.connect(model=PlantedModel(answer, label), progress=False, dialect=dialect) as other:
        for table in ("t", "p"):
            other.register(table, con.sql(f"FROM {table}").arrow())
        got = make(other).arrow()
    assert rows(got) == rows(expected)
    # A column without a name is called as it is written, which depends on the dialect.
    assert "avg" in text or got.schema.names == expected.schema.names


NAMES = st.one_of(
    st.sampled_from(["select", "Order", "a b", 'a"b', "a.b", "{0}", "é", "'", "limit", "AI", "x'"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6),
)
TEXTS = st.text(
    st.one_of(
        st.sampled_from("{}'\"\\%0;-\n"),
        st.characters(codec="utf-8", exclude_characters="\0"),
    ),
    max_size=12,
)

# Labels stand on one line each, and differ in more than blanks or the encoding of accents.
LABELS = TEXTS.filter(lambda text: len(text.splitlines()) == 1 and text == text.strip() != "").map(
    lambda text: unicodedata.normalize("NFC", text)
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def grade(question: str, documents: tuple[str, ...]) -> float:
    return (crc32(repr((question, documents)).encode()) % 7) / 7


def choose(question: str, names: tuple[str, ...], documents: tuple[str, ...]) -> int:
    return crc32(repr((names, documents)).encode()) % len(names)


@pytest.fixture(scope="module")
def connections() -> Iterator[dict[str | None, covey.Connection]]:
    """One connection for each dialect, and one for SQL written by hand."""
    model = PlantedModel(grade, choose)
    names = (None, "snowflake", "bigquery")
    opened = {n: covey.connect(model=model, progress=False, dialect=n) for n in names}
    opened["by hand"] = covey.connect(model=model, progress=False)
    yield opened
    for connection in opened.values():
        connection.close()


@examples(25)
@given(
    table=NAMES,
    column=NAMES,
    alias=NAMES,
    before=TEXTS,
    after=TEXTS,
    labels=st.lists(LABELS, min_size=2, max_size=3, unique=True),
    bodies=st.lists(st.one_of(st.none(), TEXTS), max_size=3),
    dialect=st.sampled_from([None, "snowflake", "bigquery"]),
)
def test_any_name_and_text_goes_through(
    connections: dict[str | None, covey.Connection],
    table: str,
    column: str,
    alias: str,
    before: str,
    after: str,
    labels: list[str],
    bodies: list[str | None],
    dialect: str | None,
) -> None:
    data = pa.table({column: pa.array(bodies, pa.string())})
    con, plain = connections[dialect], connections["by hand"]
    for each in (con, plain):
        each.register(table, data)
    name = f"{quoted(alias)}.{quoted(column)}"
    literal = [text.replace("{", "{{").replace("}", "}}") for text in (before, after)]
    question = f"{literal[0]}{{{name}}}{literal[1]}"
    built = (
        con.table(table)
        .alias(alias)
        .ai_filter(question)
        .ai_classify(f"{{{name}}}", labels, name="covey's label")
    )
    template = "'" + f"{literal[0]}{{0}}{literal[1]}".replace("'", "''") + "'"
    judged = f"AI_IF(PROMPT({template}, {name}))" if before or after else f"AI_IF({name})"
    listed = ", ".join("'" + text.replace("'", "''") + "'" for text in labels)
    by_hand = plain.sql(
        f'SELECT *, AI_CLASSIFY({name}, [{listed}]) AS "covey\'s label" '
        f"FROM {quoted(table)} AS {quoted(alias)} WHERE {judged}"
    )
    assert rows(built.arrow()) == rows(by_hand.arrow())


def test_sql_is_readable_and_quotes_what_it_must(con: covey.Connection) -> None:
    con.run('CREATE TABLE "order" AS SELECT 1 AS id, \'x\' AS "the text"')
    built = (
        con.table("order")
        .where("id < 5 OR id > 9")
        .ai_filter('Is it {{urgent}}, isn\'t it? {"the text"}', threshold=0.75)
        .select("id", **{"from": "id + 1"})
        .limit(3)
    )
    assert built.sql() == (
        'SELECT id, id + 1 AS "from"\n'
        'FROM "order"\n'
        "WHERE (id < 5 OR id > 9)\n"
        "  AND AI.IF(PROMPT('Is it {{urgent}}, isn''t it? {0}', \"the text\"), threshold => 0.75)\n"
        "LIMIT 3"
    )


@pytest.mark.parametrize(
    ("dialect", "call"),
    [
        ("snowflake", "AI_FILTER(PROMPT('Refund? {0}', body))"),
        ("bigquery", "AI.IF(('Refund? ', body))"),
        (None, "AI.IF(PROMPT('Refund? {0}', body))"),
    ],
)
def test_a_fixed_dialect_is_written(dialect: str | None, call: str) -> None:
    with covey.connect(model=PlantedModel(answer), dialect=dialect, progress=False) as con:
        con.run("CREATE TABLE t AS SELECT 'a refund' AS body")
        built = con.table("t").ai_filter("Refund? {body}")
        assert built.sql() == f"SELECT *\nFROM t\nWHERE {call}"
        assert built.fetchall() == [("a refund",)]


def test_every_step_gives_a_new_builder(con: covey.Connection) -> None:
    table = con.table("t")
    before = table.sql()
    filtered = table.where("id = 1")
    assert table.sql() == before
    assert filtered.limit(0).fetchall() == []
    assert len(filtered.fetchall()) == 1


def test_a_builder_runs_once(con: covey.Connection) -> None:
    built = con.table("t").ai_filter("Refund? {body}").select("id")
    assert built.report.operators[0].prompts == 3
    assert built.query() is built.query()
    assert sorted(built.fetchall()) == [(1,), (4,)]
    assert sorted(built.df()["id"]) == sorted(built.pl()["id"]) == [1, 4]
    assert built.arrow().num_rows == 2
    assert "ask AI.IF" in built.explain()


Step = Callable[[covey.Connection], Any]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda c: c.table("tt"), "There is no table tt. Did you mean t?"),
        (lambda c: c.table(), "A table has a name"),
        (lambda c: c.table("t").ai_filter("{bdy}"), "{bdy} is no column.*Did you mean {body}?"),
        (lambda c: c.table("t").ai_filter("{t.bdy}"), "Did you mean {t.body}?"),
        (lambda c: c.table("t").alias("x").ai_filter("{t.body}"), "Did you mean {x.body}?"),
        (lambda c: c.table("t").ai_filter("{nope(body)}"), "{nope.body.} cannot be read"),
        (
            lambda c: c.table("t").ai_filter("Late? {0}"),
            "{0} is the same for all rows",
        ),
        (lambda c: c.table("t").ai_filter("{body}, {1}"), "{1} is the same for all rows"),
        (lambda c: c.table("t").ai_filter("Late? {'x'}"), "{'x'} is the same for all rows"),
        (lambda c: c.table("t").ai_score("{now()}"), "now.* is the same for all rows"),
        (lambda c: c.table("t").ai_score("{(SELECT 1)}"), "is the same for all rows"),
        (lambda c: c.table("t").ai_classify("{0}", ["a", "b"]), "{0} is the same for all rows"),
        (lambda c: c.table("t").ai_filter("{COLUMNS(*)}"), "stands for 3 columns"),
        (lambda c: c.table("t").ai_filter("{body:>10}"), "Did you mean {body}?"),
        (lambda c: c.table("t").ai_filter("{body!r}"), "Did you mean {body}?"),
        (lambda c: c.table("t").ai_filter("{}"), "A placeholder is empty"),
        (lambda c: c.table("t").ai_filter("a {body"), "at 2 of 'a {body' is never closed"),
        (lambda c: c.table("t").ai_filter("a } b"), "at 2 of 'a } b' opens nowhere"),
        (lambda c: c.table("t").ai_filter("Is it A?"), "'Is it A?' names no column of {id}, {"),
        (lambda c: c.table("t").ai_classify("body", ["a", "b"]), "Did you mean {body}?"),
        (lambda c: c.table("t").ai_score("T.body"), "Did you mean {t.body}?"),
        (lambda c: c.table("t").ai_filter(3), "A question is a text, not of type int"),
        (lambda c: c.table("t").where("a; b"), "holds a semicolon"),
        (lambda c: c.table("t").where("(a"), "is never closed"),
        (lambda c: c.table("t").where("-- a"), "The condition is empty"),
        (lambda c: c.table("t").where(None), "The condition is an SQL text, not of type NoneType"),
        (lambda c: c.table("t").ai_score("{body}", name="ID"), "There is a column ID already"),
        (lambda c: c.table("t").ai_score("{body}").ai_score("{body}"), "a column score already"),
        (lambda c: c.table("t").ai_classify("{body}", "ab"), "labels is a list of texts"),
        (lambda c: c.table("t").ai_filter("{body}", threshold=set()), "cannot be written"),
        (lambda c: c.table("t").join(c.table("t"), "TRUE"), "Both sides of the join are called t"),
        (lambda c: c.table("t").join("p", "TRUE"), "needs a table of the same connection"),
        (lambda c: c.table("t").join(c.table("p"), "TRUE", how="outer"), "how is one of inner"),
        (lambda c: c.table("t").join(c.table("p")), "needs a condition on="),
        (lambda c: c.table("t").join(c.table("p"), "TRUE", how="cross"), "needs no condition on="),
        (lambda c: c.table("t").ai_join(c.table("p"), "{words}", how="full"), "how is one of inn"),
        (lambda c: c.table("t").select(), "select needs a column"),
        (lambda c: c.table("t").agg(), "agg needs an aggregate"),
        (lambda c: c.table("t").group_by(), "group_by needs a key"),
        (lambda c: c.table("t").order_by(), "order_by needs a key"),
        (lambda c: c.table("t").having("n > 1"), "having needs groups"),
        (lambda c: c.table("t").limit(-1), "A limit is a whole number"),
        (lambda c: c.table("t").alias(""), "An alias is a name"),
    ],
)
def test_mistakes_are_named_when_they_are_made(
    con: covey.Connection, step: Step, message: str
) -> None:
    pattern = message if ".*" in message or "nope" in message else re.escape(message)
    with pytest.raises(InputError, match=pattern):
        step(con)


def test_a_semi_join_hides_the_columns_of_the_other_side(con: covey.Connection) -> None:
    joined = con.table("t").join(con.table("p"), "t.product = p.product", how="semi")
    with pytest.raises(InputError, match=r"\{words\} is no column"):
        joined.ai_filter("{words}")


def test_a_wrong_expression_is_shown_in_the_text_that_was_built(con: covey.Connection) -> None:
    built = con.table("t").where("nope = 1")
    with pytest.raises(QueryError) as caught:
        built.query()
    assert caught.value.sql == built.sql()


def test_a_column_with_a_blank_is_named_with_its_quotes(con: covey.Connection) -> None:
    con.run("CREATE TABLE courses AS SELECT 'Latin' AS \"Course Name\"")
    courses = con.table("courses")
    for written, meant in (("Course Name", '"Course Name"'), ("courses.course name", "courses.")):
        with pytest.raises(InputError, match=f"Did you mean {{{meant}"):
            courses.ai_filter(f"Is {{{written}}} hard?")
    assert (
        courses.ai_filter('Is {"Course Name"} hard?').sql().endswith("""hard?', "Course Name"))""")
    )


def test_every_placeholder_of_a_join_names_a_column(con: covey.Connection) -> None:
    with pytest.raises(InputError, match="is the same for all rows"):
        con.table("t").ai_join(con.table("t").alias("u"), "Does {t.body} match {0}?")
