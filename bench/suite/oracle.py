"""The planted truth as answers to prompts: for a planted model, a real one, and DuckDB."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.errors import InputError
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Question
from covey.testing import PlantedModel
from suite.predicates import BY_TEMPLATE, PREDICATES, Predicate
from suite.shapes import Int64
from suite.sql import function_name
from suite.tables import Corpus
from suite.truth import Truth

Floats = npt.NDArray[np.float64]
_SURE = 0.95  # P of a TRUE pair; of pairs only the side of one half is planted


class Oracle:
    """Answers by the planted truth.

    Args:
        corpus: the tables; a document is known by its text.
        truth: the answers.
    """

    def __init__(self, corpus: Corpus, truth: Truth) -> None:
        self.corpus = corpus
        self.truth = truth
        self._rows: dict[tuple[str, str], dict[str, int]] = {}

    def predicate(self, template: str) -> Predicate:
        """The predicate of a question; InputError for one that the suite does not ask."""
        found = BY_TEMPLATE.get(template)
        if found is None:
            raise InputError(f"The suite plants no answer for the question {template!r}.")
        return found

    def rows(self, column: tuple[str, str], texts: Sequence[str]) -> Int64:
        """(n,) rows of the documents with these texts.

        Raises:
            InputError: a text is none of the column's.
        """
        known = self._rows.get(column)
        if known is None:
            table, name = column
            listed = self.corpus.tables[table][name].to_pylist()
            known = self._rows[column] = {text: i for i, text in enumerate(listed)}
        try:
            return np.fromiter((known[text] for text in texts), dtype=np.int64, count=len(texts))
        except KeyError as error:
            start = str(error.args[0])[:60]
            raise InputError(
                f"{column[0]}.{column[1]} has no text that begins {start!r}: the tables are not"
                " those that the answers were planted for."
            ) from None

    def probabilities(self, predicate: Predicate, rows: Sequence[Int64]) -> Floats:
        """(n,) P(TRUE) of prompts, given the rows of their documents."""
        if len(rows) == 1:
            return self.truth.scores[predicate.name][rows[0]]
        judged = self.truth.judged[predicate.name][tuple(rows)]
        return np.where(judged, _SURE, 1.0 - _SURE)

    def labels(self, predicate: Predicate, rows: Sequence[Int64]) -> Int64:
        """(n,) indices of labels."""
        return self.truth.labelled[predicate.name][tuple(rows)]

    def scores(self, question: Question, rows: Sequence[Int64]) -> Floats:
        """(n, question.width) planted scores of prompts, as an engine gives them."""
        predicate = self.predicate(question.template)
        if not predicate.labels:
            p = self.probabilities(predicate, rows)
            return (np.log(p) - np.log1p(-p))[:, None]
        chosen = self.labels(predicate, rows)
        if not question.full:
            return np.stack([chosen.astype(np.float64), np.zeros(len(chosen))], axis=1)
        found = np.full((len(chosen), len(predicate.labels)), -np.inf)
        found[np.arange(len(found)), chosen] = 0.0
        return found

    def planted_model(self) -> PlantedModel:
        """A model that answers by the truth and computes nothing."""

        def answer(question: str, documents: tuple[str, ...]) -> float:
            predicate = self.predicate(question)
            return float(self.probabilities(predicate, self._single(predicate, documents))[0])

        def label(question: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> int:
            predicate = self.predicate(question)
            return int(self.labels(predicate, self._single(predicate, documents))[0])

        return PlantedModel(answer, label)

    def _single(self, predicate: Predicate, documents: tuple[str, ...]) -> list[Int64]:
        return [
            self.rows(column, [text])
            for column, text in zip(predicate.documents, documents, strict=True)
        ]

    def add_functions(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Give DuckDB the plain functions that `sql.planted_call` names."""
        for predicate in PREDICATES.values():
            kinds = {"label": "VARCHAR"} if predicate.labels else {"judge": "BOOLEAN"}
            if not predicate.labels and len(predicate.documents) == 1:
                kinds["score"] = "DOUBLE"
            for kind, result in kinds.items():
                connection.create_function(
                    function_name(predicate, kind),
                    self._function(predicate, kind),
                    ["VARCHAR"] * len(predicate.documents),
                    result,
                    type="arrow",
                )

    def _function(self, predicate: Predicate, kind: str):  # type: ignore[no-untyped-def]
        texts = np.array([label.text for label in predicate.labels], dtype=object)

        def call(*columns: pa.ChunkedArray) -> pa.Array:
            rows = [
                self.rows(source, column.to_pylist())
                for source, column in zip(predicate.documents, columns, strict=True)
            ]
            if kind == "label":
                return pa.array(texts[self.labels(predicate, rows)].tolist(), pa.string())
            p = self.probabilities(predicate, rows)
            return pa.array(p > 0.5 if kind == "judge" else p)

        # DuckDB counts the parameters of what it is given, so each arity has its own.
        if len(predicate.documents) == 1:
            return lambda one: call(one)
        return lambda one, two: call(one, two)


class DocumentRows:
    """The rows of documents that an engine's session names by id; each text is looked up once.

    Args:
        oracle: knows the texts.
        documents: where the ids are from.
    """

    def __init__(self, oracle: Oracle, documents: DocumentStore) -> None:
        self._oracle = oracle
        self._documents = documents
        self._known: dict[tuple[str, str], Int64] = {}

    def of(self, template: str, ids: Int64) -> list[Int64]:
        """The rows of prompts' documents, one (n,) array a document.

        Args:
            template: their question.
            ids: (n, documents) int64.

        Raises:
            InputError: the suite does not ask the question, or has no such document.
        """
        columns = self._oracle.predicate(template).documents
        return [self._column(column, ids[:, place]) for place, column in enumerate(columns)]

    def _column(self, column: tuple[str, str], ids: Int64) -> Int64:
        known = self._known.get(column, np.empty(0, dtype=np.int64))
        if len(known) < len(self._documents):
            more = np.full(len(self._documents) - len(known), -1)
            known = self._known[column] = np.concatenate([known, more])
        found = known[ids]
        if len(found) and found.min() < 0:
            new = np.unique(ids[found < 0])
            known[new] = self._oracle.rows(column, self._documents.texts(new))
            found = known[ids]
        return found
