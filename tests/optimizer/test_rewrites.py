"""What rewrites save, by calls counted; and that rows are those of asking about everything."""

from __future__ import annotations

import random
import re
import zlib
from collections import Counter
from functools import cache

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

F = "AI.IF(PROMPT('F {0}', t.s))"
P = "AI.IF(PROMPT('P {0}', p.s))"
J = "AI.IF(PROMPT('J {0} {1}', t.s, p.s))"


def judged(question: str, documents: tuple[str, ...]) -> float:
    return 0.9 if zlib.crc32((question + "|".join(documents)).encode()) % 10 < 6 else 0.1


def connect() -> tuple[covey.Connection, PlantedModel]:
    model = PlantedModel(judged)
    con = covey.connect(model=model, progress=False, cache=False)
    for name, rows in (("t", 20), ("p", 6)):
        texts = [f"{name} {i} " + "x" * i for i in range(rows)]
        keys = [i % 4 for i in range(rows)]
        con.register(name, pa.table({"id": list(range(rows)), "k": keys, "s": texts}))
    return con, model


def counted(query: str) -> tuple[Counter[str], list[tuple[object, ...]]]:
    """Prompts by the first letter of their question, none of them twice; and the rows."""
    con, model = connect()
    with con:
        rows = con.run(query).fetchall()
    assert len(set(model.calls)) == len(model.calls)
    return Counter(question[0] for question, _ in model.calls), rows


@cache
def truth() -> covey.Connection:
    """Every answer in a table."""
    con, _ = connect()
    texts = {n: [r[0] for r in con.run(f"SELECT s FROM {n}").fetchall()] for n in ("t", "p")}
    con.register("tf", pa.table({"s": [s for s in texts["t"] if judged("F {0}", (s,)) > 0.5]}))
    pairs = [(a, b) for a in texts["t"] for b in texts["p"]]
    true = [pair for pair in pairs if judged("J {0} {1}", pair) > 0.5]
    con.register("tj", pa.table({"a": [a for a, _ in true], "b": [b for _, b in true]}))
    return con


def plain(query: str) -> list[tuple[object, ...]]:
    """The rows by DuckDB alone."""
    query = query.replace(F, "(t.s IN (SELECT s FROM tf))")
    query = query.replace(J, "((t.s, p.s) IN (SELECT (a, b) FROM tj))")
    return truth().duckdb.execute(query).fetchall()


