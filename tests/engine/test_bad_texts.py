"""Texts that a tokenizer fails on: rows of NULL with a reason, and the query goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import covey
from covey.models.tokenizer import TextEncoder
from models.tiny import make_model, write_folder

SCORE = "SELECT id, AI.SCORE(PROMPT('Refund? {0}', s)) AS p FROM t ORDER BY id"
BAD = (3, 4, 17)
TEXTS = [f"crash {i}" if i in BAD else f"ticket {i}" for i in range(20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    theirs = make_model("llama", tied=True, max_position_embeddings=200)
    return write_folder(tmp_path_factory.mktemp("tiny"), theirs)


@pytest.fixture
def connection(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[covey.Connection]:
    encode = TextEncoder.encode

    def failing(encoder: TextEncoder, texts: Sequence[str]) -> Any:
        if any("crash" in text for text in texts):
            raise RuntimeError(f"cannot encode {texts[0]}")
        return encode(encoder, texts)

    monkeypatch.setattr(TextEncoder, "encode", failing)
    with covey.connect(folder, progress=False) as con:
        con.register("t", pa.table({"id": range(20), "s": TEXTS}))
        yield con


def test_their_rows_are_null_and_counted_and_none_is_lost(connection: covey.Connection) -> None:
    assert "20" in connection.sql(SCORE).explain(), "an estimate does not fail on them"
    done = connection.run(SCORE)
    rows = done.fetchall()
    assert [i for i, _ in rows] == list(range(20))
    assert tuple(i for i, p in rows if p is None) == BAD
    assert done.report.operators[0].failed == len(BAD)
    reasons = done.report.error_table()["reason"].to_pylist()
    assert reasons == ["the tokenizer failed on the text (RuntimeError)"] * len(BAD)
    # Answers of the others are kept; those that failed are tried again.
    again = connection.run(SCORE).report.operators[0]
    assert (again.stored, again.failed) == (20 - len(BAD), len(BAD))


@pytest.mark.parametrize(
    ("option", "message"),
    [("max_error_ratio => 0.1", "max_error_ratio 0.1 allows"), ("on_error => 'fail'", "failed")],
)
def test_they_end_a_query_that_says_so(
    connection: covey.Connection, option: str, message: str
) -> None:
    with pytest.raises(covey.RunError, match=message):
        connection.run(SCORE.replace("s))", f"s), {option})"))
    assert connection.run(SCORE.replace("s))", "s), max_error_ratio => 0.2)")).report.rows == 20


def test_a_pair_fails_with_either_of_its_documents(connection: covey.Connection) -> None:
    rows = connection.run(
        "SELECT t.id, u.id, AI.SCORE(PROMPT('Same? {0} {1}', t.s, u.s)) FROM t, t AS u "
        "WHERE t.id < 5 AND u.id > 15 ORDER BY ALL"
    ).fetchall()
    assert len(rows) == 20
    for one, other, score in rows:
        assert (score is None) == (one in BAD or other in BAD)
