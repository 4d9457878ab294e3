"""What can be registered has right values; what cannot is refused, and changes nothing."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import covey
from covey.errors import InputError, RunError
from covey.testing import PlantedModel

HALF = "bad \ud83d"


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    model = PlantedModel(lambda question, documents: 0.9, lambda question, labels, documents: 1)
    with covey.connect(model=model, cache=False, progress=False) as connection:
        connection.register("x", pa.table({"old": [1]}))
        yield connection


def objects(*values: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": range(len(values)), "b": pd.Series(values, dtype=object)})


def arrow(values: Any, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"b": pa.array(values, kind)})


def a_reader_that_fails() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"b": ["x"]})
        raise ValueError("the line dropped")

    return pa.RecordBatchReader.from_batches(pa.schema([("b", pa.string())]), batches())


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a period": (
        lambda: pd.DataFrame({"b": pd.period_range("2026", "2027", freq="M")}),
        r"column 'b' of 'x', of type period\[M\], cannot be read: .* Cast it first",
    ),
    "an interval": (lambda: pd.DataFrame({"b": pd.interval_range(0, 3)}), "of type interval"),
    "complex": (lambda: pd.DataFrame({"b": np.array([1j])}), "of type complex128"),
    "mixed times": (
        lambda: objects(
            datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2026, 1, 1)
        ),
        "column 'b' of 'x', of type object, cannot be read: Could not convert 'datetime'",
    ),
    "arrays of two axes": (lambda: objects(np.ones((2, 2))), "'b' of 'x', of type object"),
    "half a pair in a list": (lambda: objects([HALF], ["x"]), "'b' of 'x', of type object.*surrog"),
    "half a pair in a dict": (lambda: objects({"k": HALF}, {"k": "x"}), "'b' of 'x', of type obj"),
    "half a pair as a key": (lambda: objects({HALF: 1}, {"k": 2}), "'b' of 'x', of type object"),
    "no columns": (lambda: pd.DataFrame(index=[1]), "at least one column"),
    "an index": (lambda: pd.Index(["a"]), "cannot read data of type Index"),
    "Int128": (
        lambda: pl.DataFrame({"a": [1], "b": pl.Series([2**100], dtype=pl.Int128)}),
        "column 'b' of 'x', of type Int128, cannot be read: Arrow has no such type",
    ),
    "Int128 in a list": (
        lambda: pl.DataFrame({"b": pl.Series([[1]], dtype=pl.List(pl.Int128))}),
        r"of type List\(Int128\)",
    ),
    "objects of polars": (
        lambda: pl.DataFrame({"b": pl.Series([{1}], dtype=pl.Object)}),
        "column 'b' of 'x', of type Object",
    ),
    "a lazy frame": (
        lambda: pl.LazyFrame({"a": [1]}).select(pl.col("zz")),
        "'x' cannot be read: unable to find column \"zz\"",
    ),
    "decimal256": (
        lambda: arrow([decimal.Decimal(1)], pa.decimal256(60, 2)),
        r"column 'b' of 'x', of type decimal256\(60, 2\)",
    ),
    "half floats": (lambda: arrow([np.float16(1)], pa.float16()), "of type halffloat"),
    "codes in arrays": (
        lambda: pl.DataFrame({"b": pl.Series([["a", "b"]], dtype=pl.Array(pl.Categorical, 2))}),
        "'b' of 'x', of type fixed_size_list.*, cannot be read: DuckDB would read its codes",
    ),
    "a reader that fails": (a_reader_that_fails, "'x' cannot be read: the line dropped"),
    "nothing": (lambda: None, "cannot read data of type NoneType"),
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_cannot_be_read_is_refused_and_the_earlier_table_stays(
    con: covey.Connection, title: str
) -> None:
    data, message = REFUSED[title]
    views = "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
    with pytest.raises(InputError, match=message):
        con.register("x", data())
    assert con.sql("FROM x").fetchall() == [(1,)]
    assert con.sql(views).fetchall() == [("x",)]


FILES: dict[str, str] = {
    "latin.csv": "Invalid unicode .* This file is not utf-8 encoded.\nPossible Solution: Set the",
    "folder": r"is a folder. Name files in it: 'folder/\*.parquet'",
    "folder/": "is a folder",
    "": "is a folder",
    "named.csv": "is a folder",
    "missing.csv": "No files found that match the pattern",
    "missing*.parquet": "No files found that match the pattern",
    "missing": "there is no such file",
    "words": "No extension found",
    "words.foo": "No extension found .*\n.* reader functions, such as read_csv",
    "words.parquet": "too small to be a Parquet file",
    "words.json": "Malformed JSON",
    "it's.csv": "No files found",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_is_refused_in_whole_words(
    con: covey.Connection, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.csv").write_bytes("a,b\n1,café\n".encode("latin-1"))
    for folder in ("folder", "named.csv"):
        (tmp_path / folder).mkdir()
    for file in ("words", "words.foo", "words.parquet", "words.json"):
        (tmp_path / file).write_text("{words")
    # A path is no name of a table.
    con.run("CREATE TABLE missing AS SELECT 1")
    with pytest.raises(InputError, match=FILES[name]) as caught:
        con.register("x", name)
    assert "_auto" not in str(caught.value) and "delimiter" not in str(caught.value)
    assert con.sql("FROM x").fetchall() == [(1,)]


def test_a_path_with_quotes_and_blanks_is_read(con: covey.Connection, tmp_path: Path) -> None:
    path = tmp_path / 'it\'s "mine".csv'
    path.write_text("a\n1\n")
    con.register("x", path)
    assert con.sql("FROM x").fetchall() == [(1,)]


READ: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "a type of one's own": (lambda: type("Mine", (pd.DataFrame,), {})({"b": ["a"]}), ["a"]),
    "no categories": (lambda: pd.DataFrame({"b": pd.Categorical([])}), []),
    "categories": (lambda: pd.DataFrame({"b": pd.Categorical(["x", None])}), ["x", None]),
    "numbers of pandas": (lambda: pd.DataFrame({"b": pd.array([1, None], "Int64")}), [1, None]),
    "mixed objects": (lambda: pd.DataFrame({"b": pd.Series([1, "a"], dtype=object)}), ["1", "a"]),
    "NUL": (lambda: pd.DataFrame({"b": ["a\0b"]}), ["a\0b"]),
    "a name that is no text": (lambda: pd.DataFrame([[1]], columns=[0]), [1]),
    "a series": (lambda: pd.Series(["a"], name="b"), ["a"]),
    "a series of polars": (lambda: pl.Series("b", ["a"]), ["a"]),
    "a lazy frame": (lambda: pl.LazyFrame({"b": ["a"]}), ["a"]),
    "an Enum of polars": (
        lambda: pl.DataFrame({"b": pl.Series(["a"], dtype=pl.Enum(["a"]))}),
        ["a"],
    ),
    "views of texts": (lambda: arrow(["a", "b" * 40], pa.string_view()), ["a", "b" * 40]),
    "large texts": (lambda: arrow(["a"], pa.large_string()), ["a"]),
    "a dictionary": (lambda: arrow(pa.array(["a", None]).dictionary_encode()), ["a", None]),
    "runs": (lambda: arrow(pa.RunEndEncodedArray.from_arrays([2], ["a"])), ["a", "a"]),
    "nothing but NULL": (lambda: arrow(pa.nulls(2)), [None, None]),
    "a slice": (lambda: arrow(["a", "b", "c"]).slice(1, 1), ["b"]),
    "chunks": (lambda: pa.table({"b": pa.chunked_array([["a"], [], ["b"]])}), ["a", "b"]),
    "no rows": (lambda: arrow([], pa.string()), []),
    "a reader": (lambda: arrow(["a"]).to_reader(), ["a"]),
    "a dataset": (lambda: pa.dataset.dataset(arrow(["a"])), ["a"]),
    "a scanner of a reader": (
        lambda: pa.dataset.Scanner.from_batches(arrow(["a"]).to_reader()),
        ["a"],
    ),
}


@pytest.mark.parametrize("title", READ)
def test_what_can_be_read_has_its_values_again_and_again(con: covey.Connection, title: str) -> None:
    data, values = READ[title]
    con.register("x", data())
    for _ in range(2):
        assert con.sql("FROM x").fetchall() == [(value,) for value in values]


BROKEN: dict[str, Callable[[], Any]] = {
    "pandas": lambda: objects("fine", HALF, None, float("nan"), pd.NA),
    "Arrow": lambda: pa.table(
        {
            "id": range(5),
            "b": pa.array([b"fine", b"\xff", None, None, None], pa.binary()).view(pa.string()),
        }
    ),
    "large texts in chunks": lambda: pa.table(
        {
            "id": range(5),
            "b": pa.chunked_array(
                [
                    pa.array([b"fine"], pa.large_binary()).view(pa.large_string()),
                    pa.array([b"ab\xc3", None, None, None], pa.large_binary()).view(
                        pa.large_string()
                    ),
                ]
            ),
        }
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("text", ["b", "upper(b)", "'Text: ' || b"])
def test_a_text_that_is_none_fails_its_row_alone(
    con: covey.Connection, kind: str, text: str
) -> None:
    con.register("x", BROKEN[kind]())
    call = f"AI.IF(PROMPT('late? {{0}}', {text}), on_error => '%s')"
    assert con.sql(f"SELECT {call % 'fail'} FROM x WHERE id = 0").fetchall() == [(True,)]
    query = con.sql(f"SELECT id, {call % 'null'} FROM x ORDER BY id")
    assert query.fetchall() == [(0, True), *((i, None) for i in range(1, 5))]
    assert query.report.operators[0].failed == 1
    assert "not valid Unicode" in query.report.errors[0].reason
    with pytest.raises(RunError, match="not valid Unicode"):
        con.run(f"SELECT {call % 'fail'} FROM x")
    labels = con.sql(f"SELECT AI.CLASSIFY({text}, ['p', 'q']) FROM x ORDER BY id").fetchall()
    assert labels == [("q",), (None,), (None,), (None,), (None,)]
    assert "\N{REPLACEMENT CHARACTER}" in con.sql("SELECT b FROM x WHERE id = 1").fetchall()[0][0]
