"""What a pipeline tells the engine about the documents that come first in its prompts."""

from __future__ import annotations

import numpy as np

from covey.arrays import Int64, distinct, without
from covey.execution.asking import Asking
from covey.execution.batch_size import BYTES_A_TOKEN
from covey.execution.steps import StepRunner
from covey.plan.nodes import Ask, DocumentColumn, Pipeline
from covey.prompts.documents import NULL_ID

_NONE = np.empty(0, np.int64)


class PipelineAnchors:
    """The anchors of a pipeline's calls, and which of them are still to be read.

    Those of the pipeline's own source go with their rows. Those of other tables are read by batch
    after batch, and stay until the last is through.
    """

    def __init__(self, step: Pipeline, runner: StepRunner, asker: Asking) -> None:
        self._runner = runner
        self._asker = asker
        columns = (ask.anchor_documents for ask in step.asks)
        self._own = {c for c in columns if c is not None and c.table == step.table}
        self._kept: set[DocumentColumn] = set()
        self._fitting: dict[DocumentColumn, bool] = {}

    def may_stay(self, ask: Ask) -> bool:
        """Whether a call's anchors are of another table than the source, and fit together.

        Where they do not, each batch would push out what the next one reads first.
        """
        column = ask.anchor_documents
        if column is None or column in self._own:
            return False
        capacity = self._asker.capacity()
        if capacity is None:
            return True
        if column not in self._fitting:
            end = self._runner.relations.rows_within(column, 0, int(capacity * BYTES_A_TOKEN))
            self._fitting[column] = end >= self._runner.rows_of(column.table)
        return self._fitting[column]

    def keep(self, ask: Ask) -> None:
        """Other batches will read a call's shared anchors: they stay until `end`."""
        if ask.anchor_documents is not None:
            self._kept.add(ask.anchor_documents)

    def release(self, rows: Int64, kept: Int64 = _NONE) -> None:
        """Nothing will be asked about some rows of the source any more; of `kept` it still may."""
        for column in self._own:
            self._release(column, rows, kept)

    def end(self) -> None:
        """No batch is left."""
        for column in self._kept:
            self._release(column, np.arange(self._runner.rows_of(column.table)))

    def _release(self, column: DocumentColumn, rows: Int64, kept: Int64 = _NONE) -> None:
        gone, stay = (distinct(self._runner.documents_of(column, each)) for each in (rows, kept))
        documents = without(gone, stay)
        self._asker.release(documents[documents != NULL_ID])
