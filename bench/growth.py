"""How planning grows with a statement: seconds to plan and to explain, by shape and size.

python bench/growth.py [SHAPE ...] [--sizes 25 50 100] [--limit 20]

A shape's sizes go up until planning takes longer than the limit. A plan that grows with the
statement takes twice as long for twice the size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import pyarrow as pa

import covey
from covey.testing import PlantedModel

ROWS = 2


def ask(k: int, column: str = "t.b") -> str:
    """An AI condition, another for each k."""
    return f"AI.IF(PROMPT('question {k} {{0}}', {column}))"


def chain(word: str, n: int, each: Callable[[int], str] = ask) -> str:
    """A SELECT with n conditions joined by a word."""
    return "SELECT t.id FROM t WHERE " + f" {word} ".join(each(k) for k in range(n))


def joins(n: int) -> str:
    """n tables in a chain of equality joins, with an AI condition on each."""
    tables = " ".join(f"JOIN t x{k} ON x{k}.id = x{k - 1}.id" for k in range(1, n))
    conditions = " AND ".join(ask(k, f"x{k}.b") for k in range(n))
    return f"SELECT x0.id FROM t x0 {tables} WHERE {conditions}"


def tables(n: int) -> str:
    """n common table expressions with a condition each, all read."""
    parts = ", ".join(f"c{k} AS (SELECT id FROM t WHERE {ask(k)})" for k in range(n))
    return f"WITH {parts} " + " UNION ALL ".join(f"SELECT * FROM c{k}" for k in range(n))


def stacked(n: int) -> str:
    """n common table expressions, each with a condition on the one before it."""
    parts = ", ".join(
        f"c{k + 1} AS (SELECT * FROM c{k} WHERE {ask(k, f'c{k}.b')})" for k in range(n)
    )
    return f"WITH c0 AS (FROM t), {parts} SELECT * FROM c{n}"


def nested(n: int) -> str:
    """n subqueries in FROM, one in the other, with a condition each."""
    text = "t"
    for k in range(n):
        text = f"(SELECT * FROM {text} AS t WHERE {ask(k)})"
    return f"FROM {text} AS t"


def blocks(n: int) -> str:
    """n common table expressions of 28 lines, a filter and a join in each, all read."""
    parts = []
    for k in range(n):
        columns = "".join(f"\n    p.c{i} AS x{i}_{k}," for i in range(1, 22))
        parts.append(
            f"""b{k} AS (
  SELECT t.id,{columns}
    p.c22 AS y{k}
  FROM t JOIN w p ON t.b = p.c3
  WHERE t.id IS NOT NULL
    AND {ask(k)}
    AND AI_JOIN(PROMPT('pair {k} {{0}} {{1}}', t.b, p.c6))
)"""
        )
    counts = ",\n  ".join(f"(SELECT count(*) FROM b{k})" for k in range(n))
    return f"WITH {', '.join(parts)}\nSELECT\n  {counts}"


SHAPES: dict[str, Callable[[int], str]] = {
    "and": lambda n: chain("AND", n),
    "and-equal": lambda n: chain("AND", n, lambda k: ask(0)),
    "or": lambda n: chain("OR", n),
    "or-equal": lambda n: chain("OR", n, lambda k: ask(0)),
    "select": lambda n: "SELECT " + ", ".join(ask(k) for k in range(n)) + " FROM t",
    "select-of-columns": lambda n: (
        "SELECT " + ", ".join(f"AI.SCORE(PROMPT('q {{0}}', w.c{k}))" for k in range(n)) + " FROM w"
    ),
    "union": lambda n: " UNION ALL ".join(f"SELECT id FROM t WHERE {ask(k)}" for k in range(n)),
    "union-select": lambda n: " UNION ALL ".join(f"SELECT {ask(k)} AS r FROM t" for k in range(n)),
    "case": lambda n: (
        "SELECT CASE " + " ".join(f"WHEN {ask(k)} THEN {k}" for k in range(n)) + " END AS c FROM t"
    ),
    "ctes": tables,
    "blocks": blocks,
    "stacked": stacked,
    "nested": nested,
    "joins": joins,
    "values": lambda n: (
        "SELECT * FROM (VALUES " + ", ".join(f"({ask(k, repr(str(k)))})" for k in range(n)) + ")"
    ),
    "not": lambda n: "SELECT id FROM t WHERE " + "NOT " * n + ask(0),
    "brackets": lambda n: "SELECT id FROM t WHERE " + "(" * n + ask(0) + ")" * n,
    "in-list": lambda n: (
        f"SELECT id FROM t WHERE id IN ({', '.join(map(str, range(100 * n)))}) AND {ask(0)}"
    ),
    "labels": lambda n: (
        "SELECT AI.CLASSIFY(b, [" + ", ".join(f"'label {k}'" for k in range(n)) + "]) FROM t"
    ),
    "exists": lambda n: chain(
        "AND",
        n,
        lambda k: f"EXISTS (FROM t u WHERE AI.IF(PROMPT('p {k} {{0}} {{1}}', t.b, u.b)))",
    ),
}


def measure(text: str, explain: bool) -> tuple[float, float]:
    """Seconds of planning and of explain; an error of Covey's ends the bench."""
    ids, texts = list(range(ROWS)), [f"text {k}" for k in range(ROWS)]
    with covey.connect(model=PlantedModel(lambda question, documents: 1.0), cache=False) as con:
        con.register("t", pa.table({"id": ids, "b": texts}))
        con.register("w", pa.table({f"c{k}": texts for k in range(500)}))
        started = time.perf_counter()
        query = con.sql(text)
        planned = time.perf_counter()
        if explain:
            query.explain()
        return planned - started, time.perf_counter() - planned


def main() -> None:
    """Print a line a shape and size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--sizes", nargs="+", type=int, default=[25, 50, 100, 200])
    parser.add_argument("--limit", type=float, default=10.0, help="seconds")
    parser.add_argument("--no-explain", action="store_true", help="plan only")
    given = parser.parse_args()
    print(f"{'shape':<20}{'size':>7}{'plan s':>10}{'explain s':>11}")
    for shape in given.shapes or SHAPES:
        for size in given.sizes:
            planned, explained = measure(SHAPES[shape](size), not given.no_explain)
            print(f"{shape:<20}{size:>7}{planned:>10.2f}{explained:>11.2f}", flush=True)
            if planned + explained > given.limit:
                break


if __name__ == "__main__":
    main()
