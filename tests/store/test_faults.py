"""What goes wrong around the store never changes an answer."""

from __future__ import annotations

import random
import resource
from pathlib import Path

import pyarrow as pa
import pytest

import covey
from covey.execution.store import database, stored_answers
from covey.execution.store.database import AnswerDatabase, StoreError
from covey.execution.store.location import CacheOptions
from covey.execution.store.store import AnswerStore
from covey.testing import PlantedModel, planted
from effort import KILLS, SEED
from store.victim import FAULT_ROWS, answer, finish, start

QUERIES = [
    "SELECT id FROM t WHERE AI.IF(PROMPT('A {0}', s)) AND AI.IF(PROMPT('B {0}', s)) ORDER BY id",
    "SELECT t.id, p.id FROM t JOIN p ON AI_JOIN(PROMPT('J {0} {1}', t.s, p.s)) "
    "WHERE AI.IF(PROMPT('A {0}', t.s)) AND AI.IF(PROMPT('C {0}', p.s)) ORDER BY ALL",
    "SELECT t.id FROM t WHERE AI.IF(PROMPT('A {0}', s)) AND "
    "EXISTS (SELECT 1 FROM p WHERE AI.IF(PROMPT('J {0} {1}', t.s, p.s))) ORDER BY ALL",
    "SELECT AI.CLASSIFY(s, ['x', 'y', 'z']) AS c, count(*) FROM t GROUP BY c ORDER BY c",
]


class Broken(PlantedModel):
    """Raises at one prompt, once."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__(self.answer, self.label, fingerprint="fault")
        self.at = at
        self.answered = 0

    def answer(self, question, documents):
        self.count()
        return answer(question, documents)

    def label(self, question, labels, documents):
        self.count()
        return len(documents[0]) % len(labels)

    def count(self):
        if self.answered == self.at:
            self.at = None
            raise ZeroDivisionError("a kernel that fails")
        self.answered += 1


def run(query: str, model: PlantedModel, **options: object):
    with covey.connect(model, **options) as con:
        con.register("t", pa.table({"id": range(FAULT_ROWS), "s": texts(FAULT_ROWS)}))
        con.register("p", pa.table({"id": range(6), "s": [f"policy {i}" for i in range(6)]}))
        done = con.run(query)
    return done.fetchall(), done.report


def texts(count: int) -> list[str | None]:
    return [None if i % 11 == 5 else f"ticket {i % 40}" for i in range(count)]


@pytest.mark.parametrize("query", QUERIES)
def test_whatever_raises_the_next_run_ends_as_an_undisturbed_one(query, monkeypatch):
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 7)
    monkeypatch.setattr("covey.execution.batch_size.FIRST_BATCH", 9)
    expected, report = run(query, Broken(), cache=False)
    assert expected
    chance = random.Random(SEED)
    for _ in range(3):
        broken = Broken(at=chance.randrange(sum(o.prompts for o in report.operators)))
        with pytest.raises(ZeroDivisionError):
            run(query, broken)
        rows, resumed = run(query, Broken())
        assert rows == expected
        # All but those of the batch that raised, and those that failed.
        kept = len(broken.calls) - planted.PROMPTS_A_BATCH - sum(o.failed for o in report.operators)
        assert sum(o.stored for o in resumed.operators) >= kept
        assert [o.true for o in resumed.operators] == [o.true for o in report.operators]
        AnswerStore(CacheOptions()).clear()


@pytest.mark.fuzz
@pytest.mark.parametrize("round", range(KILLS + 1))
def test_a_damaged_file_is_put_aside_and_the_query_runs(round, cache_folder):
    chance = random.Random(SEED * 1000 + round)
    expected, _ = run(QUERIES[0], Broken())
    path = AnswerDatabase(cache_folder).path
    content = bytearray(path.read_bytes())
    damage = chance.choice(["garbage", "cut", "bytes", "empty", "log"])
    if damage == "garbage":
        content = bytearray(chance.randbytes(5000))
    elif damage == "cut":
        del content[chance.randrange(len(content)) :]
    elif damage == "bytes":
        for _ in range(200):
            content[chance.randrange(len(content))] ^= 0xFF
    elif damage == "empty":
        content.clear()
    else:
        path.with_name(f"{path.name}.wal").write_bytes(chance.randbytes(5000))
    path.write_bytes(content)
    for _ in range(2):
        rows, report = run(QUERIES[0], Broken())
        assert rows == expected, damage
        if path.with_name("damaged.duckdb").exists():
            break
    _, report = run(QUERIES[0], again := Broken())
    assert not report.notes
    assert len(again.calls) < 6, "the store works again: only failed prompts are asked"


def test_a_full_disk_stops_no_query(tmp_path):
    undisturbed = finish(start(tmp_path / "a"))[1]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        process = start(tmp_path / "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    output = process.communicate()[0]
    assert process.returncode == 0
    assert "ew answers were not kept" in output
    assert finish(start(tmp_path / "b"))[1] == undisturbed


def test_a_read_only_store_is_read_and_not_written(cache_folder, monkeypatch):
    expected, _ = run(QUERIES[0], Broken())
    monkeypatch.setattr(database.os, "access", lambda path, mode: False)
    rows, report = run(QUERIES[0], Broken())
    assert rows == expected
    assert sum(operator.stored for operator in report.operators)
    other = QUERIES[0].replace("A ", "D ")
    _, report = run(other, Broken())
    assert "read-only" in report.notes[0]
    assert "new answers were not kept" in report.notes[0]


def test_a_store_that_is_held_elsewhere_is_waited_for_and_then_left_alone(
    cache_folder, monkeypatch
):
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.1)
    with AnswerDatabase(cache_folder).writing():
        _, report = run(QUERIES[0], Broken())
    assert "in use by another process" in report.notes[0]


def test_a_folder_that_cannot_be_made_is_noted(tmp_path):
    (tmp_path / "file").write_text("")
    rows, report = run(QUERIES[0], Broken(), cache=tmp_path / "file" / "below")
    assert rows
    assert "cannot be used" in report.notes[0]


def test_answers_that_cannot_be_written_wait_and_are_not_lost(cache_folder, monkeypatch):
    monkeypatch.setattr(stored_answers, "ANSWERS_A_WRITE", 1)
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 5)
    real, failures = AnswerStore.add, iter([True, True, True])

    def sometimes(store, *arguments):
        if next(failures, False):
            raise StoreError("no room")
        real(store, *arguments)

    monkeypatch.setattr(AnswerStore, "add", sometimes)
    _, report = run(QUERIES[0], Broken())
    assert not report.notes
    _, report = run(QUERIES[0], again := Broken())
    assert len(again.calls) < 6


def test_the_store_holds_no_text_of_a_document(cache_folder):
    run(QUERIES[0], Broken())
    for path in Path(cache_folder).rglob("*"):
        if path.is_file():
            assert b"ticket" not in path.read_bytes()
