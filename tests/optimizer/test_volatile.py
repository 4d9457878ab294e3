"""Expressions with another value each time: rows are those of one draw, none is lost."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

ROWS = 600
F = "AI.IF(PROMPT('F {0}', s))"
G = "AI.IF(PROMPT('G {0}', s))"
PAIR = "AI.IF(PROMPT('P {0} {1}', r.s, a.s))"


@pytest.fixture(scope="module")
def connection():
    """Every answer is TRUE, so that a draw alone decides how many rows there are."""
    rng = random.Random(0)
    with covey.connect(model=PlantedModel(lambda q, d: 0.9), progress=False, cache=False) as con:
        for name, rows in (("r", ROWS), ("a", 6)):
            ids = list(range(rows))
            texts = [f"{name} {i}" for i in ids]
            con.register(name, pa.table({"id": ids, "k": [i % 3 for i in ids], "s": texts}))
        con.duckdb.execute("CREATE MACRO one() AS random()")
        con.duckdb.execute("CREATE MACRO drawn() AS one() + 0")
        con.duckdb.execute("CREATE VIEW half AS SELECT id FROM r WHERE random() < 0.5")
        con.duckdb.create_function(
            "mine", lambda x: rng.random(), ["BIGINT"], "DOUBLE", side_effects=True
        )
        yield con


# How many of 600 rows are expected; {v} is even over 0 to 1.
DRAWN = [
    ("SELECT count(*) FROM (SELECT {v} AS v FROM r WHERE {F}) WHERE v < 0.5", 300),
    ("WITH c AS (SELECT id, {v} AS v FROM r WHERE {F}) SELECT count(*) FROM c WHERE v < 0.5", 300),
    (
        "SELECT count(*) FROM (SELECT {v} AS v FROM r WHERE {F} UNION ALL "
        "SELECT {v} AS v FROM r WHERE {G}) WHERE v < 0.25",
        300,
    ),
    ("SELECT count(*) FROM (SELECT id FROM r WHERE {F}) AS r WHERE id >= 0 AND {v} < 0.5", 300),
    ("SELECT count(*) FROM r WHERE {v} < 0.5 AND {F}", 300),
    ("SELECT count(*) FROM r WHERE ({v} < 0.5 OR {F}) AND {G}", 600),
    ("SELECT count(*) FROM r WHERE CASE WHEN {v} < 0.5 THEN {F} ELSE false END", 300),
    ("SELECT count(*) FROM r JOIN (SELECT 1) ON true WHERE {v} < 0.5 AND {F}", 300),
    ("SELECT count(*) FROM r LEFT JOIN a ON a.id = r.id AND {v} < 0.5 WHERE {F:r}", 600),
    ("SELECT count(*) FROM r WHERE EXISTS (FROM a WHERE a.id = r.k AND {v} < 0.5 AND {P})", 300),
    ("SELECT count(*) FROM (SELECT DISTINCT r.id, {v} AS v FROM r JOIN a ON {P})", 3600),
]


@pytest.mark.parametrize("value", ["random()", "drawn()", "mine(r.id)", '"random"()'])
@pytest.mark.parametrize(("query", "expected"), DRAWN)
def test_a_draw_is_made_once(connection, query, expected, value):
    query = query.replace("{v}", value).replace("{F:r}", F.replace("s)", "r.s)"))
    query = query.replace("{F}", F).replace("{G}", G).replace("{P}", PAIR)
    ((found,),) = connection.run(query).fetchall()
    # Six standard deviations; a second draw loses half of the rows or a quarter.
    allowed = 75 if expected == 300 else 0
    assert abs(found - expected) <= allowed, query


@pytest.mark.parametrize(
    "value",
    [
        "uuid()::VARCHAR < '8'",
        "uuidv4()::VARCHAR < '8'",
        "id IN (SELECT id FROM half)",
        "nextval('n') % 2 = 0",
    ],
)
def test_who_draws_is_duckdbs_word(connection, value):
    connection.duckdb.execute("CREATE OR REPLACE SEQUENCE n")
    query = f"SELECT count(*) FROM (SELECT id, {value} AS v FROM r WHERE {F}) WHERE v"
    ((found,),) = connection.run(query).fetchall()
    assert abs(found - 300) <= 75
    query = f"SELECT count(*) FROM (SELECT id FROM r WHERE {F}) WHERE {value}"
    ((found,),) = connection.run(query).fetchall()
    assert abs(found - 300) <= 75


def test_readers_of_one_table_see_one_draw(connection):
    drawn = "WITH c AS (SELECT id, s, random() AS v FROM r) "
    halves = (
        f"SELECT id FROM c WHERE v < 0.5 AND {F} UNION ALL SELECT id FROM c WHERE v >= 0.5 AND {F}"
    )
    assert sorted(connection.run(drawn + halves).fetchall()) == [(i,) for i in range(ROWS)]
    same = f"SELECT count(*) FROM c JOIN c AS d USING (id) WHERE c.v <> d.v AND {F}"
    same = same.replace("s))", "c.s))")
    assert connection.run(drawn + same).fetchall() == [(0,)]
    both = (
        f"SELECT count(*) FROM c WHERE v < 0.5 AND {F} AND id IN (SELECT id FROM c WHERE v >= 0.5)"
    )
    assert connection.run(drawn + both).fetchall() == [(0,)]


def test_limit_picks_by_the_draw_that_it_shows(connection):
    rows = connection.run(f"SELECT random() AS v, {F} FROM r ORDER BY v LIMIT 6").fetchall()
    assert len(rows) == 6 and max(v for v, _ in rows) < 0.2
    limit = "(5 + 10 * random())::INT"
    rows = connection.run(f"SELECT id FROM r WHERE {F} LIMIT {limit}").fetchall()
    assert 5 <= len(rows) <= 15


def test_a_table_from_a_draw_has_all_its_rows():
    model = PlantedModel(lambda q, d: 0.9)
    with covey.connect(model=model, progress=False, cache=False) as con:
        con.duckdb.execute("CREATE TABLE r AS SELECT i AS id, 'r ' || i AS s FROM range(100) t(i)")
        query = (
            "CREATE TABLE kept AS SELECT id, v, f FROM (SELECT id, random() < 0.5 AS v, "
            f"CASE WHEN random() < 0.02 THEN {F} ELSE true END AS f FROM r JOIN (SELECT 1) ON true)"
        )
        con.run(query)
        assert con.run("SELECT count(*) FROM kept WHERE f IS NOT TRUE").fetchall() == [(0,)]


def test_a_sample_of_one_table_asks_for_no_other_rows():
    model = PlantedModel(lambda q, d: 0.9)
    with covey.connect(model=model, progress=False, cache=False) as con:
        con.register("r", pa.table({"id": list(range(200)), "s": [f"r {i}" for i in range(200)]}))
        rows = con.run(f"SELECT id FROM r WHERE random() < 0.5 AND {F}").fetchall()
    assert len(model.calls) == len(rows)
