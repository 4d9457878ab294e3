"""A model whose answers are noted on their way, as tables of a query's ids.

The benchmark's harness takes an engine's answers by operator. Covey asks about texts, each once;
`Notes.tables` gives the rows of the tables that have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import duckdb
import numpy as np
import pyarrow as pa

from covey.engine.base import Answers, Engine, EngineSession, ModelSource, PromptBatch
from covey.estimate.profile import ModelProfile
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question, QuestionKind
from suite.forced import WrappedSession
from suite.plan import Classify, Filter, Join, Plan
from suite.shapes import Int64


class Notes:
    """What one query's session answered: documents and scores by question."""

    def __init__(self) -> None:
        self._documents: DocumentStore | None = None
        self._noted: dict[Question, list[tuple[Int64, np.ndarray]]] = {}

    def clear(self) -> None:
        """Forget everything: another query follows."""
        self._documents = None
        self._noted.clear()

    def begin(self, documents: DocumentStore) -> None:
        """Take the documents that answers will be about; a query may open several sessions."""
        self._documents = documents

    def add(self, question: Question, documents: Int64, scores: np.ndarray) -> None:
        """Note some answers; prompts that failed are left out."""
        whole = ~np.isnan(scores).any(axis=1)
        self._noted.setdefault(question, []).append((documents[whole], scores[whole]))

    def tables(self, plan: Plan, tables: Mapping[str, pa.Table]) -> dict[str, dict[str, pa.Table]]:
        """Answers by operator: "filter", "join" and "classify" to tables by operator id.

        Each has the ids of its relations' rows, named by their aliases, and `answer`, a boolean,
        or `label`.

        Args:
            plan: the query.
            tables: by name, the id first.
        """
        found: dict[str, dict[str, pa.Table]] = {"filter": {}, "join": {}, "classify": {}}
        for step in plan.steps:
            match step:
                case Filter():
                    kind, aliases = "filter", (step.alias,)
                case Join():
                    kind, aliases = "join", step.aliases
                case Classify():
                    kind, aliases = "classify", step.aliases
                case _:
                    continue
            # Operators of a kind number in the order of the plan.
            name = f"{kind}-{len(found[kind]) + 1}"
            found[kind][name] = self._table(step, aliases, tables)
        return found

    def _table(
        self,
        step: Filter | Join | Classify,
        aliases: tuple[str, ...],
        tables: Mapping[str, pa.Table],
    ) -> pa.Table:
        """The answers to one operator's question for all rows whose documents have one."""
        documents, values = self._answers(step)
        connection = duckdb.connect()
        given = {f"document{i}": documents[:, i] for i in range(len(aliases))}
        connection.register("noted", pa.table(given | {values[0]: values[1]}))
        joins = []
        for i, (alias, (table, column)) in enumerate(
            zip(aliases, step.predicate.documents, strict=True)
        ):
            ids = self._ids(tables[table][column])
            first = tables[table].column_names[0]
            connection.register(
                f"rows{i}", pa.table({alias: tables[table][first], "covey_document": ids})
            )
            joins.append(f"JOIN rows{i} ON rows{i}.covey_document = noted.document{i}")
        columns = ", ".join(f'rows{i}."{alias}"' for i, alias in enumerate(aliases))
        query = f"SELECT {columns}, {values[0]} FROM noted {' '.join(joins)}"
        return connection.sql(query).to_arrow_table()

    def _answers(self, step: Filter | Join | Classify) -> tuple[Int64, tuple[str, pa.Array]]:
        """(n, documents) ids, and the name and values of their answers."""
        predicate = step.predicate
        arity = len(predicate.documents)
        parts = [
            part
            for question, own in self._noted.items()
            if question.template == predicate.template
            and tuple(label.text for label in question.labels)
            == tuple(label.text for label in predicate.labels)
            for part in own
        ]
        documents = np.concatenate([np.empty((0, arity), np.int64), *(d for d, _ in parts)])
        scores = np.concatenate([np.empty(0), *(s[:, 0] for _, s in parts)])
        # Two readings of one question may ask about one prompt.
        documents, first = np.unique(documents, axis=0, return_index=True)
        if not predicate.labels:
            return documents, ("answer", pa.array(scores[first] > 0.0))
        labels = np.array([label.text for label in predicate.labels], dtype=object)
        chosen = labels[scores[first].astype(np.int64)]
        return documents, ("label", pa.array(chosen.tolist(), pa.string()))

    def _ids(self, texts: pa.ChunkedArray) -> Int64:
        store = self._documents if self._documents is not None else DocumentStore()
        return store.add(texts)


class NotedModel:
    """A model source and, once opened, an engine whose answers are noted.

    Args:
        source: the model.

    Attributes:
        notes: of the session that was opened last.
    """

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._engine: Engine | None = None
        self.notes = Notes()

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def kinds(self) -> frozenset[QuestionKind]:
        return self._source.kinds

    @property
    def engine(self) -> Engine:
        """The model, loaded when it is first wanted."""
        if self._engine is None:
            self._engine = self._source.open()
        return self._engine

    @property
    def fingerprint(self) -> str | None:
        return self.engine.fingerprint

    def profile(self) -> ModelProfile:
        """See `ModelSource.profile`."""
        return self._source.profile()

    def open(self) -> Self:
        """Load the model, once for all connections."""
        _ = self.engine
        return self

    def shrink(self) -> str | None:
        """See `Engine.shrink`."""
        return self.engine.shrink()

    def session(self, documents: DocumentStore) -> NotedSession:
        """See `Engine.session`."""
        self.notes.begin(documents)
        return NotedSession(self.engine.session(documents), self.notes)


class NotedSession(WrappedSession):
    """Notes every answer."""

    def __init__(self, inner: EngineSession, notes: Notes) -> None:
        super().__init__(inner)
        self._notes = notes

    def seen(self, batch: PromptBatch, answers: Answers) -> Answers:
        """The answers as they are."""
        self._notes.add(batch.question, batch.documents[answers.rows], answers.scores)
        return answers