@pytest.mark.parametrize(
    "query, calls",
    [
        # Conjuncts are split, and those without a model go first.
        (f"SELECT id FROM t WHERE ({F} AND (id < 5 AND k = 1))", {"F": 1}),
        # A predicate that is written twice is asked once, whatever stands between.
        (f"SELECT id FROM t WHERE {F} AND ({F} AND {F})", {"F": 20}),
        (f"SELECT id FROM t WHERE {F} OR {F}", {"F": 20}),
        (f"SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id WHERE {F.replace('t.s', 'a.s')} "
         f"AND {F.replace('t.s', 'b.s')}", {"F": 20}),
        # Constants are folded.
        (f"SELECT id FROM t WHERE {F} AND 1 = 0", {}),
        (f"SELECT id FROM t WHERE {F} OR TRUE", {}),
        (f"SELECT id FROM t WHERE NOT (NOT {F} OR 1 = 1)", {}),
        (f"SELECT id FROM t WHERE CASE WHEN FALSE THEN {F} ELSE id < 3 END", {}),
        # Equalities hold along a chain: only rows with k = 2 are asked about.
        (f"SELECT t.id FROM t JOIN p ON t.k = p.k WHERE p.k = 2 AND {F}", {"F": 5}),
        (f"SELECT t.id FROM t JOIN p ON t.k = p.k JOIN t AS u ON u.k = p.k WHERE u.k = 3 AND {F}",
         {"F": 5}),
        # A condition above projections, expressions and unions is asked about distinct texts.
        (f"SELECT q.id FROM (SELECT id, s AS body, k FROM t) q "
         f"WHERE {F.replace('t.s', 'q.body')} AND q.k = 1", {"F": 5}),
        (f"WITH w AS (SELECT s FROM t WHERE id < 5 UNION ALL SELECT s FROM t WHERE id < 8) "
         f"SELECT count(*) FROM w WHERE {F.replace('t.s', 'w.s')}", {"F": 8}),
        (f"SELECT count(*) FROM (SELECT s FROM t INTERSECT SELECT s FROM t WHERE id < 3) q "
         f"WHERE {F.replace('t.s', 'q.s')}", {"F": 3}),
    ],
)  # fmt: skip
def test_calls_that_a_rewrite_leaves(query: str, calls: dict[str, int]) -> None:
    assert counted(query)[0] == calls


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE {J})",
        f"SELECT DISTINCT t.id FROM t JOIN p ON {J}",
        f"SELECT DISTINCT t.k, t.id FROM t, p WHERE {J}",
        f"WITH w AS (SELECT DISTINCT t.id FROM t JOIN p ON {J}) SELECT id FROM w",
        f"SELECT t.k, t.id FROM t JOIN p ON {J} GROUP BY ALL",
    ],
)
def test_the_first_match_decides_a_row_that_is_shown_once(query: str) -> None:
    calls, rows = counted(query)
    # Partners are asked in rounds of 1, 2, 4: at most about twice as many as are needed.
    assert calls["J"] < 70
    _, every = counted(f"SELECT t.id, p.id FROM t JOIN p ON {J}")
    assert {row[-1] for row in rows} == {row[0] for row in every}
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(DISTINCT t.id) FROM t JOIN p ON {J}",
        f"SELECT count(DISTINCT t.id) AS ids, count(DISTINCT t.k + 1) n FROM t, p WHERE {J}",
        f"SELECT t.k, count(DISTINCT (t.id, t.k)) FROM t JOIN p ON {J} GROUP BY t.k",
        f"SELECT t.k % 2 AS odd, count(DISTINCT t.id) FROM t JOIN p ON {J} GROUP BY odd",
        f"SELECT count(DISTINCT t.id), t.k FROM t JOIN p ON {J} GROUP BY ALL",
        f"SELECT count(DISTINCT t.id), t.k FROM t JOIN p ON {J} GROUP BY 2",
    ],
)
def test_the_first_match_decides_a_row_that_is_counted_once(query: str) -> None:
    calls, rows = counted(query)
    assert calls["J"] < 70
    assert sorted(rows) == sorted(plain(query))


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(DISTINCT t.id), count(*) FROM t JOIN p ON {J}",
        f"SELECT count(DISTINCT t.id) OVER () FROM t JOIN p ON {J}",
        f"SELECT count(DISTINCT t.id) FILTER (WHERE p.k = 1) FROM t JOIN p ON {J}",
        f"SELECT count(t.id) FROM t JOIN p ON {J}",
        f"SELECT count(DISTINCT t.id + p.id) FROM t JOIN p ON {J}",
        f"SELECT p.id, count(DISTINCT t.id) FROM t JOIN p ON {J} GROUP BY p.id",
        f"SELECT t.k, count(DISTINCT t.id) FROM t JOIN p ON {J} GROUP BY t.k, p.k",
        f"SELECT t.k, count(DISTINCT t.id) FROM t JOIN p ON {J} GROUP BY t.k HAVING count(*) > 3",
        f"SELECT DISTINCT t.id, p.id FROM t JOIN p ON {J}",
        f"SELECT DISTINCT t.id, count(*) OVER () FROM t JOIN p ON {J}",
        f"SELECT DISTINCT count(*) FROM t JOIN p ON {J}",
        f"SELECT t.id FROM t JOIN p ON {J}",
        f"SELECT DISTINCT t.id FROM t JOIN p ON {J} IS NOT TRUE",
        f"SELECT DISTINCT * FROM t JOIN p ON {J}",
    ],
)
def test_where_every_match_counts_all_pairs_are_asked(query: str) -> None:
    calls, rows = counted(query)
    assert calls["J"] == 120
    assert sorted(rows) == sorted(plain(query))


# Conditions of random DISTINCT queries over two or three sources, of which some are shown.
_CONDITIONS = [
    F, P, J, "t.k = p.k", "t.id + p.id < 15", f"NOT {F}", f"({P} OR t.k = 1)",
    "AI.IF(PROMPT('K {0} {1}', t.s, u.s))", "u.k = t.k", "u.id < 4",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(16))
