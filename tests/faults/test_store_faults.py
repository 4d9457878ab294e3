"""Whatever fails under the answer store: rows are right, and what is reported as kept is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import filelock
import numpy as np
import pyarrow as pa
import pytest

import covey
from covey.execution.store import database, stored_answers
from covey.execution.store.database import StoreError
from covey.execution.store.location import CacheOptions
from covey.execution.store.store import AnswerStore, NewAnswers, StoredQuestion
from covey.testing import PlantedModel, planted
from faults.injector import Faulty, Steps, chosen_faults, failing_calls

QUERY = "SELECT id, AI.CLASSIFY(s, ['x', 'y', 'z']) AS c FROM t ORDER BY id"
ROWS = 40


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 9)
    monkeypatch.setattr(stored_answers, "ANSWERS_A_WRITE", 15)
    monkeypatch.setattr(database, "WAIT_SECONDS", 3.0)


@contextmanager
def faulty_store(steps: Steps) -> Iterator[None]:
    """Every statement, and every call about a file, that the store makes is a step."""
    connect = duckdb.connect

    class Duckdb:
        Error = duckdb.Error

        @staticmethod
        def connect(*arguments: Any, **named: Any) -> Faulty:
            return Faulty(steps.take("connect", connect, *arguments, **named), steps)

    calls = {name: (Path, name, str) for name in ("replace", "chmod", "unlink", "stat")}
    locks = {"acquire": (filelock.FileLock, "acquire", lambda lock: str(lock.lock_file))}
    with failing_calls(steps, "/answers", calls | locks), pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "duckdb", Duckdb)
        yield


def model() -> PlantedModel:
    return PlantedModel(
        lambda question, documents: len(documents[0]) % 5 / 5,
        lambda question, labels, documents: len(documents[0]) % 3,
        fingerprint="faults",
    )


def run(rows: int) -> tuple[list[Any], Any, int]:
    """Rows, report and calls."""
    asked = model()
    with covey.connect(asked, progress=False) as con:
        texts = [f"ticket {'x' * (i % 7)}{i}" for i in range(rows)]
        con.register("t", pa.table({"id": range(rows), "s": texts}))
        done = con.run(QUERY)
        return done.fetchall(), done.report, len(asked.calls)


def not_kept(notes: list[str]) -> int:
    found = [re.match(r"([\d,]+) new answers were not kept", note) for note in notes]
    return sum(int(each[1].replace(",", "")) for each in found if each)


@pytest.fixture(scope="module")
def clean() -> tuple[list[Any], int]:
    """The rows, and how many prompts they take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planted, "PROMPTS_A_BATCH", 9)
        asked = model()
        with covey.connect(asked, progress=False, cache=False) as con:
            texts = [f"ticket {'x' * (i % 7)}{i}" for i in range(ROWS)]
            con.register("t", pa.table({"id": range(ROWS), "s": texts}))
            return con.run(QUERY).fetchall(), len(asked.calls)


