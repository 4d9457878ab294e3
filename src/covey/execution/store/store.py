"""The answer store: answers of all queries, by model, question and documents."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Generator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from covey.arrays import Bool, Float64, UInt64
from covey.errors import InputError
from covey.execution.store.database import (
    SCHEMA,
    AnswerDatabase,
    DamagedError,
    StoreError,
    run,
)
from covey.execution.store.location import CacheOptions

Result = TypeVar("Result")

# A file that has grown too large shrinks to this share of its limit, not to the limit:
# it is written anew for it.
_SHRINK_TO = 0.75


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question as the store names it and as people recognise it.

    Attributes:
        digest: its name; see `keys.question_digest`.
        model, fingerprint: who answers.
        kind, template, labels: what is asked.
    """

    digest: str
    model: str
    fingerprint: str
    kind: str
    template: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewAnswers:
    """Answers on their way into the store: (n, 2) keys and (n, width) scores, no NaN."""

    question: StoredQuestion
    keys: UInt64
    scores: Float64


class AnswerStore:
    """Finds and keeps answers. Each call is one short transaction.

    Args:
        options: where, and how much.
    """

    def __init__(self, options: CacheOptions) -> None:
        self._options = options
        self._database = AnswerDatabase(options.folder)

    @property
    def path(self) -> Path:
        return self._database.path

    @property
    def options(self) -> CacheOptions:
        return self._options

    def take_notes(self) -> list[str]:
        """What was mended since the last call."""
        notes, self._database.notes = self._database.notes, []
        return notes

    def salt(self) -> UInt64:
        """The store's own secret; see `keys.prompt_keys`."""
        if self._database.salt is None:
            self._read(lambda connection: None)
        if self._database.salt is None:
            with self._database.writing():
                pass
        return np.array(self._database.salt, np.uint64)

    def count(self, digest: str) -> int:
        """Answers to a question."""
        query = (
            "SELECT count(*) FROM answers WHERE question IN "
            "(SELECT id FROM questions WHERE digest = ?)"
        )
        return self._read(lambda connection: _number(connection, query, [digest])) or 0

    def find(self, digest: str, keys: UInt64, width: int) -> tuple[Bool, Float64]:
        """The stored answers to a question about some prompts, by one join.

        Args:
            digest: the question.
            keys: (n, 2) uint64, distinct.
            width: numbers in one answer.

        Returns:
            (n,) bool, and (n, width) float64, NaN where there is none.
        """
        wanted = pa.table(
            {"place": np.arange(len(keys)), "first": keys[:, 0], "second": keys[:, 1]}
        )

        def work(connection: duckdb.DuckDBPyConnection) -> pa.Table:
            connection.register("wanted", wanted)
            join = "answers JOIN wanted USING (first, second)"
            return self._answers(connection, digest, f"place, {_columns(width)}", join)

        rows = self._read(work)
        found, scores = np.zeros(len(keys), np.bool_), np.full((len(keys), width), np.nan)
        if rows is not None and rows.num_rows:
            places = rows["place"].to_numpy()
            found[places] = True
            scores[places] = _scores(rows, width)
        return found, scores

    def all(self, digest: str, width: int) -> tuple[UInt64, Float64]:
        """All answers to a question.

        Returns:
            (n, 2) uint64 keys, and (n, width) float64.
        """
        columns = f"first, second, {_columns(width)}"
        rows = self._read(lambda connection: self._answers(connection, digest, columns))
        if rows is None:
            return np.empty((0, 2), np.uint64), np.empty((0, width))
        keys = np.stack([rows["first"].to_numpy(), rows["second"].to_numpy()], axis=1)
        return keys, _scores(rows, width)

    def _answers(
        self,
        connection: duckdb.DuckDBPyConnection,
        digest: str,
        columns: str,
        relation: str = "answers",
    ) -> pa.Table:
        """Columns of the answers to a question that are not too old."""
        return connection.sql(
            f"SELECT {columns} FROM {relation} "
            "WHERE question IN (SELECT id FROM questions WHERE digest = $digest) "
            "AND written >= $oldest",
            params={"digest": digest, "oldest": self._oldest()},
        ).to_arrow_table()

    def add(self, batches: Sequence[NewAnswers], salt: UInt64 | None = None) -> None:
        """Keep answers: all of them, or, where that fails, none.

        Args:
            batches: the answers.
            salt: that their keys were made with; None is the store's.

        Raises:
            StoreError: the file cannot be written, or another process has begun it anew and
                nobody would find them.
        """
        try:
            self._add(batches, salt)
        except DamagedError as error:
            self._database.put_aside(error)
            self._add(batches, salt)

    def _add(self, batches: Sequence[NewAnswers], salt: UInt64 | None) -> None:
        written = _now()
        with self._database.writing() as connection:
            if salt is not None and self._database.salt != salt.tolist():
                raise StoreError(f"the answer store {self.path} was begun anew meanwhile")
            connection.begin()
            for batch in _joined(batches):
                number = _question_id(connection, batch.question)
                values = pa.table(
                    {
                        "first": batch.keys[:, 0],
                        "second": batch.keys[:, 1],
                        "score": batch.scores[:, 0],
                        "more": _rest(batch.scores),
                    }
                )
                connection.register("fresh", values)
                run(
                    connection,
                    "INSERT INTO answers SELECT ?, first, second, score, more, ? FROM fresh",
                    [number, written],
                )
                connection.unregister("fresh")
            connection.commit()

    def shrink(self) -> int:
        """Let the oldest answers go where the file is above its limit; return how many."""
        if self._database.size <= self._options.max_bytes:
            return 0
        with self._database.writing() as connection:
            run(connection, "CHECKPOINT")
            size = max(self.path.stat().st_size, 1)
            rows = _number(connection, "SELECT count(*) FROM answers")
            keep = int(rows * _SHRINK_TO * self._options.max_bytes / size)
            oldest, left = run(
                connection,
                "SELECT min(written), max(total) FROM (SELECT written, "
                "sum(count(*)) OVER (ORDER BY written DESC) AS total "
                "FROM answers GROUP BY written) WHERE total <= ?",
                [keep],
            )[0]
            condition = "FALSE" if oldest is None else f"written >= TIMESTAMP '{oldest}'"
            self._database.replace(connection, condition)
            return rows - int(left or 0)

    def clear(self, model: str | None = None, days: float | None = None) -> int:
        """Delete answers of a model, or of some age, or both, or all; return how many.

        Without both the file goes, whatever state it is in.
        """
        if model is None and days is None:
            try:
                count = int(self.summary()["answers"])
            except StoreError:
                count = 0
            if self._database.exists():
                self._database.delete()
            return count
        conditions = ["TRUE"]
        parameters: list[Any] = []
        if model is not None:
            conditions.append("question IN (SELECT id FROM questions WHERE model = ?)")
            parameters.append(model)
        if days is not None:
            if not days >= 0:  # NaN is neither.
                raise InputError(f"An age in days is a number of at least 0, not {days!r}.")
            conditions.append(f"written <= TIMESTAMP '{_days_ago(days)}'")
        if not self._database.exists():
            return 0
        with self._database.writing() as connection:
            deleted = run(
                connection, f"DELETE FROM answers WHERE {' AND '.join(conditions)}", parameters
            )
            run(connection, "DELETE FROM questions WHERE id NOT IN (SELECT question FROM answers)")
            self._database.replace(connection, "TRUE")
            return int(deleted[0][0])

    def questions(self) -> pa.Table | None:
        """Each stored question, with how many answers and of when; None without a file."""
        query = (
            "SELECT model, kind, template, labels, count(*) AS answers, "
            "min(written) AS first_written, max(written) AS last_written, digest "
            "FROM answers JOIN questions ON question = id "
            "GROUP BY ALL ORDER BY last_written DESC, digest"
        )
        return self._read(lambda connection: connection.sql(query).to_arrow_table())

    def export(self) -> Generator[pa.RecordBatch, None, None]:
        """All answers, in one batch at least; the file is held until the iterator is closed.

        Documents are no part of the store: it has their digests.
        """
        with self._database.reading() as found, duckdb.connect() as empty:
            if found is None:
                run(empty, SCHEMA)
            connection = found or empty
            reader = connection.sql(
                "SELECT model, fingerprint, kind, template, labels, "
                "format('{:016x}{:016x}', first, second) AS documents, "
                "[score] || coalesce(more, []) AS scores, written "
                "FROM answers JOIN questions ON question = id"
            ).to_arrow_reader()
            yield pa.RecordBatch.from_pylist([], reader.schema)
            yield from reader

    def summary(self) -> dict[str, Any]:
        """Place, size, limits and numbers of questions and answers."""
        query = "SELECT count(DISTINCT question), count(*) FROM answers"
        questions, answers = self._read(lambda connection: run(connection, query)[0]) or (0, 0)
        return {
            "path": str(self.path),
            "bytes": self._database.size,
            "max_bytes": self._options.max_bytes,
            "max_days": self._options.max_days,
            "questions": questions,
            "answers": answers,
        }

    def _read(self, work: Callable[[duckdb.DuckDBPyConnection], Result]) -> Result | None:
        """Do some reading; None where there is no file, or a damaged one."""
        try:
            with self._database.reading() as connection:
                return None if connection is None else work(connection)
        except DamagedError as error:
            self._database.put_aside(error)
            return None

    def _oldest(self) -> datetime.datetime:
        """When the oldest answer was written that may be used."""
        days = self._options.max_days
        return datetime.datetime.min if days is None else _days_ago(days)


