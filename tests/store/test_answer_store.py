"""The answer store: what is found again, by whom, and what is not."""

from __future__ import annotations

import datetime
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

import covey
from covey.execution.store import store as store_module
from covey.execution.store import stored_answers
from covey.execution.store.keys import prompt_keys, question_digest
from covey.execution.store.location import CacheOptions
from covey.execution.store.store import AnswerStore, NewAnswers, StoredQuestion
from covey.hardware.paths import cache_folder, write_whole
from covey.prompts.documents import DocumentStore
from covey.prompts.question import Label, Question, QuestionKind
from covey.testing import PlantedModel

FILTER = "SELECT id FROM t WHERE AI.IF(PROMPT('Refund? {0}', s)) ORDER BY id"
CLASSIFY = "SELECT id, AI.CLASSIFY(s, ['red', 'green', 'blue']) AS c FROM t ORDER BY id"
SEVERAL = CLASSIFY.replace("blue']", "blue'], output_mode => 'multi', threshold => 0.3")
PROBABILITIES = CLASSIFY.replace("blue']", "blue'], probabilities => TRUE")
JOIN = (
    "SELECT t.id, p.id FROM t JOIN t AS p ON AI.IF(PROMPT('Alike? {0} {1}', t.s, p.s)) ORDER BY ALL"
)


def model(fingerprint: str | None = "same") -> PlantedModel:
    return PlantedModel(
        lambda question, documents: len("".join(documents)) % 7 / 7,
        lambda question, labels, documents: len(documents[0]) % 3,
        fingerprint=fingerprint,
    )


def run(query: str, rows: int = 20, fingerprint: str | None = "same", **options: object):
    planted = model(fingerprint)
    with covey.connect(planted, **options) as con:
        texts = [f"ticket {'x' * (i % 13)}{i}" for i in range(rows)]
        con.register("t", pa.table({"id": range(rows), "s": texts}))
        done = con.run(query)
    return done.fetchall(), planted.calls, done.report


@pytest.mark.parametrize("query", [FILTER, CLASSIFY, SEVERAL, PROBABILITIES, JOIN])
def test_a_second_run_asks_nothing_and_gives_the_same_rows(query):
    rows, calls, _ = run(query)
    again, asked, report = run(query)
    assert rows and again == rows
    assert calls and not asked
    assert sum(operator.stored for operator in report.operators) == len(calls)
    assert f"{len(calls):,} answers from the store" in str(report)
    assert sum(operator.prompts for operator in report.operators) == 0


@pytest.mark.parametrize("query", [FILTER, CLASSIFY, SEVERAL, PROBABILITIES])
def test_answers_that_are_looked_up_again_and_again_are_held(query, monkeypatch):
    monkeypatch.setattr("covey.execution.bridge.MOST_ROWS", 3)
    searches = []
    real = AnswerStore.find

    def find(store, *arguments):
        searches.append(arguments)
        return real(store, *arguments)

    monkeypatch.setattr(AnswerStore, "find", find)
    rows, calls, _ = run(query)
    again, asked, report = run(query, rows=23)
    assert again[:-3] == rows if query != FILTER else again[: len(rows)] == rows
    assert len(calls) == report.operators[0].stored == 20
    assert len(asked) == 3, "what is not held is not taken for an answer"
    assert len(searches) == stored_answers.LOOKUPS_BEFORE_HELD
    monkeypatch.setattr(stored_answers, "HELD_BYTES", 0)
    assert run(query, rows=23)[0] == again
    assert len(searches) > 2 * stored_answers.LOOKUPS_BEFORE_HELD


def test_only_new_rows_are_asked():
    run(FILTER, rows=20)
    rows, calls, report = run(FILTER, rows=25)
    assert len(calls) == 5
    assert report.operators[0].stored == 20
    assert rows == run(FILTER, rows=25, cache=False)[0]
    operator = report.operators[0]
    assert operator.true == len(rows), "TRUE answers of both kinds are counted"


@pytest.mark.parametrize("options", [{"cache": False}, {"fingerprint": None}])
def test_answers_are_not_kept_where_that_is_not_wanted(options, cache_folder):
    for _ in range(2):
        assert len(run(FILTER, **options)[1]) == 20
    assert not (cache_folder / "answers").exists()


