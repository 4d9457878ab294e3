"""What rewrites save, by calls counted; and that rows are those of asking about everything."""

from __future__ import annotations

import random
import zlib
from collections import Counter

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
        f"SELECT DISTINCT t.id, p.id FROM t JOIN p ON {J}",
        f"SELECT DISTINCT t.id, count(*) OVER () FROM t JOIN p ON {J}",
        f"SELECT DISTINCT count(*) FROM t JOIN p ON {J}",
        f"SELECT t.id FROM t JOIN p ON {J}",
        f"SELECT DISTINCT t.id FROM t JOIN p ON {J} IS NOT TRUE",
        f"SELECT DISTINCT * FROM t JOIN p ON {J}",
    ],
)
def test_where_every_match_counts_all_pairs_are_asked(query: str) -> None:
    assert counted(query)[0]["J"] == 120


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
