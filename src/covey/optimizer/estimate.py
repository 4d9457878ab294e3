"""How much a plan will ask for, as far as DuckDB can say without the model."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from covey.plan.nodes import Ask, Load, PhysicalPlan
from covey.sql.text import quote_name

# Mean UTF-8 bytes of a token in English prose under the tokenizers of the known models.
BYTES_A_TOKEN = 4.4
# Rows looked at for the mean length of a document.
SAMPLE_ROWS = 2000


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """What is known of one step before it runs.

    Attributes:
        rows: of a load its rows; of an ask the prompts, at most; None where it depends
            on answers of the model.
        tokens: mean tokens of a prompt's documents, for an ask.
    """

    rows: int | None = None
    tokens: float | None = None


def estimate(
    plan: PhysicalPlan, connection: duckdb.DuckDBPyConnection
) -> dict[Load | Ask, StepEstimate]:
    """What is known of each load and each ask of a plan."""
    loads = {step.table: step for step in plan.steps if isinstance(step, Load)}
    rows = {table: _count(load, connection) for table, load in loads.items()}
    known: dict[Load | Ask, StepEstimate] = {
        load: StepEstimate(rows[table]) for table, load in loads.items()
    }
    known.update({ask: _estimate_ask(ask, loads, rows, connection) for ask in plan.asks()})
    return known


def _count(load: Load, connection: duckdb.DuckDBPyConnection) -> int | None:
    if "covey_" in load.query:
        # It depends on answers, or on a table that is not filled yet.
        return None
    rows = connection.execute(f"SELECT count(*) FROM ({load.query})").fetchall()
    return int(rows[0][0])


def _estimate_ask(
    ask: Ask,
    loads: dict[str, Load],
    rows: dict[str, int | None],
    connection: duckdb.DuckDBPyConnection,
) -> StepEstimate:
    tokens = 0.0
    prompts: int | None = 1
    for table in dict.fromkeys(column.table for column in ask.documents):
        count = rows[table]
        prompts = None if prompts is None or count is None else prompts * count
    for column in ask.documents:
        load = loads[column.table]
        if rows[column.table] is None:
            return StepEstimate(None, None)
        alias = quote_name(column.alias)
        rows_read = connection.execute(
            f"SELECT avg(strlen({column.expression})) FROM "
            f"(SELECT * FROM ({load.query}) LIMIT {SAMPLE_ROWS}) AS {alias}"
        ).fetchall()
        tokens += (rows_read[0][0] or 0.0) / BYTES_A_TOKEN
    return StepEstimate(prompts, tokens)
