"""The oracle: DuckDB with the planted answers as plain Python functions.

Covey's meaning of the AI functions, said a second time with nothing of Covey in it. A
call becomes an ordinary function over (template, documents), DuckDB does all the rest:

    AI.IF     -> planted_score(template, [documents]) > threshold (0.5 unless given)
    AI.SCORE  -> planted_score(template, [documents])
    CLASSIFY  -> planted_label(template, [labels], [documents])

A NULL among the documents, or a prompt that fails, gives NULL.

The answers are a pure function of the text that a reader of the prompt would see, so
that two spellings of one prompt agree and two orders of its documents do not. Scores
are odd multiples of 1/128: no threshold that is a multiple of 1/64 ever ties.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling

PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\d+)\}")

Answer = Callable[[str, tuple[str, ...]], float | None]
LabelAnswer = Callable[[str, tuple[str, ...], tuple[str, ...]], int | None]


def rendered(template: str, documents: Sequence[str]) -> str:
    """The prompt's words: each document in brackets at its place, braces unescaped."""

    def fill(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return f"⟨{documents[int(match[1])]}⟩"

    return PLACEHOLDER.sub(fill, template)


def _unescaped(template: str) -> str:
    """The template with single braces: what reads alike is one question, however it is written."""
    return PLACEHOLDER.sub(lambda match: match[0] if match[1] else match[0][0], template)


def _hash(*parts: str) -> int:
    digest = hashlib.blake2b("\x1f".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def planted_answer(template: str, documents: tuple[str, ...]) -> float | None:
    """P(TRUE): an odd multiple of 1/128; None, a failed prompt, for one in sixteen."""
    value = _hash("judge", rendered(template, documents))
    if value >> 32 & 15 == 0:
        return None
    return value % 64 / 64 + 1 / 128


def planted_label(template: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> int | None:
    """The index of the label; None, a failed prompt, for one in sixteen.

    The documents stand apart from the task text: a classification may have no text.
    """
    value = _hash("classify", _unescaped(template), *labels, "", *documents)
    return None if value >> 32 & 15 == 0 else value % len(labels)


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt, known by its words: equal ones are the same prompt."""

    words: tuple[str, ...]


def judgement(template: str, documents: tuple[str, ...]) -> Asked:
    """The prompt of an AI.IF or AI.SCORE."""
    return Asked((rendered(template, documents),))


def classification(template: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> Asked:
    """The prompt of an AI.CLASSIFY."""
    return Asked((_unescaped(template), *labels, "", *documents))


@dataclass(slots=True)
class Recorder:
    """The planted answers for a `PlantedModel`, keeping a list of what was asked.

    Attributes:
        asked: every prompt by its words.
        exact: every prompt as the model was given it: (template, labels, documents).
    """

    answers: Answer = planted_answer
    labels: LabelAnswer = planted_label
    asked: list[Asked] = field(default_factory=list)
    exact: list[tuple[object, ...]] = field(default_factory=list)

    def clear(self) -> None:
        """Forget what was asked."""
        self.asked.clear()
        self.exact.clear()

    def answer(self, template: str, documents: tuple[str, ...]) -> float | None:
        self.asked.append(judgement(template, documents))
        self.exact.append((template, (), documents))
        return self.answers(template, documents)

    def label(
        self, template: str, labels: tuple[str, ...], documents: tuple[str, ...]
    ) -> int | None:
        self.asked.append(classification(template, labels, documents))
        self.exact.append((template, labels, documents))
        return self.labels(template, labels, documents)


class Oracle:
    """A DuckDB connection of its own that knows the planted answers as functions."""

    def __init__(self, answer: Answer = planted_answer, label: LabelAnswer = planted_label) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1; SET python_enable_replacements = false")

        def score(template: str, documents: list[str | None]) -> float | None:
            texts = [text for text in documents if text is not None]
            return answer(template, tuple(texts)) if len(texts) == len(documents) else None

        def chosen(template: str, labels: list[str], documents: list[str | None]) -> str | None:
            texts = [text for text in documents if text is not None]
            if len(texts) < len(documents):
                return None
            index = label(template, tuple(labels), tuple(texts))
            return None if index is None else labels[index]

        self._connection.create_function(
            "planted_score",
            score,
            ["VARCHAR", "VARCHAR[]"],
            "DOUBLE",
            null_handling=FunctionNullHandling.SPECIAL,
        )
        self._connection.create_function(
            "planted_label",
            chosen,
            ["VARCHAR", "VARCHAR[]", "VARCHAR[]"],
            "VARCHAR",
            null_handling=FunctionNullHandling.SPECIAL,
        )

    def register(self, name: str, table: pa.Table) -> None:
        """Make a table known; a name that is taken is replaced."""
        self._connection.register(name, table)

    def execute(self, sql: str) -> None:
        """Run a statement for its effect."""
        self._connection.execute(sql)

    def run(self, sql: str, then: str | None) -> pa.Table:
        """The rows of a statement, or of the query behind one that changes something."""
        if then is None:
            return self.arrow(sql)
        self.execute(sql)
        return self.arrow(then)

    def arrow(self, sql: str) -> pa.Table:
        """The rows of a query.

        Raises:
            duckdb.Error: DuckDB refuses the query or cannot finish it.
        """
        return self._connection.sql(sql).to_arrow_table()
