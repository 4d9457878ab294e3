"""The relational side: what execution asks of DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress

import duckdb
import numpy as np
import pyarrow as pa

from covey.arrays import Bool, Int64
from covey.errors import RunError
from covey.execution.arrow_types import carried, marked
from covey.plan.join_graph import Condition, JoinGraph, RowBatch
from covey.plan.nodes import DocumentColumn, Load, Match, Prune
from covey.sql.bind import in_transaction
from covey.sql.temporary import TemporaryObjects, finish
from covey.sql.text import quote_name

# Whoever does not read them to the end closes them.
Batches = Generator[pa.RecordBatch, None, None]

# Rows of a batch of a result.
ROWS_A_BATCH = 100_000
# Rows of a batch of a source at most.
MOST_ROWS = 32_768


class Relations:
    """Runs the queries of one plan.

    Whatever the user has set holds for the user's expressions in them, so that the rest says
    all that a setting or a macro of the user's could change: direction and place of NULLs,
    names that no user has, DuckDB's own functions by their full names.

    Args:
        connection: the connection that the plan was made on.
        objects: what was made there for the plan.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, objects: TemporaryObjects) -> None:
        self._connection = connection
        self._objects = objects
        self._batch: Int64 | None = None
        self._measured: dict[DocumentColumn, str] = {}
        self._batch_table = objects.new_name("batch")

    def fill(self, step: Load | Match) -> int:
        """Fill the table of a step; return the number of rows."""
        return self._objects.create_table(step.table, f"AS {step.query}")

    def row_ids(self, query: str) -> list[Int64]:
        """The row ids that a query gives, one array for each of its columns."""
        table = self.table(query)
        # A row that an outer join filled with NULL has no row id.
        return [column.cast(pa.int64()).fill_null(-1).to_numpy() for column in table.columns]

    def measured(self, column: DocumentColumn) -> str:
        """The texts of a column as SQL for what is counted over all rows of its source.

        NULL where it fails: `CASE WHEN b THEN AI.IF(s::INT) END` asks about no such row.
        DuckDB has no TRY for subqueries and random(): such a text stays as it is.
        """
        if column not in self._measured:
            tried = f"TRY({column.expression})"
            try:
                self._connection.sql(
                    f"SELECT {tried} FROM {column.table} AS {quote_name(column.alias)}"
                )
            except duckdb.BinderException:
                tried = column.expression
            self._measured[column] = tried
        return self._measured[column]

    def rows_within(self, column: DocumentColumn, first: int, size: int) -> int:
        """Where a batch from row `first` on ends, so that its texts have `size` bytes at most.

        It holds one row at least.
        """
        alias = quote_name(column.alias)
        found = self.table(
            f"SELECT {alias}.rowid, coalesce(system.main.strlen({self.measured(column)}), 0) "
            f"FROM {column.table} AS {alias} "
            f"WHERE {alias}.rowid >= {first} AND {alias}.rowid < {first + MOST_ROWS}"
        )
        sizes = np.zeros(MOST_ROWS, np.int64)
        sizes[found.column(0).to_numpy() - first] = found.column(1).to_numpy()
        fitting = int(np.searchsorted(np.cumsum(sizes), size, side="right"))
        return first + max(min(fitting, int(found.num_rows)), 1)

    def batch(self, source: int, rows: Int64) -> RowBatch:
        """Some rows of a source to confine queries to; those of the batch before it are let go.

        `rows` are ascending row ids, one at least; nobody changes the array afterwards.
        """
        table = self._batch_table
        if rows is not self._batch:
            self._objects.register(table, pa.table({table: rows}))
            self._batch = rows
        return RowBatch(source, table, int(rows[0]), int(rows[-1]))

    def prune(self, step: Prune, kept: Int64) -> None:
        """Delete all rows of a source but those with the row ids `kept`."""
        with self._registered({"row": kept}) as (table, names):
            self._connection.execute(
                f"DELETE FROM {step.table} WHERE rowid NOT IN (SELECT {names['row']} FROM {table})"
            ).fetchall()

    def keep_first(self, table: str, rows: int) -> None:
        """Delete all rows of a source from row id `rows` on."""
        self._connection.execute(f"DELETE FROM {table} WHERE rowid >= {rows}").fetchall()

    def count_texts(self, column: DocumentColumn) -> tuple[int, int]:
        """Rows of a source that have a document in a column, and different ones among them."""
        text = self.measured(column)
        rows = self._connection.execute(
            f"SELECT system.main.count({text}), system.main.count(DISTINCT "
            f"system.main.hash({text})) FILTER ({text} IS NOT NULL) "
            f"FROM {column.table} AS {quote_name(column.alias)}"
        ).fetchall()
        return int(rows[0][0]), int(rows[0][1])

    def passing(
        self,
        graph: JoinGraph,
        sources: tuple[int, ...],
        rows: list[Int64],
        condition: Condition,
    ) -> Bool:
        """Which combinations of rows pass a condition, (n,).

        Args:
            graph: whose sources they are of.
            sources: one for each column of `rows`.
            rows: row ids, (n,) each.
            condition: over those sources.
        """
        columns = {str(place): column for place, column in enumerate(rows)}
        relations = [graph.relations[source] for source in sources]
        tables = ", ".join(f"{relation.table} AS {relation.alias}" for relation in relations)
        with self._registered({"at": np.arange(len(rows[0])), **columns}) as (asked, names):
            same = " AND ".join(
                f"{r.row_id} = {names[str(place)]}" for place, r in enumerate(relations)
            )
            found = self.table(
                f"{graph.prefix}SELECT {names['at']} FROM {asked}, {tables} "
                f"WHERE {same} AND ({condition.text})"
            )
        passed = np.zeros(len(rows[0]), np.bool_)
        passed[found.column(0).to_numpy()] = True
        return passed

    def texts(self, column: DocumentColumn, rows: Int64) -> pa.ChunkedArray:
        """The texts of some rows of a loaded source, in the order of `rows`."""
        alias = quote_name(column.alias)
        with self._registered({"row": rows, "at": np.arange(len(rows))}) as (wanted, names):
            return self.table(
                f"SELECT {column.expression} FROM {column.table} AS {alias} "
                f"JOIN {wanted} ON {alias}.rowid = {names['row']} "
                f"ORDER BY {names['at']} ASC NULLS LAST"
            ).column(0)

    @contextmanager
    def _registered(self, columns: dict[str, Int64]) -> Iterator[tuple[str, dict[str, str]]]:
        """Make arrays known as the columns of a table; gives its name, and theirs."""
        table = self._objects.new_name("given")
        names = {name: f"{table}_{name}" for name in columns}
        self._objects.register(table, pa.table({names[name]: columns[name] for name in columns}))
        try:
            yield table, names
        finally:
            self._objects.drop(table)

    def table(self, query: str) -> pa.Table:
        """What a query of ours gives."""
        relation = self._connection.sql(query)
        return pa.table({}) if relation is None else relation.to_arrow_table()

    def result(self, query: str) -> pa.Table:
        """What a user's query gives."""
        return result(self._connection, query)

    def batches(self, query: str) -> Batches:
        """As `result`, some rows at a time; the connection is busy meanwhile.

        Of a result without rows it gives one batch, which shows its columns.
        """
        relation = self._connection.sql(query)
        if relation is None:
            yield from batches_of(pa.table({}))
            return
        reader = carried(relation).to_arrow_reader(ROWS_A_BATCH)
        schema = marked(reader.schema, relation)
        batches = (pa.RecordBatch.from_arrays(each.columns, schema=schema) for each in reader)
        try:
            yield from _at_least_one(batches, schema)
        finally:
            reader.close()

    def drain(self, query: str) -> None:
        """Run a query for what its UDFs want; its rows are let go."""
        for _ in self.batches(query):
            pass

    @contextmanager
    def attempt(self, keep: Callable[[], bool]) -> Iterator[None]:
        """A transaction that is undone unless `keep` says at its end that its work stays."""
        if in_transaction(self._connection):
            raise RunError(
                "A statement that changes rows and asks a model cannot run inside a transaction: "
                "it is tried until every answer is there. COMMIT or ROLLBACK first."
            )
        try:
            self._connection.begin()
            yield
            if keep():
                self._connection.commit()
        finally:
            finish(self._connection, self._roll_back)

    def _roll_back(self) -> None:
        """Undo what was not committed."""
        # There is no transaction where it never began, or was committed.
        with suppress(duckdb.TransactionException):
            self._connection.rollback()


def result(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """What a user's query gives; see `execution.arrow_types`."""
    relation = connection.sql(query)
    if relation is None:
        return pa.table({})
    table = carried(relation).to_arrow_table()
    return pa.Table.from_arrays(table.columns, schema=marked(table.schema, relation))


def batches_of(table: pa.Table) -> Batches:
    """The rows of a table in batches; without rows one batch, which shows its columns."""
    return _at_least_one(table.to_batches(ROWS_A_BATCH), table.schema)


def _at_least_one(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Batches:
    batch = None
    for batch in batches:
        yield batch
    if batch is None:
        yield pa.RecordBatch.from_arrays(
            [pa.nulls(0, kind) for kind in schema.types], schema=schema
        )
