"""The answers of one query, by question and documents."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from covey.execution.windows import Windows
from covey.logical.calls import AICall, LongDocuments
from covey.prompts.question import Question

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_NO_ERRORS: Mapping[int, str] = MappingProxyType({})


class AnswerTable:
    """Answers to one question, by the documents it was asked about.

    Failed prompts are kept too, as NaN and a reason: they were asked and are not asked
    again.

    Args:
        question: what was asked.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self._tuples: dict[tuple[int, ...], int] = {}
        self._keys: Ints = np.empty(0, np.int64)
        self._scores: Floats = np.empty((0, question.width), np.float64)
        self._new: list[tuple[Ints, Floats]] = []
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._keys) + sum(len(keys) for keys, _ in self._new)

    def keys(self, documents: Ints) -> Ints:
        """One int64 for each tuple of documents.

        Args:
            documents: (n, arity) document ids, each below 2**31.
        """
        arity = documents.shape[1]
        if arity == 0:
            return np.zeros(len(documents), np.int64)
        if arity == 1:
            return documents[:, 0]
        if arity == 2:
            return (documents[:, 0] << 32) | documents[:, 1]
        known = self._tuples
        return np.fromiter(
            (known.setdefault(tuple(row), len(known)) for row in documents.tolist()),
            np.int64,
            len(documents),
        )

    def add(self, documents: Ints, scores: Floats, errors: Mapping[int, str] = _NO_ERRORS) -> None:
        """Keep answers.

        Args:
            documents: (n, arity) ids.
            scores: (n, question.width), NaN where a prompt failed.
            errors: row of `documents` -> why it failed.
        """
        keys = self.keys(documents)
        self._new.append((keys, scores))
        for row, reason in errors.items():
            self._reasons[int(keys[row])] = reason

    def reasons(self, documents: Ints) -> list[str | None]:
        """Why each of some tuples has failed; None where it has not."""
        if not self._reasons:
            return [None] * len(documents)
        return [self._reasons.get(key) for key in self.keys(documents).tolist()]

    def find(self, documents: Ints) -> tuple[npt.NDArray[np.bool_], Floats]:
        """Which tuples have an answer, and the answers.

        Returns:
            (n,) bool; (n, question.width) float64, NaN where there is none.
        """
        self._merge()
        scores = np.full((len(documents), self.question.width), np.nan)
        if not len(self._keys):
            return np.zeros(len(documents), np.bool_), scores
        keys = self.keys(documents)
        at = np.searchsorted(self._keys, keys)
        at[at == len(self._keys)] = 0
        found = self._keys[at] == keys
        scores[found] = self._scores[at[found]]
        return found, scores

    def _merge(self) -> None:
        """Sort what was added since the last look-up into the rest."""
        if not self._new:
            return
        keys = np.concatenate([self._keys, *(k for k, _ in self._new)])
        scores = np.concatenate([self._scores, *(s for _, s in self._new)])
        order = np.argsort(keys, kind="stable")
        self._keys, self._scores = keys[order], scores[order]
        self._new.clear()


class Answers:
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

    def of(self, question: Question) -> AnswerTable:
        table = self._tables.get(question)
        if table is None:
            table = self._tables[question] = AnswerTable(question)
        return table