def test_distinct_rows_are_those_of_all_rows(seed: int) -> None:
    rng = random.Random(seed)
    chosen = rng.sample(_CONDITIONS, rng.randint(2, 5))
    shown = rng.choice(["t.id", "t.k", "p.id", "t.id, u.id", "u.k, t.k", "p.k, u.id"])
    text = f"FROM t, p, p AS u WHERE {' AND '.join(chosen)}"
    few, distinct = counted(f"SELECT DISTINCT {shown} {text}")
    every, rows = counted(f"SELECT {shown} {text}")
    assert sorted(distinct) == sorted(set(rows))
    assert few.total() <= every.total()


@pytest.mark.parametrize(
    "query, calls",
    [
        (f"SELECT id FROM (SELECT id, k, s FROM t WHERE {F}) q WHERE q.id < 3", 3),
        (f"SELECT id FROM (SELECT * FROM t WHERE {F}) q WHERE q.id < 3", 3),
        (f"WITH w AS (SELECT id, k AS key FROM t WHERE {F}) SELECT id FROM w WHERE key = 1", 5),
        (f"SELECT q.id FROM (SELECT id FROM t WHERE {F}) q LEFT JOIN p USING (id) WHERE q.id = 1",
         1),
        (f"SELECT id FROM (SELECT id AS k, k AS id FROM t WHERE {F}) q WHERE q.id < q.k - 15", 4),
        # A block that is read twice is asked for what either reader may need.
        (f"WITH w AS (SELECT id, k FROM t WHERE {F}) SELECT 1 FROM w a, w b "
         "WHERE a.id < 3 AND b.k = 1 AND b.id > 10", 3 + 2),
        (f"WITH w AS (SELECT id FROM t WHERE {F}) SELECT id FROM w WHERE id < 3 "
         "UNION ALL SELECT id FROM w AS v WHERE v.id = 2 OR id = 9", 4),
        (f"WITH w AS (SELECT id FROM t WHERE {F}) SELECT id FROM w WHERE id < 3 AND id IN "
         "(SELECT id FROM w WHERE id > 17)", 5),
        # Operands of a UNION whose columns go by place and are not cast.
        (f"SELECT n FROM (SELECT id AS n, k FROM t WHERE {F} UNION ALL SELECT id, 7 FROM t "
         f"WHERE NOT {F}) q WHERE n < 3", 3),
        (f"SELECT n FROM (SELECT id AS n FROM t WHERE id < 2 UNION SELECT t.id + 1 FROM t "
         f"WHERE {F} ORDER BY n) q WHERE q.n > 18", 2),
        (f"WITH w AS (SELECT * FROM t WHERE {F} UNION ALL SELECT * FROM t WHERE {F}) "
         "SELECT id FROM w WHERE k = 1", 5),
        # Nothing is known of the rows inside where they are made of several, limited, read
        # by one that needs all, cast by a UNION, or brought back by an outer join.
        (f"SELECT n FROM (SELECT id AS n FROM t WHERE {F} UNION ALL SELECT id + 0.5 FROM t) q "
         "WHERE n < 3", 20),
        (f"SELECT n FROM (SELECT id AS n FROM t WHERE {F} UNION ALL SELECT id FROM t "
         "ORDER BY n LIMIT 40) q WHERE n < 3", 20),
        (f"SELECT id FROM (SELECT id, k FROM t WHERE {F} UNION ALL BY NAME SELECT k, id FROM t) q "
         "WHERE id < 3", 20),
        (f"SELECT id FROM (SELECT id FROM t EXCEPT SELECT id FROM t WHERE {F}) q WHERE id < 3", 20),
        (f"WITH RECURSIVE w AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM w, t WHERE t.id = n "
         f"AND n < 9 AND {F}) SELECT n FROM w WHERE n > 8", None),
        (f"WITH w AS (SELECT id FROM t WHERE {F}), v AS (SELECT * FROM w) SELECT v.id FROM v, w "
         "WHERE w.id < 3", 20),
        (f"SELECT id FROM (SELECT id FROM t WHERE {F} ORDER BY id LIMIT 30) q WHERE q.id < 3", 20),
        (f"SELECT n FROM (SELECT k, count(*) AS n FROM t WHERE {F} GROUP BY k) q WHERE n > 1", 20),
        (f"WITH w AS (SELECT id FROM t WHERE {F}) SELECT a.id FROM w a, w b WHERE a.id < 3", 20),
        (f"SELECT p.id FROM p LEFT JOIN (SELECT id FROM t WHERE {F}) q ON p.id = q.id "
         "WHERE q.id IS NULL", 20),
        (f"SELECT id FROM (SELECT id FROM t WHERE {F}) q WHERE random() + q.id < 3", 20),
    ],
)  # fmt: skip
def test_conditions_around_a_block_reach_inside(query: str, calls: int | None) -> None:
    found, rows = counted(query)
    assert calls is None or found["F"] == calls
    if "random" not in query:
        assert sorted(rows, key=repr) == sorted(plain(query), key=repr)