def _days_ago(days: float) -> datetime.datetime:
    try:
        return _now() - datetime.timedelta(days=days)
    except OverflowError:
        return datetime.datetime.min


def _now() -> datetime.datetime:
    """UTC, without a zone, as DuckDB's TIMESTAMP."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def _number(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Sequence[Any] = ()
) -> int:
    return int(run(connection, query, parameters)[0][0])


def _question_id(connection: duckdb.DuckDBPyConnection, question: StoredQuestion) -> int:
    known = run(connection, "SELECT id FROM questions WHERE digest = ?", [question.digest])
    if known:
        return int(known[0][0])
    number = _number(connection, "SELECT coalesce(max(id), 0) + 1 FROM questions")
    run(
        connection,
        "INSERT INTO questions VALUES (?, ?, ?, ?, ?, ?, ?)",
        [number, *astuple(question)[:-1], list(question.labels)],
    )
    return number


def _joined(batches: Sequence[NewAnswers]) -> list[NewAnswers]:
    """One batch a question: an INSERT takes as long for a thousand answers as for a hundred."""
    parts: dict[StoredQuestion, list[NewAnswers]] = {}
    for batch in batches:
        parts.setdefault(batch.question, []).append(batch)
    return [
        NewAnswers(
            question,
            np.concatenate([batch.keys for batch in own]),
            np.concatenate([batch.scores for batch in own]),
        )
        for question, own in parts.items()
    ]


def _columns(width: int) -> str:
    return "score, more" if width > 1 else "score"


def _scores(rows: pa.Table, width: int) -> Float64:
    """(n, width) from the columns of `_columns`."""
    scores = np.empty((rows.num_rows, width))
    scores[:, 0] = rows["score"].to_numpy()
    if width > 1:
        scores[:, 1:] = pc.list_flatten(rows["more"]).to_numpy().reshape(-1, width - 1)
    return scores


def _rest(scores: Float64) -> pa.Array:
    """The scores after the first, a list a row; NULL where there is one score only."""
    rows, width = scores.shape
    if width == 1:
        return pa.nulls(rows, pa.list_(pa.float64()))
    flat = pa.array(np.ascontiguousarray(scores[:, 1:]).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, width - 1).cast(pa.list_(pa.float64()))
