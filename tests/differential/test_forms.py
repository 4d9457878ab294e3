"""Ways of writing what DuckDB takes: aliases, several columns, groups, guards, quoted names."""

from __future__ import annotations

import pytest

from differential.statements import Statements

CALL = "AI.IF(PROMPT('q {0}', a))"
OF_TA = "AI.IF(PROMPT('q {0}', t.a))"
NUMBER = "AI.SCORE(PROMPT('q {0}', a::INT))"
IS_NUMBER = "a ~ '^[0-9]+$'"

ALIASES = tuple(
    f"SELECT {item} FROM t"
    for item in (
        *(f"{CALL} IS {value} r" for value in ("NULL", "NOT NULL", "TRUE", "NOT FALSE")),
        *(f"{CALL} = {value} r" for value in ("TRUE", "FALSE", "NULL", "('t' = 't')")),
        *(f"{CALL}::{kind} r" for kind in ("INT", "DECIMAL(10, 2)", "DOUBLE PRECISION")),
        f"[{CALL}]::INT[] r",
        f"[{CALL}] r",
        f"[{CALL}][1] r",
        f"{{'k': {CALL}}} r",
        f"MAP {{'k': {CALL}}} r",
        f"{CALL} ISNULL r",
        f"{CALL} NOTNULL r",
        f"{CALL} AND t.n = 1 r",
        f"CASE WHEN {CALL} THEN 1 END r",
        "AI.CLASSIFY(a, ['x', 'y']) || 'z' r",
        "AI.CLASSIFY(a, ['x', 'y']) COLLATE NOCASE r",
        "AI.SCORE(PROMPT('q {0}', a)) + 1 r",
        "AI.SCORE(PROMPT('q {0}', a)) > n r",
        f'{CALL} IS TRUE "r s"',
        f"r: {CALL}",
        f"{CALL} NULLS",
        f"count(*) FILTER (WHERE {CALL}) r",
        "sum(AI.SCORE(PROMPT('q {0}', a))) OVER w r",
    )
)
COLUMNS = (
    "SELECT AI.IF(PROMPT('q {0}', COLUMNS(['a', 'n']))) FROM t",
    "SELECT AI.IF(PROMPT('q {0}', COLUMNS(*))) FROM t",
    "SELECT AI.IF(PROMPT('q {0}', COLUMNS(* EXCLUDE (d)))) FROM t",
    "SELECT AI.IF(PROMPT('q {0}', COLUMNS(t.*))) FROM t",
    "SELECT AI.IF(PROMPT('q {0}', COLUMNS('a|n'))) AS r FROM t",
    "SELECT AI.IF(COLUMNS(*)) FROM t",
    "SELECT AI.CLASSIFY(COLUMNS(['a']), ['x', 'y']) FROM t",
    "SELECT n FROM t WHERE AI.IF(PROMPT('q {0}', COLUMNS(['a', 'n'])))",
    "SELECT count(*) FROM t GROUP BY n HAVING AI.IF(PROMPT('q {0}', max(COLUMNS(['a', 'n']))))",
)
# What has names of its own; the last are one value.
NAMED = (
    (f"SELECT * REPLACE ({CALL} AS a) FROM t", ["a", "n", "d"]),
    (f"SELECT t.* EXCLUDE (d) REPLACE ({CALL} AS a, 1 AS n) FROM t", ["a", "n"]),
    (f"SELECT * REPLACE ({CALL} AS a) RENAME (n AS m), n FROM t", ["a", "m", "d", "n"]),
    ("SELECT AI.SCORE(PROMPT('q {0}', a)) * COLUMNS(['n']) FROM t", ["n"]),
    (f"SELECT d FROM (SELECT * REPLACE ({CALL} AS a) FROM t) WHERE a", ["d"]),
    *(
        (f"SELECT {item} FROM (SELECT a, a AS columns, n FROM t)", [item])
        for item in (
            "AI.IF(PROMPT('q {0}', columns))",
            "AI.IF(PROMPT('q {0}', concat(*COLUMNS(['a', 'n']))))",
            "n * AI.SCORE(PROMPT('q {0}', concat('x', *COLUMNS(['a', 'n']))))",
        )
    ),
)
GROUPS = (
    f"SELECT {OF_TA} AS r, count(*) AS c FROM t GROUP BY {CALL}",
    f"SELECT AI.IF(PROMPT('q {{0}}', \"a\")) AS r, count(*) AS c FROM t GROUP BY {CALL}",
    f"SELECT AI.IF(PROMPT('q {{0}}', (A))) AS r, count(*) AS c FROM t GROUP BY {OF_TA}",
    f"SELECT AI_FILTER(('q ', T.A)) AS r, count(*) AS c FROM t GROUP BY {CALL}",
    f"SELECT {CALL} AS r, count(*) AS c FROM t GROUP BY ROLLUP ({OF_TA})",
    f"SELECT {CALL} AS r, count(*) AS c FROM t GROUP BY CUBE ({OF_TA}, n)",
    f"SELECT {CALL} AS r, n FROM t GROUP BY GROUPING SETS (({OF_TA}), (n), ())",
    # Where the key itself is a column of the group, its look-up is another one's NULL.
    f"SELECT a, {CALL} AS r FROM t GROUP BY a, ROLLUP ({OF_TA})",
    f"SELECT {CALL} AS r, GROUPING({CALL}) AS g FROM t GROUP BY ROLLUP ({OF_TA})",
    f"SELECT {OF_TA} AS r, n FROM t GROUP BY ALL",
    f"SELECT {OF_TA} AS r, count(*) AS c FROM t GROUP BY 1",
    f"SELECT {OF_TA} AS r, count(*) AS c FROM t GROUP BY r",
    "SELECT AI.IF(PROMPT('q {0}', lower(a))) AS r, count(*) AS c FROM t"
    " GROUP BY AI.IF(PROMPT('q {0}', LOWER( t.a )))",
    "SELECT AI.IF(PROMPT('q {0}', n::VARCHAR)) AS r, count(*) AS c FROM t"
    " GROUP BY AI.IF(PROMPT('q {0}', CAST(t.n AS VARCHAR)))",
    "SELECT AI.SCORE(PROMPT('q {0}', t.a)) > 0.5 AS r, count(*) AS c FROM t"
    " GROUP BY AI.SCORE(PROMPT('q {0}', a)) > 0.5",
    f"SELECT count(*) AS c FROM t GROUP BY {CALL} HAVING {OF_TA}",
    f"SELECT count(*) AS c FROM t GROUP BY {CALL} ORDER BY {OF_TA}",
    f"SELECT DISTINCT ON ({CALL}) {OF_TA} AS r FROM t ORDER BY {OF_TA}, n",
    f"SELECT DISTINCT {CALL} AS r FROM t ORDER BY {OF_TA}",
    f"SELECT {CALL} AS r, AI.IF(PROMPT('q {{0}}', n)) AS s FROM t GROUP BY {OF_TA}, t.n",
)
# A total is shown of no rows, too.
OF_NONE = (
    "SELECT AI.SCORE(PROMPT('on?')) AS r, count(*) AS c FROM t WHERE n > 9",
    "SELECT AI.SCORE(PROMPT('on?')) AS r, count(*) AS c FROM t WHERE AI.IF(a) AND n > 9",
    "SELECT AI.IF(PROMPT('on?')) AS r, max(n) AS m FROM t WHERE n > 9 GROUP BY ALL",
    "SELECT AI.IF(PROMPT('on?')) AS r, max(n) AS m FROM t WHERE n > 9 GROUP BY ()",
    "SELECT AI.IF(PROMPT('on?')) AS r, n, max(n) AS m FROM t WHERE n > 9 GROUP BY ROLLUP (n)",
    "SELECT AI.IF(PROMPT('on?')) AS r, max(n) AS m FROM t WHERE n > 9 GROUP BY GROUPING SETS (())",
    "SELECT AI.IF(PROMPT('on?')) AS r, n, max(n) AS m FROM t WHERE n > 9 GROUP BY n, r",
    "SELECT coalesce(max(n), AI.SCORE(PROMPT('on?'))) AS r FROM t WHERE n > 9",
    "SELECT count(*) AS c FROM t WHERE n > 9 HAVING AI.IF(PROMPT('on?')) IS NOT NULL",
    "SELECT count(*) AS c FROM t WHERE n > 9 ORDER BY AI.SCORE(PROMPT('on?'))",
    "SELECT u.n, (SELECT AI.SCORE(PROMPT('on?')) + count(*) FROM t WHERE t.n > 9) AS r FROM u",
    "SELECT * FROM (SELECT AI.SCORE(PROMPT('on?')) AS r, count(*) AS c FROM t WHERE n > 9)",
    "SELECT max(AI.SCORE(PROMPT('on?'))) AS r, count(*) AS c FROM t WHERE n > 9",
)
SUBQUERIES = (
    "SELECT AI.CLASSIFY((SELECT min(y.a) FROM t AS x, t AS y), ['u', 'v']) AS c",
    "SELECT AI.IF((SELECT a FROM t ORDER BY n, a LIMIT 1)) AS c",
    "SELECT AI.IF((FROM (VALUES ('a', 1)) AS v(k, l) SELECT k)) AS c",
    "SELECT AI.IF((VALUES ('a'))) AS c",
    "SELECT AI.IF((WITH x AS (SELECT 1, 2) SELECT 'k' FROM x)) AS c",
    "SELECT AI.IF(((SELECT min(y.a) FROM t AS x, t AS y))) AS c",
    "SELECT AI.IF(('a, ', (SELECT min(y.a) FROM t AS x, t AS y))) AS c",
    "SELECT AI.IF(PROMPT('q {0}', (SELECT min(y.a) FROM t AS x, t AS y))) AS c",
    "SELECT n, AI.IF((SELECT max(u.b) FROM u, u AS w WHERE u.n = t.n)) AS c FROM t",
)
GUARDS = (
    f"SELECT n, CASE WHEN {IS_NUMBER} THEN {NUMBER} END AS r FROM t",
    f"SELECT n, CASE a WHEN '12' THEN {NUMBER} END AS r FROM t",
    f"SELECT n, CASE WHEN n > 4 THEN CASE WHEN {IS_NUMBER} THEN {NUMBER} END END AS r FROM t",
    f"SELECT n, CASE WHEN NOT ({IS_NUMBER}) THEN 1 ELSE {NUMBER} END AS r FROM t",
    f"SELECT n, coalesce(CASE WHEN NOT ({IS_NUMBER}) THEN 1 END, {NUMBER}) AS r FROM t",
    f"SELECT n, ifnull(CASE WHEN NOT ({IS_NUMBER}) THEN 1 END, {NUMBER}) AS r FROM t",
    f"SELECT n, if({IS_NUMBER}, {NUMBER}, 0) AS r FROM t",
    f"SELECT n, TRY({NUMBER}) AS r FROM t",
    f"SELECT n, TRY(coalesce({NUMBER}, 5)) AS r FROM t",
    "SELECT n, AI.SCORE(PROMPT('q {0}', TRY(a::INT))) AS r FROM t",
    "SELECT n, AI.SCORE(PROMPT('q {0}', TRY_CAST(a AS INT))) AS r FROM t",
    f"SELECT n FROM t WHERE {IS_NUMBER} AND {NUMBER} > 0.1",
    f"SELECT n FROM t WHERE CASE WHEN {IS_NUMBER} THEN {NUMBER} > 0.1 END",
    f"SELECT n FROM t WHERE TRY({NUMBER} > 0.1)",
    f"SELECT t.n, u.n FROM t JOIN u ON CASE WHEN {IS_NUMBER} THEN {NUMBER} > u.n / 4 END",
    f"SELECT t.n, u.n FROM t LEFT JOIN u ON CASE WHEN {IS_NUMBER} THEN {NUMBER} > 0.1 END",
)
QUOTED = (
    # DuckDB takes capitals of other alphabets for other letters.
    'SELECT AI.IF(PROMPT(\'x {0}\', "\u0100")) AS r FROM (SELECT a AS "\u0100" FROM t) AS w',
    'SELECT "AI"."IF"(PROMPT(\'x {0}\', a)) AS r FROM t',
    'SELECT n FROM t WHERE "ai".if("Prompt"(\'x {0}\', a))',
    "SELECT \"AI_IF\"(PROMPT('x {0}', a)) AS r FROM t",
    "SELECT \"ai_filter\"(('x ', a)) AS r FROM t",
    "SELECT ai . \"Score\" (PROMPT('x {0}', a)) AS r FROM t",
    "SELECT \"AI_CLASSIFY\"(a, ['x', 'y']) AS r FROM t",
)
PIVOTS = (
    "PIVOT t ON AI.CLASSIFY(a, ['x', 'y']) USING count(*)",
    "PIVOT t ON AI.CLASSIFY(a, ['x', 'y']) USING count(*) GROUP BY n",
    "PIVOT (SELECT a, n, d FROM t) ON AI.CLASSIFY(a, ['x', 'y']), n USING count(*)",
    "PIVOT t ON AI.CLASSIFY(a, ['x', 'y']) IN ('x', 'y') USING count(*) GROUP BY n",
    "PIVOT (FROM t WHERE AI.IF(a)) ON n USING max(AI.SCORE(PROMPT('q {0}', a)))",
    "SELECT * FROM t PIVOT (count(*) FOR AI.CLASSIFY(a, ['x', 'y']) IN ('x', 'y'))",
    "UNPIVOT (SELECT n, AI.SCORE(PROMPT('q {0}', a)) AS s, 0.5 AS s2 FROM t) ON s, s2",
    "PIVOT (SELECT * FROM t JOIN u ON AI.IF(PROMPT('{0} {1}', t.a, u.b))) ON b USING count(*)",
)