_OF_TWO = ["a < 3", "b = 1", "a + b > 4", "(a IS NULL OR b < 2)", "a IN (1, 5, 9)", "a <> b"]
_LISTS = ["*", "t.*", "id, k, s", "id AS k, k AS id", "id + 1 AS id, k", "s AS id, id AS k"]
_INSIDE = ["", " AND k < 3", " ORDER BY id", " ORDER BY id LIMIT 9", " AND id > 2"]
_AROUND = [
    "FROM q", "FROM q JOIN p ON q.k = p.k", "FROM q LEFT JOIN p ON q.k = p.k",
    "FROM p LEFT JOIN q ON q.k = p.k", "FROM p FULL JOIN q ON q.k = p.k AND q.k < 2",
    "FROM q, p", "FROM q JOIN p USING (k)", "FROM q SEMI JOIN p ON q.k = p.k", "FROM q, q AS r",
]  # fmt: skip
_OUTSIDE = [
    "q.k = 1", "q.k < 2 OR q.k IS NULL", "q.k % 2 = 0", "q.k + 1 > 2", "q.id IS NOT NULL",
    "coalesce(q.k, 1) = 1", "NOT (q.k = 2)", "EXISTS (SELECT 1 FROM p AS z WHERE z.id = q.k)",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(16))
def test_rows_of_unions_and_of_blocks_read_twice_are_those_of_plain_sql(seed: int) -> None:
    rng = random.Random(seed)
    lists = ["id AS a, k AS b", "k AS a, id AS b", "id + 1 AS a, k AS b", "k / 2 AS a, id AS b"]
    lists += ["id a, (k + id) b", "t.id AS a, t.k AS b"]
    operands = []
    for _ in range(rng.randint(1, 3)):
        where = rng.choice([F, f"NOT {F}", f"({F} OR t.id < 4)", "t.id < 8"])
        # What comes behind the first goes by place: its own names do not count.
        shown = rng.choice(lists)
        shown = shown.replace(" AS a", "").replace(" AS b", " AS a") if operands else shown
        operands.append(f"SELECT {shown} FROM t WHERE {where}")
    name = rng.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "UNION ALL"])
    body = f" {name} ".join(operands) + rng.choice(["", "", " ORDER BY 1, 2", " LIMIT 99"])
    first, second = (" AND ".join(rng.sample(_OF_TWO, 2)) for _ in range(2))
    query = f"WITH q AS ({body}) SELECT a, b FROM q WHERE {first}"
    if rng.random() < 0.3:
        query = f"SELECT a, b FROM ({body}) q WHERE {first}"
    more = [f" UNION ALL SELECT b, a FROM q AS z WHERE {second}", " INTERSECT SELECT a, b FROM q"]
    query += rng.choice(["", *more]) if "WITH" in query else ""
    _, rows = counted(query)
    assert sorted(rows, key=repr) == sorted(plain(query), key=repr)


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_nested_blocks_are_those_of_plain_sql(seed: int) -> None:
    rng = random.Random(seed)
    inner = f"SELECT {rng.choice(_LISTS)} FROM t WHERE {F}{rng.choice(_INSIDE)}"
    around, outside = rng.choice(_AROUND), " AND ".join(rng.sample(_OUTSIDE, 2))
    with_cte = f"WITH q AS ({inner}) SELECT q.k {around} WHERE {outside}"
    derived = f"SELECT q.k {around.replace('q', f'({inner}) q', 1)} WHERE {outside}"
    query = with_cte if "q AS r" in around or rng.random() < 0.5 else derived
    con, _ = connect()
    with con:
        texts = [row[0] for row in con.run("SELECT s FROM t").fetchall()]
        true = [text for text in texts if judged("F {0}", (text,)) > 0.5]
        con.register("truth", pa.table({"s": true}))
        plain = query.replace(F, "t.s IN (SELECT s FROM truth)")
        expected = con.duckdb.execute(plain).fetchall()
        assert sorted(con.run(query).fetchall(), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    "query, calls",
    [
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY k HAVING k < 2", 10),
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY k HAVING k < 2 AND count(*) > 2", 10),
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY ALL HAVING (k IN (1, 7) OR k IS NULL)", 5),
        (f"SELECT t.k, max(p.id) FROM t JOIN p ON t.k = p.k WHERE {F} GROUP BY t.k "
         "HAVING NOT t.k BETWEEN 1 AND 9", 5),
        # A key of more than one table, a name that means an output, aggregates, functions and
        # operators that tell equal values apart: all rows are asked about.
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY k HAVING count(*) > 2", 20),
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY k HAVING k < 2 OR count(*) > 2", 20),
        (f"SELECT k % 2 AS id, count(*) FROM t WHERE {F} GROUP BY k % 2 HAVING id < 1", 20),
        (f"SELECT k: id % 2, count(*) FROM t WHERE {F} GROUP BY 1 HAVING k < 1", 20),
        (f"SELECT COLUMNS('id') AS k, count(*) FROM t WHERE {F} GROUP BY ALL HAVING k < 3", 20),
        (f"SELECT k, count(*) AS n FROM t WHERE {F} GROUP BY k HAVING n < 5", 20),
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY k HAVING k::VARCHAR LIKE '1%'", 20),
        (f"SELECT s, count(*) FROM t WHERE {F} GROUP BY s HAVING s LIKE 't 1%'", 20),
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY ROLLUP (k) HAVING k IS NULL", 20),
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY GROUPING SETS ((k), ()) HAVING k = 1", 20),
    ],
)  # fmt: skip
def test_conditions_on_a_key_come_before_the_model(query: str, calls: int) -> None:
    found, rows = counted(query)
    assert found["F"] == calls
    assert sorted(rows, key=repr) == sorted(plain(query), key=repr)


