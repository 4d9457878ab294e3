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


def prepared(model: PlantedModel, rows: int = 40) -> covey.Connection:
    """Tables r and a, views, a macro and a sequence."""
    con = covey.connect(model=model, progress=False, cache=False)
    for name, count in (("r", rows), ("a", 6)):
        con.duckdb.execute(
            f"CREATE TABLE {name} AS SELECT i AS id, i % 3 AS k, '{name} ' || i AS s "
            f"FROM range({count}) AS x(i)"
        )
    con.duckdb.execute("CREATE SEQUENCE n")
    con.duckdb.execute("CREATE VIEW drawn AS SELECT * FROM r USING SAMPLE 5 ROWS")
    con.duckdb.execute("CREATE MACRO moment() AS now()")
    con.duckdb.execute("CREATE VIEW clock AS SELECT now() AS x")
    return con


def asked(sql: str, rows: int = 40):
    """Rows and distinct prompts of a query, every answer being TRUE, and how far n moved."""
    model = PlantedModel(lambda q, d: 0.9)
    with prepared(model, rows) as con:
        found = con.run(sql).fetchall()
        moved = con.duckdb.execute("SELECT nextval('n') - 1").fetchone()[0]
    assert len(set(model.calls)) == len(model.calls)
    return found, len(model.calls), moved


DRAWERS = [
    "SELECT * FROM r USING SAMPLE 5 ROWS",
    "SELECT * FROM r TABLESAMPLE reservoir(5 ROWS)",
    "SELECT * FROM r AS x TABLESAMPLE reservoir(5 ROWS) REPEATABLE (3)",
    "SELECT * FROM r ORDER BY random() LIMIT 5",
    "SELECT * REPLACE (uuid()::VARCHAR AS s) FROM r LIMIT 5",
    "SELECT i AS id, 0 AS k, gen_random_uuid()::VARCHAR AS s FROM range(5) AS t(i)",
    "SELECT * FROM drawn",
    "WITH o AS (SELECT *, random() AS o FROM r) SELECT id, k, s FROM o ORDER BY o LIMIT 5",
]


@pytest.mark.parametrize(
    ("query", "rows", "calls"),
    [
        ("WITH c AS {m} ({d}) SELECT 1 FROM c x JOIN c y ON x.id < y.id AND {pair}", 10, 10),
        ("WITH c AS ({d}) SELECT {one} FROM c x JOIN c y ON x.s = y.s", 5, 5),
        ("WITH c AS ({d}) SELECT (SELECT count(*) FROM c y WHERE {pair}) FROM c x", 5, 25),
        ("WITH c AS ({d}) SELECT 1 FROM c x WHERE EXISTS (FROM c y WHERE {pair} AND x.id > 0)",
         None, 5),
        ("SELECT x.k, max({one}) FROM ({d}) x GROUP BY ALL HAVING max({one}::INT) = 1", None, 5),
        ("SELECT {one} FROM ({d}) x UNION ALL SELECT {one} FROM ({d}) x LIMIT 0", 0, None),
        ("SELECT 1 FROM ({d}) x LEFT JOIN a ON a.id = x.id AND {one} WHERE x.id >= 0", 5, None),
    ],
)  # fmt: skip
def test_what_draws_is_drawn_once_and_kept(query, rows, calls):
    one, pair = "AI.IF(PROMPT('F {0}', x.s))", "AI.IF(PROMPT('P {0} {1}', x.s, y.s))"
    model = PlantedModel(lambda q, d: 0.9)
    with prepared(model) as con:
        for drawer in DRAWERS:
            before = len(model.calls)
            how = "MATERIALIZED" if "LIMIT" in drawer else ""
            found = con.run(query.format(d=drawer, one=one, pair=pair, m=how)).fetchall()
            assert rows is None or len(found) == rows, drawer
            assert len(model.calls) - before <= (5 if calls is None else calls), drawer


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("SELECT id, {F} FROM r USING SAMPLE 5 ROWS", 5),
        ("SELECT id FROM r WHERE {F} USING SAMPLE 5 ROWS", 5),
        ("SELECT id, {F} FROM r TABLESAMPLE 5 ROWS WHERE {G}", 10),
        ("SELECT s, {F} FROM r AS x(i, o) USING SAMPLE 5 ROWS", 5),
        ("SELECT AI.IF(PROMPT('F {0}', s)) FROM range(40) AS t(s) TABLESAMPLE 5 ROWS", 5),
        (
            "SELECT AI.IF(PROMPT('F {0}', r.s)) FROM r TABLESAMPLE 5 ROWS JOIN a ON r.k = a.k",
            5,
        ),
        ("SELECT k, count(*) FROM r WHERE {F} GROUP BY k USING SAMPLE 5 ROWS", 5),
    ],
)
def test_a_sample_is_drawn_before_anything_is_asked(query, most):
    _, prompts, _ = asked(query.replace("{F}", F).replace("{G}", G))
    assert prompts <= most


CLOCKS = [
    "now()", "current_timestamp", "current_date", "today()", "get_current_time()",
    "current_time", "localtime", "localtimestamp", "transaction_timestamp()",
    "age(TIMESTAMP '2020-01-01')", "age(now()::TIMESTAMP, DATE '2020-01-01')",
    "txid_current()", "current_query()", "moment()", "(SELECT x FROM clock)",
]  # fmt: skip