def test_another_model_question_or_anchor_is_another_answer():
    run(FILTER)
    assert len(run(FILTER, fingerprint="other")[1]) == 20
    assert len(run(FILTER.replace("Refund", "refund"))[1]) == 20


def test_a_stopped_query_keeps_the_answers_it_had():
    planted = model()
    with covey.connect(planted) as con:
        con.register("t", pa.table({"id": range(9), "s": [f"t{i}" for i in range(9)]}))
        failing = "SELECT error(count(*)::VARCHAR) FROM t WHERE AI.IF(PROMPT('Refund? {0}', s))"
        with pytest.raises(covey.RunError):
            con.run(failing)
        con.run("SELECT count(*) FROM t WHERE AI.IF(PROMPT('Refund? {0}', s))")
    assert len(planted.calls) == 9


def test_failed_prompts_are_not_kept_and_count_against_all_answers():
    answers = {"bad": None}
    planted = PlantedModel(lambda _, documents: answers.get(documents[0], 0.9), fingerprint="f")
    query = "SELECT count(*) FROM t WHERE AI.IF(PROMPT('? {0}', s), {'max_error_ratio': 0.2})"
    for _ in range(2):
        with covey.connect(planted) as con:
            con.register("t", pa.table({"s": ["bad", *map(str, range(9))]}))
            assert con.run(query).fetchall() == [(9,)]
    assert planted.calls[-1] == ("? {0}", ("bad",))
    assert len(planted.calls) == 11