_KEYS = ["k", "k, id % 3", "ALL", "1", "CUBE (k)", "k, s"]
_HAVING = [
    "k < 2", "k IS NULL", "k = 1 OR k = 3", "NOT k = 2", "t.k IN (0, 2)", "count(*) > 2",
    "k BETWEEN 1 AND 2 AND max(id) > 5", "(k < 1) IS TRUE", "k <> 1 AND TRUE", "min(id) = k",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(14))
def test_groups_are_those_of_all_rows(seed: int) -> None:
    rng = random.Random(seed)
    where = rng.choice([F, f"({F} OR t.id = 3)", f"NOT {F}", f"{F} IS NOT TRUE"])
    source = rng.choice(["t", "t LEFT JOIN p ON t.id = p.id + 1", "p LEFT JOIN t ON t.id = p.id"])
    name = "t.k" if "JOIN" in source else "k"
    having = " AND ".join(rng.sample(_HAVING, rng.randint(1, 2)))
    if "JOIN" in source:
        keys, having = "t.k", re.sub(r"(?<![.\w])(k|id)\b", r"t.\1", having)
    else:
        keys = rng.choice(_KEYS)
    query = f"SELECT {name}, count(*) FROM {source} WHERE {where} GROUP BY {keys} HAVING {having}"
    _, rows = counted(query)
    assert sorted(rows, key=repr) == sorted(plain(query), key=repr)


@pytest.mark.parametrize(
    "first, second, calls",
    [
        ("PROMPT('F a {{x}} {0}', t.s)", "PROMPT('F a {x} {0}', t.s)", 20),
        ("('F a {0} ', t.s)", "PROMPT('F a {{0}} {0}', t.s)", 20),
        ("PROMPT('F a {{0}} {0}', t.s)", "PROMPT('F a {0} {0}', t.s)", 40),
    ],
)
def test_escapes_that_read_alike_are_one_question(first: str, second: str, calls: int) -> None:
    found, rows = counted(f"SELECT AI.IF({first}), AI.IF({second}) FROM t")
    assert found["F"] == calls
    assert calls == 40 or all(one == other for one, other in rows)


S = "AI.SCORE(PROMPT('F {0}', t.s))"
U = "(SELECT id, k, s, CASE WHEN id % 2 = 0 THEN k / 4 END AS lim, lim AS low FROM t) t"


