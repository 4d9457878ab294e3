"""Threads that ask at once get what one thread gets: with a tokenising thread, sliced batches,
and an answer store whose writer runs beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import covey
import covey.engine.session
from covey.engine.base import Engine, PromptBatch
from covey.engine.limits import Limits
from covey.engine.loaded import LoadedEngine
from covey.engine.questions import TokenMeasure
from covey.engine.session import LocalSession
from covey.estimate.profile import ModelProfile
from covey.prompts.documents import DocumentStore
from covey.prompts.question import QuestionKind
from covey.testing import PlantedModel
from crowd import THREADS, at_once
from effort import scaled
from engine.plans import SPEC, judge
from engine.symbolic import LAYOUT, CharEncoder, SymbolicRunner

LIMITS = Limits(context=200, max_batched_tokens=200, slots=400)
# Of eight threads each, which makes a hundred runs of sessions and connections.
ROUNDS = scaled(8)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covey.engine.session, "SLICE_TOKENS", 10)


class SymbolicModel:
    """A real engine and tokenising thread on a runner that checks what every row sees."""

    name = "symbolic"
    kinds = frozenset({QuestionKind.JUDGE})

    def profile(self) -> ModelProfile:
        return ModelProfile(TokenMeasure(LAYOUT, CharEncoder(), None), fingerprint="symbolic")

    def open(self) -> Engine:
        return LoadedEngine(
            self.name, "symbolic", SymbolicRunner, SPEC, CharEncoder(), LAYOUT, LIMITS
        )


def texts(name: object, count: int) -> list[str]:
    return [f"{chr(97 + i * 7 % 26)}{name} {'ab' * (i % 3)}" for i in range(count)]


def asked(documents: DocumentStore, names: list[object]) -> dict[str, float]:
    """The margins of documents, handed over bit by bit while the first are under way."""
    session = LocalSession(
        documents, SymbolicRunner(LIMITS.slots), SPEC, CharEncoder(), LAYOUT, LIMITS, lambda: None
    )
    found: dict[str, float] = {}
    batches: dict[int, Any] = {}
    with session:

        def submit(name: object) -> None:
            ids = np.unique(documents.add([*texts(name, 9), f"{name} \ud800"]))
            batches[session.submit(PromptBatch(judge("ab? {0}", 1), ids[:, None]))] = ids

        for name in names[:2]:
            submit(name)
        left = names[2:]
        for answers in session.run():
            if left:
                submit(left.pop(0))
            some = documents.texts(batches[answers.ticket][answers.rows])
            found |= zip(some, answers.scores[:, 0].tolist(), strict=True)
    return found


def test_sessions_whose_documents_other_threads_add_to() -> None:
    """One store of documents for all, each with a tokenising thread of its own."""
    names: list[object] = ["x", "y", 1, 2, "z"]
    expected = asked(DocumentStore(), names)
    assert len(expected) == 50 and sum(np.isnan(list(expected.values()))) == 5
    for _ in range(2 * ROUNDS):
        documents = DocumentStore()
        for found in at_once(lambda number, documents=documents: asked(documents, names)):
            np.testing.assert_equal(found, expected)


QUERY = """
    SELECT id, AI.MARGIN(PROMPT('a {0}', s)) AS one, AI.MARGIN(PROMPT('{0} {1}', s, u)) AS two
    FROM t WHERE id % ? < 3 AND AI.IF(PROMPT('{0}', s)) ORDER BY id
"""


def connected(cache: bool | Path) -> covey.Connection:
    con = covey.connect(SymbolicModel(), cache=cache, progress=False)
    rows = texts("", 8)
    con.register("t", pa.table({"id": range(8), "s": rows, "u": rows[::-1]}))
    return con


def rows_of(con: covey.Connection, number: int) -> list[tuple[Any, ...]]:
    query = con.sql(QUERY, [3 + number % 3])
    return query.fetchall() if number % 2 else query.run().arrow().to_pylist()


@pytest.fixture(scope="module")
def expected() -> list[list[tuple[Any, ...]]]:
    with connected(cache=False) as con:
        found = [rows_of(con, number) for number in range(THREADS)]
    assert [len(rows) for rows in found[:3]] == [8, 6, 6]
    return found


def test_threads_that_share_a_connection(expected: list[list[tuple[Any, ...]]]) -> None:
    with connected(cache=False) as con:
        for _ in range(ROUNDS):
            assert at_once(lambda number: rows_of(con, number)) == expected


def test_connections_that_share_a_store(
    expected: list[list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    def work(number: int) -> list[tuple[Any, ...]]:
        with connected(tmp_path) as con:
            return rows_of(con, number)

    assert at_once(work) == expected
    assert at_once(work) == expected
    with covey.connect(SymbolicModel(), cache=tmp_path, progress=False) as con:
        con.register("t", pa.table({"s": texts("", 8)}))
        report = con.run("SELECT AI.IF(PROMPT('{0}', s)) FROM t").report
    assert report.counters.prompts == 0 and not report.notes


def test_threads_that_share_a_planted_model() -> None:
    model = PlantedModel(lambda question, documents: int(documents[0]) % 7 / 7)

    def work(number: int) -> list[tuple[Any, ...]]:
        with covey.connect(model, cache=False, progress=False) as con:
            con.register("t", pa.table({"s": [str(number * 10 + i) for i in range(10)]}))
            return con.run("SELECT s FROM t WHERE AI.SCORE(PROMPT('{0}', s)) > 0.5").fetchall()

    found = at_once(work)
    assert found == [
        [(str(s),) for s in range(number * 10, number * 10 + 10) if s % 7 > 3]
        for number in range(THREADS)
    ]
    assert len(model.calls) == 10 * THREADS
