"""Chains of AI joins are joined by the pairs that passed: same rows, no look-up a row."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter

import pyarrow as pa
import pytest

import covey
from covey.execution.udf import AnswerUDFs
from covey.testing import PlantedModel

CHAIN = "FROM t AS a JOIN p ON J(a.s, p.s) JOIN t AS b ON K(b.s, p.s)"


def judged(question: str, documents: tuple[str, ...]) -> float | None:
    hashed = zlib.crc32((question[0] + "|".join(documents)).encode())
    return None if hashed % 31 == 0 else 0.9 if hashed % 10 < 6 else 0.1


def plain(letter: str, *texts: str | None) -> bool | None:
    """The same judgement as a function of SQL."""
    known = tuple(text for text in texts if text is not None)
    p = judged(letter, known) if len(known) == len(texts) else None
    return None if p is None else p > 0.5


def with_calls(query: str) -> str:
    """J(…), K(…) and F(…) as calls."""
    for letter, places in (("J", "{0} {1}"), ("K", "{0} {1}"), ("F", "{0}")):
        query = re.sub(rf"\b{letter}\(", f"AI.IF(PROMPT('{letter} {places}', ", query)
    return query.replace(".s)", ".s))")


@pytest.fixture
def connection():
    with covey.connect(model=PlantedModel(judged), progress=False, cache=False) as con:
        for name, rows in (("t", 12), ("p", 5)):
            # Texts repeat and are missing: pairs are of rows, answers of texts.
            texts = [None if i == 3 else f"{name} {i % 7}" for i in range(rows)]
            keys = [i % 2 for i in range(rows)]
            con.register(name, pa.table({"id": list(range(rows)), "k": keys, "s": texts}))
        pairs, single = ["VARCHAR", "VARCHAR"], ["VARCHAR"]
        for name, function, kinds in (
            ("J", lambda x, y: plain("J", x, y), pairs),
            ("K", lambda x, y: plain("K", x, y), pairs),
            ("F", lambda x: plain("F", x), single),
        ):
            con.duckdb.create_function(name, function, kinds, "BOOLEAN", null_handling="special")
        yield con


QUERIES = [
    f"SELECT a.id, p.id, b.id {CHAIN}",
    f"SELECT a.k, count(*) AS n {CHAIN} WHERE F(a.s) GROUP BY ALL",
    f"SELECT DISTINCT p.id, b.s {CHAIN} WHERE a.k = b.k",
    "SELECT a.id, p.id, b.id FROM t AS a, p, t AS b WHERE J(a.s, p.s) AND J(b.s, p.s) "
    "AND F(b.s) AND a.k = p.k",
    "SELECT a.id FROM t AS a, p JOIN t AS b ON K(b.s, p.s) WHERE J(a.s, p.s)",
    f"SELECT a.id, (SELECT max(k) FROM p) AS m {CHAIN}",
    f"SELECT a.id, p.id, b.id, c.id {CHAIN} JOIN p AS c ON J(b.s, c.s) WHERE a.id > 2 OR p.id = 1",
    # Pairs are not joined where a star would show them, where something stands beside a call,
    # or where the rows are not the statement's.
    f"SELECT * {CHAIN}",
    f"SELECT COLUMNS('id') {CHAIN}",
    f"FROM (SELECT a.id {CHAIN})",
    f"SELECT a.id {CHAIN} AND (J(a.s, b.s) OR F(a.s))",
    f"SELECT a.id, F(b.s) {CHAIN}",
]


@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_those_of_plain_functions(connection, query):
    expected = Counter(connection.duckdb.sql(query).fetchall())
    assert expected, "the query shows something"
    assert Counter(connection.run(with_calls(query)).fetchall()) == expected


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_limit_gives_some_of_the_rows(connection, limit):
    query = f"SELECT a.id, p.id, b.id {CHAIN}"
    every = set(connection.duckdb.sql(query).fetchall())
    rows = connection.run(with_calls(f"{query} LIMIT {limit}")).fetchall()
    assert len(rows) == min(limit, len(every))
    assert set(rows) <= every


def test_a_chain_looks_up_pairs_and_not_rows(connection, monkeypatch):
    looked_up = Counter()
    read = AnswerUDFs._read

    def counted(self, call, ids, note):
        looked_up[query] += len(ids)
        return read(self, call, ids, note)

    monkeypatch.setattr(AnswerUDFs, "_read", counted)
    for name in ("t", "p"):  # many more rows than pairs
        table = connection.duckdb.sql(
            f"SELECT id + 100 * n AS id, k, s FROM {name}, range(6) AS r(n)"
        ).to_arrow_table()
        connection.register(name, table)
    columns = "a.id, a.k, a.s, p.id, p.k, p.s, b.id, b.k, b.s"
    rows = {}
    for query in (f"SELECT {columns} {CHAIN}", f"SELECT * {CHAIN}"):
        rows[query] = Counter(connection.run(with_calls(query)).fetchall())
    named, star = rows
    assert rows[named] == rows[star]
    assert looked_up[star] > rows[star].total()
    assert looked_up[named] < looked_up[star] / 3


def test_explain_names_the_pairs_that_are_gathered(connection):
    query = with_calls(f"SELECT a.id, p.id, b.id {CHAIN}")
    gathered = [call.strip() for call in re.findall(r"AI\.IF\(.*?\)\)", query)]
    text = connection.explain(query)
    assert [f"gather the pairs that passed {call}" in text for call in gathered] == [True, True]
    steps = json.loads(connection.sql(query).explain("json"))["statements"][0]["steps"]
    assert [s["call"] for s in steps if s["step"] == "pairs"] == gathered