@pytest.mark.parametrize(
    "condition, calls",
    [
        (f"{S} > t.lim", 10),
        (f"t.lim <= {S}", 10),
        (f"{S} <> lim AND id < 6", 3),
        (f"NOT ({S} > t.lim)", 10),
        (f"({S} > t.lim OR t.id = 0)", 9),
        (f"({S} > t.lim) IS NOT TRUE", 20),
        (f"{S} IS DISTINCT FROM t.lim", 20),
        (f"{S} > coalesce(t.lim, 0.5)", 20),
        (f"coalesce({S} > t.lim, t.id > 3)", 10),
        (f"{S} + 0 > t.lim", 20),
        (f"{S} > t.lim AND {S} > t.low", 10),
    ],
)
def test_what_is_compared_with_null_is_not_asked(condition: str, calls: int) -> None:
    query = f"SELECT id FROM {U} WHERE {condition}"
    found, rows = counted(query)
    assert found["F"] == calls
    assert sorted(rows) == sorted(by_scores(query))


@pytest.mark.parametrize(
    "condition",
    [
        f"list_filter([0.5], lambda lim: ({S} > lim)) <> []",
        f"[({S} > lim) FOR lim IN [0.5]] = [true]",
    ],
)
def test_the_parameter_of_a_lambda_is_no_column(condition: str) -> None:
    calls, rows = counted(f"SELECT id FROM {U} WHERE {condition}")
    assert calls["F"] == 20
    texts = [f"t {i} " + "x" * i for i in range(20)]
    assert sorted(rows) == [(i,) for i, text in enumerate(texts) if judged("F {0}", (text,)) > 0.5]


def test_an_output_may_have_the_name_of_what_is_compared() -> None:
    query = f"SELECT id, coalesce(lim, 0.5) AS lim FROM {U} ORDER BY {S} > lim, id"
    calls, rows = counted(query)
    assert calls["F"] == 20
    assert rows == by_scores(query)


def by_scores(query: str) -> list[tuple[object, ...]]:
    """The rows by DuckDB alone, every score being in a table."""
    con, _ = connect()
    with con:
        texts = [row[0] for row in con.run("SELECT s FROM t").fetchall()]
        scores = [judged("F {0}", (text,)) for text in texts]
        con.register("scores", pa.table({"s": texts, "score": scores}))
        score = "(SELECT max(score) FROM scores WHERE scores.s = t.s)"
        return con.duckdb.execute(query.replace(S, score)).fetchall()


N = "AI.IF(PROMPT('N {0}', t.s))"
C = "AI.IF(PROMPT('C'))"
MERGED = "(SELECT id AS j, k FROM p) AS u"
PN = "AI.IF(PROMPT('N {0}', p.s))"


def told(question: str, documents: tuple[str, ...]) -> float:
    """As `judged`, and C and N are always FALSE."""
    return 0.1 if question[0] in "CN" else judged(question, documents)


def told_of(query: str) -> tuple[Counter[str], list[tuple[object, ...]]]:
    """As `counted`, by `told`."""
    model = PlantedModel(told)
    with covey.connect(model=model, progress=False, cache=False) as con:
        for name, rows in (("t", 20), ("p", 6)):
            texts = [f"{name} {i} " + "x" * i for i in range(rows)]
            keys = [i % 4 for i in range(rows)]
            con.register(name, pa.table({"id": list(range(rows)), "k": keys, "s": texts}))
        rows_found = con.run(query).fetchall()
    assert len(set(model.calls)) == len(model.calls)
    return Counter(question[0] for question, _ in model.calls), rows_found