def test_the_store_lies_where_it_is_told_and_is_private(tmp_path, monkeypatch):
    run(FILTER, cache=tmp_path / "mine")
    folder = tmp_path / "mine" / "answers"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    monkeypatch.delenv("COVEY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("platformdirs.PlatformDirs", Unix)
    assert cache_folder() == tmp_path / "xdg" / "covey"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "covey"
    monkeypatch.setattr("platformdirs.PlatformDirs", MacOS)
    assert cache_folder() == Path.home() / "Library" / "Caches" / "covey"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def unknown(user):
        raise KeyError(user)

    monkeypatch.delenv("COVEY_CACHE")
    for variable in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(covey.InputError, match="COVEY_CACHE"):
        covey.connect(model())


def test_a_file_of_the_cache_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(path, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    write_whole(tmp_path / "rates" / "a.json", b"{}")
    assert not list((tmp_path / "rates").iterdir())


@pytest.mark.parametrize("cache", [3, "", None])
def test_a_cache_that_is_none_is_refused(cache):
    with pytest.raises(covey.InputError, match="cache is True, False, a folder"):
        covey.connect(model(), cache=cache)


def test_limits_are_checked(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(covey.InputError, match="Name a folder"):
        covey.connect(model(), cache=tmp_path / "file")
    for limits in ({"max_bytes": 0}, {"max_bytes": "2"}, {"max_days": float("nan")}):
        with pytest.raises(covey.InputError, match="above 0"):
            covey.CacheOptions(**limits)


def test_answers_past_their_age_are_asked_again(cache_folder, monkeypatch):
    options = CacheOptions(max_days=2)
    now = store_module._now()
    run(FILTER, cache=options)
    monkeypatch.setattr(store_module, "_now", lambda: now + datetime.timedelta(days=1))
    assert not run(FILTER, cache=options)[1]
    monkeypatch.setattr(store_module, "_now", lambda: now + datetime.timedelta(days=3))
    assert len(run(FILTER, cache=options)[1]) == 20
    # A clock that is put back makes nothing old.
    monkeypatch.setattr(store_module, "_now", lambda: now - datetime.timedelta(days=900))
    assert not run(FILTER, cache=options)[1]


def test_a_folder_that_duckdb_cannot_name_is_said_to_be_one(tmp_path):
    rows, calls, report = run(FILTER, cache=tmp_path / "\udcff")
    assert len(calls) == 20 and rows
    assert "is no UTF-8" in str(report)


@pytest.mark.parametrize("days", [1e7, 1e300, float("inf")])
def test_no_answer_is_older_than_the_calendar(days, cache_folder):
    run(FILTER, cache=CacheOptions(max_days=days))
    assert not run(FILTER, cache=CacheOptions(max_days=days))[1]
    store = AnswerStore(CacheOptions())
    assert store.clear(days=days) == 0
    with pytest.raises(covey.InputError, match="not nan"):
        store.clear(days=float("nan"))


def stored_question(name: str = "q") -> StoredQuestion:
    return StoredQuestion(name, "m", "f", "judge", "? {0}", ())


def keys(start: int, count: int) -> np.ndarray:
    return np.arange(2 * start, 2 * (start + count), dtype=np.uint64).reshape(-1, 2)


def test_the_oldest_answers_go_when_the_file_is_too_large(tmp_path, monkeypatch):
    store = AnswerStore(CacheOptions(tmp_path, max_bytes=6_000_000))
    scores = np.random.default_rng(1).normal(size=(100_000, 1))
    random = np.random.default_rng(2).integers(0, 2**63, (5, 100_000, 2)).astype(np.uint64)
    now = store_module._now()
    for day in range(5):
        monkeypatch.setattr(
            store_module, "_now", lambda day=day: now + datetime.timedelta(days=day)
        )
        store.add([NewAnswers(stored_question(), random[day], scores)])
    assert store.summary()["bytes"] > 6_000_000
    gone = store.shrink()
    assert gone and gone % 100_000 == 0
    assert store.summary()["bytes"] < 6_000_000
    for day in range(5):
        found, got = store.find("q", random[day], 1)
        assert found.all() if day >= gone // 100_000 else not found.any()
        if found.all():
            np.testing.assert_array_equal(got, scores)
    assert store.shrink() == 0


def test_without_a_file_there_are_no_questions(tmp_path):
    assert AnswerStore(CacheOptions(tmp_path)).questions() is None


def test_clear_by_model_age_and_all_and_export(tmp_path, monkeypatch):
    run(FILTER, rows=5, cache=tmp_path)
    run(CLASSIFY, rows=4, cache=tmp_path)
    store = AnswerStore(CacheOptions(tmp_path))
    exported = pa.Table.from_batches(store.export())
    widths = sorted(len(scores) for scores in exported["scores"].to_pylist())
    assert widths == [1] * 5 + [2] * 4
    assert store.clear(model="another") == 0
    assert store.clear(days=1) == 0
    assert store.questions().num_rows == 2
    assert store.clear(model="planted") == 9
    assert store.summary()["answers"] == 0
    assert not pa.Table.from_batches(AnswerStore(CacheOptions(tmp_path / "new")).export()).num_rows
    assert len(run(FILTER, rows=5, cache=tmp_path)[1]) == 5, "the store goes on"
    store.path.write_text("garbage")
    assert store.clear() == 0 and not store.path.exists(), "all goes, in whatever state"


@pytest.mark.parametrize(
    "other",
    [
        Question(QuestionKind.CLASSIFY, "? {0}", 1, (Label("a"), Label("b"))),
        Question(QuestionKind.CLASSIFY, "? {0}", 1, (Label("b"), Label("a"))),
        Question(QuestionKind.CLASSIFY, "? {0}", 1, (Label("a", "b"), Label("b"))),
        Question(QuestionKind.CLASSIFY, "? {0}", 1, (Label("a", ""), Label("b"))),
        Question(QuestionKind.JUDGE, "? {0}", 1),
        Question(QuestionKind.JUDGE, "? {0} {1}", 2),
        Question(QuestionKind.JUDGE, "? {0} {1}", 2, anchor=1),
    ],
)
def test_questions_that_differ_anywhere_have_other_names(other):
    first = Question(QuestionKind.CLASSIFY, "? {0}", 1, (Label("a", "c"), Label("b")))
    assert question_digest("m", other) != question_digest("m", first)
    assert question_digest("m", other) == question_digest("m", replace(other))
    assert question_digest("n", other) != question_digest("m", other)


@given(st.integers(1, 4), st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4)))
def test_keys_are_equal_exactly_where_tuples_are(arity, tuples):
    documents = DocumentStore()
    ids = documents.add(["a", "b", ""])
    wanted = [row[:arity] for row in tuples]
    salt = np.arange(4, dtype=np.uint64)
    array = ids[np.array(wanted, np.int64).reshape(-1, arity)]
    found = prompt_keys(documents.digests(array), salt)
    assert found.shape == (len(wanted), 2)
    named = {tuple(row): tuple(key) for row, key in zip(wanted, found.tolist(), strict=True)}
    assert len(set(named.values())) == len({tuple(row) for row in wanted})
    assert [named[tuple(row)] for row in wanted] == [tuple(key) for key in found.tolist()]
