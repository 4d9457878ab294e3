"""Time to parse, bind and plan a long statement: 300 lines, 20 AI calls.

python bench/planning.py
"""

from __future__ import annotations

import statistics
import time

import pyarrow as pa

import covey
from covey.testing import PlantedModel

BLOCKS = 10
COLUMNS = 30
ROUNDS = 10


def statement() -> str:
    """Ten common table expressions, each with a filter and a join, and a query over all."""
    parts = []
    for k in range(BLOCKS):
        columns = "".join(f"\n    t.c{i} AS x{i}_{k}," for i in range(1, 22))
        parts.append(
            f"""b{k} AS (
  SELECT t.c0,{columns}
    p.c1 AS y{k}
  FROM t JOIN p ON t.c3 = p.c3
  WHERE t.c4 IS NOT NULL
    AND AI.IF(PROMPT('Question {k} {{0}}', t.c5))
    AND AI_JOIN(PROMPT('Pair {k} {{0}} {{1}}', t.c6, p.c6))
)"""
        )
    counts = ",\n  ".join(f"(SELECT count(*) FROM b{k})" for k in range(BLOCKS))
    return f"WITH {', '.join(parts)}\nSELECT\n  {counts}"


def main() -> None:
    """Print the lines, the calls, and the median and best of some rounds."""
    table = pa.table({f"c{i}": ["a", "b"] for i in range(COLUMNS)})
    text = statement()
    with covey.connect(model=PlantedModel(lambda question, documents: 1.0)) as con:
        con.register("t", table)
        con.register("p", table)
        seconds = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            con.sql(text)
            seconds.append(time.perf_counter() - started)
    lines, calls = text.count("\n") + 1, text.count("AI")
    print(f"{lines} lines, {calls} AI calls")
    print(f"median {1e3 * statistics.median(seconds):.0f} ms, best {1e3 * min(seconds):.0f} ms")


if __name__ == "__main__":
    main()
