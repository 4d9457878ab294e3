"""An AI call in every place that DuckDB's grammar has for an expression.

In the statements of queries.sql and changes.sql <B> is a condition on the rows of t, <S> a
number, <L> a text, <U> a number of the rows of u, <P> a condition on pairs, <C> a number that is
the same for all rows. Each is written in several ways (`WAYS`); a statement is run with one of
them, with all in `make fuzz`.
"""

from __future__ import annotations

from pathlib import Path

WAYS = {
    "<B>": (
        "AI.IF(PROMPT('q {0}', a))",
        "(AI_FILTER(('q ', a)) OR AI.IF(PROMPT('z {0}', a)))",
        "(AI.SCORE(PROMPT('q {0}', a)) > 0.5)",
        "(AI.CLASSIFY(a, ['x', 'y']) = 'x')",
        "(NOT AI.IF(PROMPT('q {0}', upper(a))))",
    ),
    "<S>": (
        "AI.SCORE(PROMPT('q {0}', a))",
        "(AI.SCORE(PROMPT('q {0}', a)) + AI.SCORE(PROMPT('z {0}', a)))",
        "(CASE WHEN AI.IF(PROMPT('q {0}', a)) THEN 0.75::DOUBLE ELSE 0.25 END)",
        "coalesce(AI.SCORE(PROMPT('q {0}', a)), 0.5)",
    ),
    "<L>": (
        "AI.CLASSIFY(a, ['x', 'y'])",
        "lower(AI.CLASSIFY(PROMPT('what is {0}', a), ['x', 'y']))",
        "(CASE WHEN AI.IF(PROMPT('q {0}', a)) THEN 'x' ELSE AI.CLASSIFY(a, ['x', 'y']) END)",
    ),
    "<U>": ("AI.SCORE(PROMPT('q {0}', b))", "(AI.SCORE(PROMPT('q {0}', b)) * 1.5)"),
    "<P>": (
        "AI.IF(PROMPT('p {0} {1}', t.a, u.b))",
        "(AI.IF(PROMPT('q {0}', t.a)) AND AI.IF(PROMPT('p {1} {0}', t.a, u.b)))",
        "(AI.SCORE(PROMPT('p {0}', t.a || u.b)) > 0.5)",
    ),
    "<C>": ("AI.SCORE('constant')", "coalesce(AI.SCORE(PROMPT('another constant')), 0.5)"),
}

HERE = Path(__file__).parent
QUERIES = (HERE / "queries.sql").read_text(encoding="utf-8")
# Each with a query that shows what it did.
CHANGES = (HERE / "changes.sql").read_text(encoding="utf-8")


def ways(statement: str, number: int) -> str:
    """A statement with its expressions in one of their ways."""
    for name, written in WAYS.items():
        statement = statement.replace(name, written[number % len(written)])
    return statement
