"""The answers of one query, by question and documents."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from covey.arrays import Bool, Float64, Int64
from covey.execution.windows import Windows, together
from covey.logical.calls import AICall, LongDocuments
from covey.prompts.column import Column
from covey.prompts.question import Question

_NO_ERRORS: Mapping[int, str] = MappingProxyType({})


class AnswerTable:
    """Answers to one question, by the documents it was asked about.

    Failed prompts are kept too, as NaN and a reason: they were asked and are not asked
    again.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self._tuples: dict[tuple[int, ...], int] = {}
        self._places = _DensePlaces() if question.arity < 2 else _SortedPlaces()
        self._scores = Column(np.float64)
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._scores) // self.question.width

    def keys(self, documents: Int64) -> Int64:
        """One int64 for each of (n, arity) tuples of documents, whose ids are below 2**31."""
        arity = documents.shape[1]
        if arity == 0:
            return np.zeros(len(documents), np.int64)
        if arity == 1:
            return documents[:, 0]
        if arity == 2:
            return (documents[:, 0] << 32) | documents[:, 1]
        known = self._tuples
        keys = (known.setdefault(tuple(row), len(known)) for row in documents.tolist())
        return np.fromiter(keys, np.int64, len(documents))

    def add(
        self, documents: Int64, scores: Float64, errors: Mapping[int, str] = _NO_ERRORS
    ) -> None:
        """Keep answers.

        Args:
            documents: (n, arity) ids.
            scores: (n, question.width), NaN where a prompt failed.
            errors: row of `documents` -> why it failed.
        """
        keys = self.keys(documents)
        self._places.add(keys, len(self))
        self._scores.append(scores.ravel())
        for row, reason in errors.items():
            self._reasons[int(keys[row])] = reason

    def reasons(self, documents: Int64) -> list[str | None]:
        """Why each of some tuples has failed; None where it has not."""
        if not self._reasons:
            return [None] * len(documents)
        return [self._reasons.get(key) for key in self.keys(documents).tolist()]

    def any_since(self, count: int, documents: Int64) -> bool:
        """Whether one of some answered tuples was not among the first `count` answers.

        What was cut into windows has its answers elsewhere, and counts as new.
        """
        places = self._places.find(self.keys(documents))
        return bool(((places >= count) | (places < 0)).any())

    def find(self, documents: Int64) -> tuple[Bool, Float64]:
        """Which tuples have an answer, and the answers.

        Returns:
            (n,) bool; (n, question.width) float64, NaN where there is none.
        """
        places = self._places.find(self.keys(documents))
        found = places >= 0
        scores = np.full((len(documents), self.question.width), np.nan)
        scores[found] = self._scores.flat.reshape(-1, self.question.width)[places[found]]
        return found, scores


class _DensePlaces:
    """Where the answers about single documents lie, -1 where there is none.

    Their keys count from 0: four bytes for each up to the highest.
    """

    def __init__(self) -> None:
        self._places = Column(np.int32)

    def add(self, keys: Int64, first: int) -> None:
        lacking = int(keys.max(initial=-1)) + 1 - len(self._places)
        if lacking > 0:
            self._places.append(np.full(lacking, -1, np.int32))
        self._places.flat[keys] = np.arange(first, first + len(keys))

    def find(self, keys: Int64) -> Int64:
        known = self._places.flat
        places = np.full(len(keys), -1, np.int64)
        # NULL has the key -1.
        inside = (keys >= 0) & (keys < len(known))
        places[inside] = known[keys[inside]]
        return places


class _SortedPlaces:
    """Where the answers about tuples lie, by sorted keys; -1 where there is none."""

    def __init__(self) -> None:
        self._keys: Int64 = np.empty(0, np.int64)
        self._places: Int64 = np.empty(0, np.int64)
        self._new: list[tuple[Int64, Int64]] = []

    def add(self, keys: Int64, first: int) -> None:
        self._new.append((keys, np.arange(first, first + len(keys))))

    def find(self, keys: Int64) -> Int64:
        self._merge()
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        at = np.searchsorted(self._keys, keys)
        at[at == len(self._keys)] = 0
        return np.where(self._keys[at] == keys, self._places[at], -1)

    def _merge(self) -> None:
        """Sort what was added since the last `find` into the rest."""
        if not self._new:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._new)])
        places = np.concatenate([self._places, *(places for _, places in self._new)])
        order = np.argsort(keys, kind="stable")
        self._keys, self._places = keys[order], places[order]
        self._new.clear()


class QueryAnswers:
    """All answers of one query: one table a question."""

    def __init__(self) -> None:
        self._tables: dict[Question, AnswerTable] = {}
        self._windows: dict[tuple[Question, LongDocuments], Windows] = {}

    def clear(self) -> None:
        """Forget all answers."""
        self._tables.clear()
        self._windows.clear()

    def windows(self, call: AICall) -> Windows:
        """The prompts of a call's question that were cut as the call wants it."""
        return self._windows.setdefault((call.question, call.options.long_documents), Windows())

    def find(self, call: AICall, documents: Int64) -> tuple[Bool, Float64]:
        """As `AnswerTable.find`; of a prompt that was cut, the answers of its windows together."""
        table = self.of(call.question)
        found, scores = table.find(documents)
        windows = self.windows(call).of
        if windows:
            cut = np.array(list(windows), np.int64).reshape(len(windows), -1)
            for row in np.flatnonzero(np.isin(table.keys(documents), table.keys(cut))).tolist():
                known, values = table.find(windows[tuple(documents[row].tolist())])
                found[row] = known.all()
                scores[row] = together(call, values)
        return found, scores

    def of(self, question: Question) -> AnswerTable:
        """The answers to one question."""
        if question not in self._tables:
            self._tables[question] = AnswerTable(question)
        return self._tables[question]