# Names of columns behind an alias.
TIMES = "JOIN range(1, 4) AS r(k) ON k"
NAMES = (
    "SELECT i, AI.IF(PROMPT('q {0}', i)) AS r FROM range(5) t(i) WHERE i > 1",
    "SELECT x FROM (VALUES ('a', 1), ('b', 2)) AS v(x, y) WHERE AI.IF(PROMPT('q {0}', v.x))",
    "SELECT v.x, n FROM t AS v(x) WHERE AI.IF(PROMPT('q {0}', x)) AND n > 1",
    "SELECT v.* FROM t AS v(x) WHERE AI.IF(PROMPT('q {0}', x))",
    "SELECT d FROM t AS v(x, d, n) WHERE AI.IF(PROMPT('q {0}', x)) AND d > 1",
    f"SELECT a, k FROM t {TIMES} = n AND AI.IF(PROMPT('q {{0}} {{1}}', a, k))",
    f"SELECT a, k FROM t LEFT {TIMES} < n AND AI.IF(PROMPT('q {{0}}', a)) WHERE n < 4",
    f"SELECT a, k FROM t RIGHT {TIMES} = n AND AI.IF(PROMPT('q {{0}}', a))",
    f"SELECT a, k FROM t LEFT {TIMES} = n WHERE AI.IF(PROMPT('q {{0}}', k))",
    "SELECT p FROM (SELECT a, n FROM t WHERE AI.IF(a)) AS w(p, m) WHERE m > 1",
    "WITH w(p, m) AS (SELECT a, n FROM t) SELECT o FROM w AS v(o) WHERE AI.IF(o) AND m > 1",
    'SELECT o FROM (SELECT p AS o FROM t AS v(p, q)) AS w("O o") JOIN t AS s(o) ON AI.IF(o)',
    "SELECT n FROM t WHERE EXISTS (SELECT 1 FROM u AS w(c, m) WHERE m = n AND AI.IF(c))",
    "SELECT x, count(*) AS c FROM t AS v(x, y) WHERE AI.IF(x) GROUP BY x",
)