@pytest.mark.fuzz
@pytest.mark.parametrize("warm", [0, ROWS // 2], ids=["new", "warm"])
def test_every_step_may_fail(
    warm: int, clean: tuple[list[Any], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counted = Steps()
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "counted"))
    if warm:
        run(warm)
    with faulty_store(counted):
        assert run(ROWS)[0] == clean[0]
    assert counted.taken > 20, counted.names
    for number, (step, fault, after) in enumerate(chosen_faults(counted.taken)):
        monkeypatch.setenv("COVEY_CACHE", str(tmp_path / str(number)))
        fails(warm, Steps(step, fault, after), clean)


def fails(warm: int, steps: Steps, clean: tuple[list[Any], int]) -> None:
    """A run with a fault, and what the next finds."""
    before = run(warm)[2] if warm else 0
    what = f"step {steps.at}, {steps.fault()!r}, after: {steps.after}"
    with faulty_store(steps):
        try:
            rows, report, asked = run(ROWS)
        except KeyboardInterrupt:
            rows, report, asked = None, None, 0
    folder = CacheOptions().folder / "answers"
    assert not list(folder.glob("damaged*")), f"{what}: no damage"
    if report is not None:
        assert rows == clean[0], what
        kept = asked - not_kept(report.notes)
        if kept < asked or asked > clean[1] - before:
            assert report.notes, f"{what}: without a word"
    else:
        kept = 0
    again, _, missing = run(ROWS)
    assert again == clean[0], what
    assert missing <= clean[1] - before - kept, f"{what}: lost though reported as kept"
    assert run(ROWS)[2] == 0, f"{what}: the store does not work again"


class Surprising(AnswerStore):
    """Fails in a way that no store should, once or for good."""

    failures = 0

    def add(self, *arguments: Any) -> None:
        if Surprising.failures:
            Surprising.failures -= 1
            raise ZeroDivisionError("no error of a store")
        super().add(*arguments)


@pytest.mark.parametrize(("failures", "lost"), [(1, False), (10**6, True)])
def test_an_error_of_no_known_kind_ends_no_writer(
    failures: int, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.api.connection.AnswerStore", Surprising)
    monkeypatch.setattr(Surprising, "failures", failures)
    _, report, asked = run(ROWS)
    note = f"{asked} new answers were not kept: ZeroDivisionError no error of a store."
    assert report.notes == ([note] if lost else [])
    Surprising.failures = 0
    assert run(ROWS)[2] == (asked if lost else 0)


def test_a_process_without_threads_writes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(thread: object) -> None:
        if getattr(thread, "name", "") == "covey-store":
            raise RuntimeError("can't start new thread")
        start(thread)

    start = stored_answers.threading.Thread.start
    monkeypatch.setattr(stored_answers.threading.Thread, "start", none)
    _, report, asked = run(ROWS)
    assert asked and not report.notes
    assert run(ROWS)[2] == 0


def test_damage_is_put_aside_beside_what_was_before(cache_folder: Path) -> None:
    run(5)
    path = AnswerStore(CacheOptions()).path
    for number in range(3):
        path.write_bytes(b"garbage" * 1000 + bytes([number]))
        path.with_name(f"{path.name}.wal").write_bytes(b"log")
        _, report, _ = run(5)
        assert "put aside" in report.notes[0]
        assert run(5)[2] == 0
    names = ["damaged", "damaged-1", "damaged-2"]
    for number, name in enumerate(names):
        assert path.with_name(f"{name}.duckdb").read_bytes()[-1] == number
        assert path.with_name(f"{name}.duckdb.wal").read_bytes() == b"log"


def test_a_store_of_another_version_stays_and_is_not_used() -> None:
    run(5)
    path = AnswerStore(CacheOptions()).path
    with duckdb.connect(str(path)) as connection:
        connection.execute("ALTER TABLE answers ADD COLUMN certainty DOUBLE")
    content = path.read_bytes()
    for _ in range(2):
        _, report, asked = run(5)
        assert asked and "made by another version of Covey" in report.notes[0]
        assert f"{asked} new answers were not kept" in report.notes[1]
    assert path.read_bytes() == content
    assert not list(path.parent.glob("damaged*"))


def test_a_file_begun_anew_gets_no_answers_that_nobody_would_find(tmp_path: Path) -> None:
    """Another process deletes the file: its salt is another, and so are keys of pairs."""
    store = AnswerStore(CacheOptions(tmp_path))
    salt = store.salt()
    batch = NewAnswers(
        StoredQuestion("q", "m", "f", "judge", "? {0} {1}", ()),
        np.arange(8, dtype=np.uint64).reshape(4, 2),
        np.ones((4, 1)),
    )
    store.add([batch], salt)
    AnswerStore(CacheOptions(tmp_path)).clear()
    AnswerStore(CacheOptions(tmp_path)).salt()
    with pytest.raises(StoreError, match="begun anew"):
        store.add([batch], salt)
    assert store.summary()["answers"] == 0
    store.add([batch], store.salt())
    store.clear()
    store.add([batch], store.salt())
    assert store.summary()["answers"] == 4, "whoever begins it anew keeps its salt"