@pytest.mark.parametrize(
    "query",
    [
        "SELECT AI.IF(PROMPT('{0} {1}', {c}, s)), {c}::VARCHAR FROM r",
        "SELECT id, {c}::VARCHAR FROM r WHERE AI.IF(PROMPT('{0} {1}', {c}, s))",
        "SELECT AI.IF(PROMPT('{0} {1}', {c}, max(s))), {c}::VARCHAR FROM r GROUP BY id",
        "SELECT AI.IF(PROMPT('{0} {1}', {c}, r.s)), {c}::VARCHAR FROM r JOIN a ON r.k = a.k "
        "ORDER BY random()",
    ],
)
def test_a_statement_has_one_time(query):
    model = PlantedModel(lambda q, d: 0.9)
    with prepared(model, 5) as con:
        for clock in CLOCKS:
            model.calls.clear()
            rows = con.run(query.replace("{c}", clock)).fetchall()
            assert len(model.calls) == 5, clock
            assert len({value for _, value in rows}) == 1


def test_the_time_goes_on_behind_a_statement():
    with covey.connect(model=PlantedModel(lambda q, d: 0.9), progress=False, cache=False) as con:
        first = con.run("SELECT now(), AI.IF(PROMPT('F {0}', now()))").fetchall()[0][0]
        assert con.run("SELECT now()").fetchall()[0][0] > first
        assert con.run("SELECT now(), AI.IF(PROMPT('F {0}', now()))").fetchall()[0][0] > first
        macros = "SELECT count(*) FROM duckdb_functions() WHERE function_name = 'now'"
        assert con.run(macros).fetchall() == [(1,)]
        with pytest.raises(covey.QueryError):
            con.run("SELECT now(), AI.IF(PROMPT('F {0}', now(), 3))")
        assert con.run(macros).fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("query", "moves"),
    [
        (f"SELECT nextval('n'), id FROM r WHERE {F}", 5),
        (f"SELECT id FROM r WHERE nextval('n') > 0 AND {F} AND {G}", 5),
        (f"SELECT id FROM r WHERE {F} AND AI.IF(PROMPT('G {{0}}', nextval('n'))) AND {G}", 5),
        ("SELECT nextval('n'), AI.IF(PROMPT('F {0}', max(s))) FROM r GROUP BY id", 5),
        ("FROM r SELECT id GROUP BY id HAVING AI.IF(max(s)) AND nextval('n') > 0", 5),
        (f"INSERT INTO a SELECT nextval('n'), k, s FROM r WHERE {F}", 5),
        ("CREATE TABLE z AS SELECT nextval('n'), AI.IF(PROMPT('F {0}', max(s))) FROM r GROUP BY id",
         5),
        (f"WITH c AS (SELECT nextval('n') AS n, s FROM r) SELECT n FROM c WHERE {F} UNION ALL "
         f"SELECT n FROM c WHERE {G}", 5),
    ],
)  # fmt: skip
def test_a_sequence_moves_on_once_a_row(query, moves):
    assert asked(query, 5)[2] == moves


def test_a_plan_and_its_estimate_move_no_sequence():
    with covey.connect(model=PlantedModel(lambda q, d: 0.9), progress=False, cache=False) as con:
        con.duckdb.execute("CREATE TABLE r AS SELECT i AS id, 'r ' || i AS s FROM range(5) x(i)")
        con.duckdb.execute("CREATE SEQUENCE n")
        query = con.sql(f"SELECT nextval('n') AS i FROM r WHERE nextval('n') > 0 AND {F}")
        assert "nextval" in query.explain()
        assert [name for name, _ in query.schema] == ["i"]
        assert con.duckdb.execute("SELECT nextval('n')").fetchall() == [(1,)]


def test_documents_that_no_round_can_answer_are_refused_before_it():
    with pytest.raises(covey.QueryError, match=r"another one each time(.|\n)*CREATE TEMP TABLE"):
        asked("SELECT AI.IF(PROMPT('F {0}', uuid()::VARCHAR)) FROM r, a")


def test_rounds_that_come_no_nearer_end():
    model = PlantedModel(lambda q, d: 0.9)
    with covey.connect(model=model, progress=False, cache=False) as con:
        drawn = (
            "WITH RECURSIVE w AS (SELECT 1 AS i, uuid()::VARCHAR AS s UNION ALL "
            "SELECT i + 1, uuid()::VARCHAR FROM w WHERE i < 9 AND AI.IF(PROMPT('F {0}', s))) FROM w"
        )
        with pytest.raises(covey.RunError, match="draws other rows"):
            con.run(drawn)
        assert len(model.calls) < 12


def test_a_recursion_takes_as_many_rounds_as_it_has_steps():
    model = PlantedModel(lambda q, d: 0.9)
    with covey.connect(model=model, progress=False, cache=False) as con:
        query = (
            "WITH RECURSIVE w AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM w WHERE i < 60 AND "
            "AI.IF(PROMPT('F {0}', i))) SELECT count(*) FROM w"
        )
        assert con.run(query).fetchall() == [(60,)]
    assert len(model.calls) == 59


def test_a_pair_that_is_drawn_is_asked_about_alone():
    pair = "AI.IF(PROMPT('P {0} {1}', r.s, a.s))"
    for join in ("JOIN", "LEFT JOIN"):
        query = f"SELECT r.id, a.id FROM r {join} a ON random() < 0.2 AND {pair}"
        rows, prompts, _ = asked(query)
        assert prompts == sum(1 for _, partner in rows if partner is not None)


def test_batches_of_a_draw_on_demand_are_those_of_one_draw():
    model = PlantedModel(lambda q, d: 0.9)
    with covey.connect(model=model, progress=False, cache=False) as con:
        con.duckdb.execute("CREATE TABLE r AS SELECT i AS id, 'r ' || i AS s FROM range(50) x(i)")
        query = "SELECT max(s) AS s FROM r GROUP BY id HAVING AI.IF(PROMPT('F {0}', max(s))) "
        query += "AND random() < 0.5"
        batches = list(con.sql(query).batches())
        assert 0 < sum(batch.num_rows for batch in batches) < 50
