"""Cut the rows of a block into batches that pass from one question to the next."""

from __future__ import annotations

from covey.optimizer.demand import locate
from covey.optimizer.limit import enough_rows
from covey.optimizer.rows import BlockRows
from covey.optimizer.workspace import LoadedSource
from covey.plan.nodes import BATCH_ROWS, FIRST_ROW, LAST_ROW, Ask, Flow, Stage, Step
from covey.sql.from_clause import NotPlanned


class FlowPlan:
    """The batches of one block, opened before its calls are asked and closed behind them.

    Only where all joins of the block are inner: elsewhere a row may need partners of
    every batch. The batches are cut along the source that gives most anchors, since
    their keys and values are what a batch keeps.

    Args:
        rows: the block, its sources loaded.
    """

    def __init__(self, rows: BlockRows) -> None:
        self._rows = rows
        self._first = self._staged = len(rows.work.steps)
        self._stages: list[Stage] = []
        self._needed = enough_rows(rows)
        self._source = _anchor_source(rows) if rows.block.inner else None
        if self._source is not None:
            row_id = self._source.row_id
            rows.batch = (
                f"{row_id} BETWEEN getvariable('{FIRST_ROW}') AND getvariable('{LAST_ROW}') "
                f"AND {row_id} IN (SELECT unnest(getvariable('{BATCH_ROWS}')))"
            )

    def stage(self) -> None:
        """Let the asks since the last stage be one more, behind whose condition rows are gone."""
        if self._source is None:
            return
        asks = self._take()
        if asks:
            self._stages.append(Stage(asks, self._rows.demand().distinct([self._source])))

    def _take(self) -> tuple[Ask, ...]:
        """The asks since the last stage."""
        steps = self._rows.work.steps
        first, self._staged = self._staged, len(steps)
        return tuple(step for step in steps[first:] if isinstance(step, Ask))

    def close(self) -> None:
        """Gather the asks since the opening into one step."""
        rows, steps = self._rows, self._rows.work.steps
        outputs = self._take()
        if outputs:
            self._stages.append(Stage(outputs, None))
        rows.batch = None
        asks = tuple(ask for stage in self._stages for ask in stage.asks)
        if self._source is None or not asks:
            return
        others: list[Step] = [s for s in steps[self._first :] if not isinstance(s, Ask)]
        found = None
        # A condition that was left to demand iteration has its answers only at the end,
        # so that no batch can tell how many rows are found.
        if self._needed is not None and len(rows.asked) == len(rows.wanted):
            found = f"SELECT count(*) FROM ({rows.demand().query('1')} LIMIT {self._needed})"
        needed = None if found is None else self._needed
        table = self._source.load.table
        columns = [column for ask in asks for column in ask.documents if column.table == table]
        flow = Flow(tuple(self._stages), table, columns[0] if columns else None, needed, found)
        steps[self._first :] = [*others, flow]


def _anchor_source(rows: BlockRows) -> LoadedSource:
    """The source that gives the anchor of most calls; the first among equals."""
    counts = dict.fromkeys(rows.loaded, 0)
    for number in frozenset[int]().union(*(c.calls for c in rows.wanted)):
        call = rows.work.calls[number]
        if not call.arguments:
            continue
        try:
            source, _ = locate(rows.work, call.arguments[call.question.anchor], rows.loaded)
        except NotPlanned:
            continue
        counts[source] += 1
    return max(rows.loaded, key=lambda source: counts[source])