@pytest.mark.parametrize(
    "query, calls",
    [
        # What WHERE wants of rows that a join keeps comes before its ON.
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE {N}", {"N": 20}),
        (f"SELECT t.id FROM p RIGHT JOIN t ON {J} WHERE {N}", {"N": 20}),
        (f"SELECT t.id FROM t ANTI JOIN p ON {J} WHERE {N}", {"N": 20}),
        (f"SELECT t.id FROM t JOIN p AS q ON t.id = q.id LEFT JOIN p ON {J} WHERE {N}", {"N": 6}),
        # Who rejects NULL makes an inner join of an outer one.
        (f"SELECT t.id FROM t SEMI JOIN p ON t.id = p.id WHERE {N}", {"N": 6}),
        (f"SELECT t.id FROM t ANTI JOIN p ON t.id = p.id WHERE {N}", {"N": 14}),
        (f"SELECT t.id FROM p AS q RIGHT JOIN t ON q.id = t.id SEMI JOIN p ON t.id = p.id "
         f"WHERE {N}", {"N": 6}),
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE {PN}", {"N": 6}),
        (f"SELECT t.id FROM t FULL JOIN p ON {J} WHERE {N}", {"N": 20}),
        (f"SELECT t.id FROM t FULL JOIN p ON {J} WHERE {PN}", {"N": 6}),
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE p.id = 3", {"J": 20}),
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE p.id IN (3, 4)", {"J": 40}),
        (f"SELECT t.id FROM t RIGHT JOIN p ON {J} WHERE t.id < 3", {"J": 18}),
        (f"SELECT t.id FROM t FULL JOIN p ON {J} WHERE t.id < 3 AND p.k = 0", {"J": 6}),
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE t.k = p.k", {"J": 30}),
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} JOIN p AS q ON q.id = p.id + 4", {"J": 40}),
        # Not so where a row of NULLs passes.
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE p.id IS NULL", {"J": 120}),
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE coalesce(p.id, 3) = 3", {"J": 120}),
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE (p.id = 3) IS NOT TRUE", {"J": 120}),
        (f"SELECT t.id FROM t FULL JOIN p ON {J} WHERE p.id = 3 OR t.id = 3", {"J": 120}),
        # A constant prompt goes first.
        (f"SELECT t.id FROM t LEFT JOIN p ON {J} WHERE {C}", {"C": 1}),
        (f"SELECT t.id FROM t FULL JOIN p ON {J} WHERE {C}", {"C": 1}),
        (f"SELECT t.id FROM t JOIN p ON {J} WHERE {F} AND {C}", {"C": 1}),
        (f"SELECT * FROM (SELECT id, {F} AS r FROM t) WHERE r AND {C}", {"C": 1}),
        (f"SELECT * FROM (SELECT id FROM t WHERE {F}) WHERE {C}", {"C": 1}),
        (f"WITH w AS (SELECT id, {F} AS r FROM t) SELECT id FROM w WHERE {C} AND r", {"C": 1}),
        (f"SELECT k, count(*) FROM t WHERE {F} GROUP BY k HAVING {C}", {"C": 1}),
        (f"SELECT count(*) FROM t WHERE {F} HAVING {C}", {"C": 1}),
        (f"SELECT id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE {J} AND {C})", {"C": 1}),
        (f"SELECT id FROM t WHERE {F} AND id IN (SELECT id FROM p WHERE {C})", None),
        (f"SELECT id, CASE WHEN {C} THEN {F} END FROM t", {"C": 1}),
        (f"SELECT t.id FROM t WHERE {F} AND (SELECT {C})", {"C": 1}),
        (f"SELECT t.id FROM t FULL JOIN p ON {J} WHERE (SELECT {C})", {"C": 1}),
        (f"SELECT id FROM t WHERE EXISTS (SELECT 1 FROM p WHERE {J} AND {PN}) AND {C}", {"C": 1}),
        # What is wanted of a derived table decides in it as in WHERE.
        (f"SELECT i FROM (SELECT t.id, p.id AS i FROM t LEFT JOIN p ON {J}) WHERE i = 3",
         {"J": 20}),
        (f"SELECT i FROM (SELECT t.id, p.id AS i FROM t RIGHT JOIN p ON {J}) WHERE i = 3",
         {"J": 20}),
        (f"SELECT i FROM (SELECT t.id AS i FROM t FULL JOIN p ON {J}) WHERE i < 3", {"J": 18}),
        (f"SELECT i FROM (SELECT t.id AS i FROM t FULL JOIN p ON {J}) WHERE {C}", {"C": 1}),
        (f"WITH q AS (SELECT p.id AS i FROM t LEFT JOIN p ON {J}) SELECT i FROM q WHERE i = 3 "
         "UNION ALL SELECT i FROM q WHERE i = 4", {"J": 40}),
        (f"SELECT i FROM (SELECT p.id AS i FROM t LEFT JOIN p ON {J}) WHERE i IS NULL",
         {"J": 120}),
        # Joins that merge columns.
        (f"SELECT t.id FROM t LEFT JOIN {MERGED} USING (k) LEFT JOIN p ON {J} WHERE p.id = 3",
         {"J": 20}),
        (f"SELECT t.id FROM t NATURAL LEFT JOIN {MERGED} LEFT JOIN p ON {J} WHERE p.id = 3",
         {"J": 20}),
    ],
)  # fmt: skip
def test_what_decides_most_is_asked_first(query: str, calls: dict[str, int] | None) -> None:
    found, rows = told_of(query)
    assert calls is None or found == calls
    assert sorted(rows, key=repr) == sorted(plain_told(query), key=repr)


