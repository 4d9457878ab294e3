"""Batches of rows: however they are cut, the rows and the prompts are the same."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel, planted

QUERIES = [
    "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s)) AND AI.IF(PROMPT('B {0}', s))",
    "SELECT t.id, p.id FROM t JOIN p ON AI_JOIN(PROMPT('J {0} {1}', t.s, p.s)) "
    "WHERE AI.IF(PROMPT('A {0}', t.s)) AND AI.IF(PROMPT('C {0}', p.s))",
    "SELECT t.id FROM t WHERE AI.IF(PROMPT('A {0}', s)) AND "
    "EXISTS (SELECT 1 FROM p WHERE p.k = t.k AND AI.IF(PROMPT('J {0} {1}', t.s, p.s)))",
    "SELECT id, AI.SCORE(PROMPT('S {0}', s)) FROM t WHERE AI.IF(PROMPT('A {0}', s))",
    "SELECT t.id FROM p JOIN t ON AI_JOIN(PROMPT('J {0} {1}', t.s, p.s), {'anchor': 't'})",
]


def answer(question: str, documents: tuple[str, ...]) -> float:
    return random.Random(repr((question, documents))).choice([0.1, 0.9])


def run(query: str) -> tuple[list[tuple], list[tuple]]:
    chance = random.Random(7)
    words = [None, "", *(f"word {i}" * chance.randint(1, 9) for i in range(30))]
    model = PlantedModel(answer)
    with covey.connect(model=model) as con:
        for name, rows in (("t", 60), ("p", 9)):
            texts = [chance.choice(words) for _ in range(rows)]
            keys = [chance.randint(0, 3) for _ in range(rows)]
            con.register(name, pa.table({"id": list(range(rows)), "k": keys, "s": texts}))
        rows = sorted(con.run(query).fetchall(), key=repr)
    return rows, sorted(model.calls)


@pytest.mark.parametrize("query", QUERIES)
def test_rows_and_prompts_do_not_depend_on_how_batches_are_cut(query, monkeypatch):
    expected = run(query)
    assert expected[0], "a query without rows would show nothing"
    assert len(set(expected[1])) == len(expected[1]), "no prompt is asked twice"
    for capacity, first in ((1, 1), (40, 3), (300, 256)):
        monkeypatch.setattr(planted, "CAPACITY", capacity)
        monkeypatch.setattr("covey.execution.batch_size.FIRST_BATCH", first)
        assert run(query) == expected


def joined(monkeypatch, capacity: int) -> list[tuple[set[int], float | None]]:
    """What the engine is told of anchors of `p`: asked about with expected reads, or released."""
    events: list[tuple[set[int], float | None]] = []

    class Session(planted.PlantedSession):
        def submit(self, batch):
            if batch.question.arity == 2:
                anchors = batch.documents[:, batch.question.anchor]
                events.append((set(anchors.tolist()), batch.reads))
            return super().submit(batch)

        def release(self, documents):
            events.append((set(documents.tolist()), None))
            super().release(documents)

    monkeypatch.setattr(planted, "PlantedSession", Session)
    monkeypatch.setattr(planted, "CAPACITY", capacity)
    with covey.connect(model=PlantedModel(answer)) as con:
        for name, count in (("t", 80), ("p", 4)):
            texts = [f"{name} {i} " + "word " * (i % 5) for i in range(count)]
            con.register(name, pa.table({"id": list(range(count)), "s": texts}))
        con.run(
            "SELECT t.id, p.id FROM t JOIN p ON AI_JOIN(PROMPT('J {0} {1}', t.s, p.s),"
            " {'anchor': 'p'}) WHERE AI.IF(PROMPT('A {0}', t.s))"
        ).fetchall()
    return events


def test_anchors_of_another_table_stay_until_the_last_batch(monkeypatch):
    events = joined(monkeypatch, 100)
    joins = [(anchors, reads) for anchors, reads in events if reads is not None]
    anchors = joins[0][0]
    assert len(joins) > 1 and len(anchors) == 4, "the rows of t come in several batches"
    assert all(each == anchors for each, _ in joins)
    assert [reads for _, reads in joins] == [1.0] * (len(joins) - 1) + [0.0]
    released = [i for i, (each, reads) in enumerate(events) if reads is None and each & anchors]
    assert released == [len(events) - 1] and events[-1][0] == anchors


def test_anchors_of_another_table_that_do_not_fit_together_stay_for_no_batch(monkeypatch):
    joins = [(anchors, reads) for anchors, reads in joined(monkeypatch, 10) if reads is not None]
    assert len(joins) > 1 and all(len(anchors) == 4 for anchors, _ in joins)
    assert {reads for _, reads in joins} == {0.0}
