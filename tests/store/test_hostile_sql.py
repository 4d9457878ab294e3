"""Hostile SQL: whatever the text, a result or an error of Covey's, and nothing left behind."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel
from effort import KILLS, SEED

TEXTS_A_CASE = 40

SOUND = [
    "SELECT id FROM t WHERE AI.IF(PROMPT('Refund? {0}', s)) AND id > 1 ORDER BY id",
    "SELECT AI.CLASSIFY(s, ['a', 'b'], output_mode => 'multi') AS c, count(*) FROM t GROUP BY c",
    "WITH v AS (SELECT * FROM t WHERE AI_FILTER(s)) SELECT v.id, u.s FROM v JOIN t AS u "
    "ON AI_JOIN(PROMPT('Same? {0} {1}', v.s, u.s)) OR v.id = u.id",
    "SELECT id, AI.SCORE(('text ', s, ' {}')) FROM t WHERE EXISTS (SELECT 1 FROM t AS u "
    "WHERE AI.IF(PROMPT('{0}{1}', t.s, u.s))) LIMIT 2",
    "SELECT CASE WHEN AI.IF(s) THEN 'x' ELSE s END, row_number() OVER () FROM (FROM t) AS w",
    "SELECT id, AI.IF(s), FROM t, WHERE AI.IF(s)",
    "EXPLAIN SELECT * FROM t, LATERAL (SELECT AI.SCORE(t.s) AS p) AS l",
    "CREATE OR REPLACE TEMP TABLE made AS SELECT s FROM t WHERE NOT AI.IF(s, on_error => 'null')",
]
PIECES = [
    *("'", '"', "$$", "--", "/*", "*/", ";", "(", ")", "[", "{0}", "{", "}}", ",", ".", "=>", "::"),
    *("\x00", "\u202e", "\ufeff", "\ud800", "👩\u200d👧", "é" * 50, "\\", "\r", "%s", "?", "$1"),
    *("AI.IF(", "PROMPT('{9}', s)", "AI.", "covey_0(s)", "covey_source_1", "rowid", "NULL", "NOT"),
    *("SELECT", "FROM t", "WHERE", "UNION ALL", "AS", "WITH", "DISTINCT", "GROUP BY ALL", "*"),
]
TOKEN = re.compile(r"\s+|\w+|'[^']*'|.", re.DOTALL)


def hostile(chance: random.Random) -> str:
    """A sound statement with some of its tokens lost, doubled, moved or replaced."""
    tokens = TOKEN.findall(chance.choice(SOUND))
    for _ in range(chance.randrange(1, 5)):
        first = chance.randrange(len(tokens) + 1)
        last = min(len(tokens), first + chance.randrange(6))
        cut, at = tokens[first:last], chance.randrange(len(tokens) + 1)
        match chance.randrange(4):
            case 0:
                del tokens[first:last]
            case 1:
                tokens[at:at] = cut
            case 2:
                tokens[first:last] = reversed(cut)
            case _:
                tokens[first:last] = [chance.choice(PIECES)]
    return "".join(tokens)


@pytest.mark.fuzz
@pytest.mark.parametrize("case", range(KILLS))
def test_any_text_gives_a_result_or_an_error_of_ours(case: int, tmp_path: Path) -> None:
    chance = random.Random(SEED * 1000 + case)
    model = PlantedModel(
        lambda question, documents: 0.9, lambda question, labels, documents: 0, fingerprint="x"
    )
    refused = 0
    with covey.connect(model, allow=[tmp_path], progress=False, cache=False) as con:
        con.register("t", pa.table({"id": [1, 2, 3], "s": ["a", "b {0}", None]}))
        for _ in range(TEXTS_A_CASE):
            text = hostile(chance)
            asked = len(model.calls)
            try:
                query = con.sql(text)
            except covey.CoveyError as error:
                refused += 1
                assert str(error).strip() and "Traceback" not in str(error), repr(text)
                assert len(model.calls) == asked, f"asked before it was refused: {text!r}"
                continue
            try:
                list(query.batches()) if chance.randrange(2) else query.arrow()
            except covey.CoveyError as error:
                assert str(error).strip() and "Traceback" not in str(error), repr(text)
        assert refused
        left = con.duckdb.execute(
            "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'covey%' UNION ALL "
            "SELECT view_name FROM duckdb_views() WHERE view_name LIKE 'covey%' UNION ALL "
            "SELECT function_name FROM duckdb_functions() WHERE function_name LIKE 'covey%'"
        ).fetchall()
        assert not left, left
        assert con.run("SELECT count(*) FROM t WHERE AI.IF(s)").fetchall() == [(2,)]