def plain_told(query: str) -> list[tuple[object, ...]]:
    """As `plain`, by `told`."""
    for never in (C, N, PN):
        document = never.partition(", ")[2].rstrip(")")
        null = f"CASE WHEN {document} IS NULL THEN NULL ELSE FALSE END" if document else "FALSE"
        query = query.replace(never, f"({null})")
    return plain(query)


_KINDS = ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN", "LEFT JOIN", "FULL JOIN"]
_WHERE = [
    F, f"NOT {F}", "t.id < 5", "p.k = 1", "p.id IS NULL", "t.id IS NULL OR t.k > 1", "t.k = p.k",
    "t.id + p.id < 9", "coalesce(p.id, 0) < 3", f"({F} OR p.id = 2)", f"({F}) IS NOT TRUE", N, C,
    f"NOT {C}", PN, f"NOT {PN}", "u.k = 2", "u.id IS NULL", "u.k = p.k", "NOT (u.id > 3)",
    "t.s LIKE '%1%'", "p.s || t.s > 'a'", "p.id NOT IN (1, 2)", "greatest(p.id, t.id) < 7",
]  # fmt: skip
_ON = [J, J, f"{J} AND t.k = p.k", f"NOT {J}", f"{J} OR t.id = p.id", "t.k = p.k", f"{F} AND {J}"]


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_outer_joins_are_those_of_plain_sql(seed: int) -> None:
    rng = random.Random(seed)
    first, second = rng.choice(_KINDS), rng.choice(_KINDS)
    where = " AND ".join(rng.sample(_WHERE, rng.randint(1, 3)))
    query = (
        f"SELECT t.id, p.id, u.id FROM t {first} p ON {rng.choice(_ON)} "
        f"{second} p AS u ON {rng.choice(['u.id = p.id', 'u.k = t.k AND u.id < 4', 'u.id < t.k'])} "
        f"WHERE {where}"
    )
    _, rows = told_of(query)
    assert sorted(rows, key=repr) == sorted(plain_told(query), key=repr), query


_OF_MERGED = [
    "k = 1", "t.k = 1", "u.k = 1", "u.k IS NULL", "k IS NULL", "j = 2", "p.id = 3", "t.id < 5",
    "p.id IS NULL", "coalesce(j, 0) < 3", "u.k = t.k", F, N, f"NOT {C}",
]  # fmt: skip
_OF_DERIVED = [
    "a < 5", "b = 3", "b IS NULL", "c = 1", "coalesce(b, 3) = 3", "a + b < 9", "NOT (b > 3)",
    "a IS NULL OR c > 1", f"NOT {C}", f"(SELECT NOT {C})",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_merged_columns_and_of_derived_joins_are_those_of_plain_sql(seed: int) -> None:
    rng = random.Random(seed)
    first, second = rng.choice(_KINDS), rng.choice(_KINDS)
    u = "(SELECT id AS j, CASE WHEN id < 3 THEN k ELSE k + 2 END AS k FROM p) AS u"
    merged = rng.choice([f"t {first} {u} USING (k)", f"t NATURAL {first} {u}"])
    p = "(SELECT id, s FROM p) AS p"
    joined = f"t {first} p ON {J} {second} p AS u ON u.id = p.id"
    queries = (
        f"SELECT k, t.k, u.k, t.id, j, p.id FROM {merged} {second} {p} ON {J} "
        f"WHERE {' AND '.join(rng.sample(_OF_MERGED, 2))}",
        f"SELECT q.* FROM (SELECT t.id AS a, p.id AS b, p.k AS c FROM {joined}) AS q "
        f"WHERE {' AND '.join(rng.sample(_OF_DERIVED, 2))}",
    )
    for query in queries:
        _, rows = told_of(query)
        assert sorted(rows, key=repr) == sorted(plain_told(query), key=repr), query