@pytest.mark.parametrize("statement", ALIASES)
def test_an_alias_needs_no_as(statements: Statements, statement: str) -> None:
    window = " WINDOW w AS (ORDER BY n)" if " w r" in statement else ""
    assert statements.check(statement + window) is None


@pytest.mark.parametrize(
    "statement", [*COLUMNS, *GROUPS, *OF_NONE, *SUBQUERIES, *GUARDS, *QUOTED, *PIVOTS, *NAMES]
)
def test_it_gives_what_duckdb_gives(statements: Statements, statement: str) -> None:
    assert statements.check(statement) is None
    asked = statements.recorder.asked
    assert len(asked) == len(set(asked)), "a prompt was asked twice"


@pytest.mark.parametrize("statement, names", NAMED)
def test_columns_are_called_as_duckdb_calls_them(
    statements: Statements, statement: str, names: list[str]
) -> None:
    assert statements.check(statement) is None
    assert statements.names(statement) == names


@pytest.mark.parametrize("how", ["OR REPLACE TEMP TABLE", "TEMPORARY TABLE", "TABLE"])
def test_answers_are_kept_by_every_create_table(statements: Statements, how: str) -> None:
    created = f"CREATE {how} kept AS SELECT n FROM t WHERE {CALL}"
    assert statements.check(created, then="FROM kept") is None
    assert statements.check("DROP TABLE kept", then="FROM t") is None
