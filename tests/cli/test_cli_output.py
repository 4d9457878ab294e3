"""Results on the command line: forms, files, terminals and what is refused."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import covey
from api.typed_values import NESTINGS, expressions
from covey.cli import writers
from covey.cli.destination import Destination, destination
from covey.cli.table import NARROWEST, SHOWN_ROWS, cell_text, render, shrink
from covey.cli.writers import WRITERS, Batches, Format
from covey.errors import InputError, RunError
from covey.sql.text import quote_name
from covey.testing import PlantedModel

ROWS = pa.table(
    {
        "product": ["Lamp", None, "Krug für Öl"],
        "n": [12, 3, None],
        "share": [0.5, float("nan"), 0.25],
        "labels": [["late", "broken"], [], None],
        "day": [datetime.date(2026, 1, 2), None, None],
        "total": pa.array([decimal.Decimal(7), None, None], pa.decimal128(38, 0)),
    }
)


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_table_aligns_columns_and_writes_sql_words() -> None:
    text = render(
        ["product", "n", "ok"],
        [("Lamp", 12, True), (None, 3, False), ("Rug", None, None)],
        total_rows=3,
        width=None,
    )
    assert text.splitlines() == [
        "product     n  ok",
        "-------  ----  -----",
        "Lamp       12  true",
        "NULL        3  false",
        "Rug      NULL  NULL",
    ]


def test_a_table_of_no_rows_still_shows_its_columns() -> None:
    assert render(["a", "b"], [], total_rows=0, width=80) == "a  b\n-  -"


def test_rows_left_out_are_counted_with_the_way_to_get_them() -> None:
    last = render(["a"], [(1,), (2,)], total_rows=12_345, width=None).splitlines()[-1]
    assert last == "(2 of 12,345 rows shown; --format csv, json or parquet gives them all)"


def test_documents_cannot_drive_the_terminal() -> None:
    assert cell_text("a\nb\x1b[31m\tc") == "a b [31m c"


@given(
    st.lists(st.lists(st.text(max_size=60), min_size=3, max_size=3), max_size=6),
    st.integers(min_value=40, max_value=200),
)
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]], width: int) -> None:
    text = render(["a", "b", "c"], rows, total_rows=len(rows), width=width)
    assert max(cell_len(line) for line in text.split("\n")) <= width


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(1, 400))
def test_shrinking_never_grows_and_fits_when_it_can(widths: list[int], room: int) -> None:
    cut = shrink(widths, room)
    assert all(min(w, NARROWEST) <= c <= w for c, w in zip(cut, widths, strict=True))
    if sum(min(w, NARROWEST) for w in widths) <= room:
        assert sum(cut) <= room


def test_csv_reads_back(tmp_path: Path) -> None:
    Destination(Format.CSV, tmp_path / "r.csv").write(ROWS.to_batches())
    back = pyarrow.csv.read_csv(tmp_path / "r.csv")
    assert back.column_names == ROWS.column_names
    assert back["product"].to_pylist() == ["Lamp", "", "Krug für Öl"]
    assert back["labels"].to_pylist() == ["[late, broken]", "[]", ""]


def test_json_is_valid_and_one_row_a_line(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    Destination(Format.JSON, path).write(ROWS.to_batches())
    text = path.read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)[0] == {
        "product": "Lamp",
        "n": 12,
        "share": 0.5,
        "labels": ["late", "broken"],
        "day": "2026-01-02",
        "total": 7,
    }
    assert json.loads(text)[1]["share"] is None
    assert len(text.splitlines()) == ROWS.num_rows + 2


def test_json_of_no_rows_is_an_empty_array(tmp_path: Path) -> None:
    Destination(Format.JSON, tmp_path / "r.json").write(ROWS.schema.empty_table().to_batches())
    assert json.loads((tmp_path / "r.json").read_text()) == []


def test_parquet_keeps_values_and_types(tmp_path: Path) -> None:
    Destination(Format.PARQUET, tmp_path / "r.parquet").write(ROWS.to_batches())
    back = pyarrow.parquet.read_table(tmp_path / "r.parquet")
    assert back.schema == ROWS.schema
    assert back.drop(["share"]).equals(ROWS.drop(["share"]))


def test_a_second_column_of_one_name_is_kept_in_a_file(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    Destination(Format.JSON, tmp_path / "r.json").write(twice.to_batches())
    assert json.loads((tmp_path / "r.json").read_text()) == [{"a": 1, "a_1": 2}]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.parquet"
    path.write_text("old")

    def full(batches: Batches, schema: pa.Schema, file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(WRITERS, Format.PARQUET, full)
    with pytest.raises(RunError, match="No space left on device"):
        Destination(Format.PARQUET, path).write(ROWS.to_batches())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


MANY = pa.table({"n": range(1000), "s": [f"row {i}, with a comma" for i in range(1000)]})


@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.parametrize("form", Format)
def test_many_batches_make_the_file_that_one_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Format, size: int
) -> None:
    monkeypatch.setattr(writers, "ROWS_A_GROUP", 300)
    held: list[weakref.ref[pa.RecordBatch]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, MANY.num_rows, size):
            # A copy of its own: a slice would belong to the table.
            batch = pa.RecordBatch.from_pylist(MANY.slice(start, size).to_pylist(), MANY.schema)
            held.append(weakref.ref(batch))
            assert sum(each() is not None for each in held) <= 300 / size + 3, "let go"
            yield batch
            del batch

    Destination(form, tmp_path / "many").write(batches())
    Destination(form, tmp_path / "one").write(MANY.to_batches())
    if form is Format.PARQUET:
        assert pyarrow.parquet.read_table(tmp_path / "many") == MANY
        groups = pyarrow.parquet.ParquetFile(tmp_path / "many").num_row_groups
        assert groups == (4 if size == 7 else 1)
    else:
        assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
        assert (tmp_path / "many").read_bytes().count(b"row 999") == 1


def test_a_table_on_standard_output_counts_what_it_does_not_show(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Destination(Format.TABLE, None).write(MANY.to_batches(max_chunksize=150))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == SHOWN_ROWS + 3
    assert lines[-1].startswith("(200 of 1,000 rows shown")


def test_an_error_of_the_query_is_none_of_the_file(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise OSError(5, "Input/output error")

    with pytest.raises(RunError, match=r"The query stopped: .*Input/output error"):
        Destination(Format.CSV, tmp_path / "r.csv").write(batches())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "form"),
    [("r.csv", Format.CSV), ("r.JSON", Format.JSON), ("r.parquet", Format.PARQUET),
     ("r.txt", Format.TABLE)],
)  # fmt: skip
def test_the_suffix_of_the_file_chooses_the_form(tmp_path: Path, name: str, form: Format) -> None:
    assert destination(None, tmp_path / name).format is form
    assert destination(Format.CSV, tmp_path / name).format is Format.CSV


def test_an_unclear_suffix_is_refused_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Add --format csv, json, parquet or table"):
        destination(None, tmp_path / "result.xlsx")


def test_a_missing_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        destination(None, tmp_path / "nowhere" / "r.csv")


def test_a_folder_as_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        destination(Format.CSV, tmp_path)


def test_parquet_to_a_terminal_is_refused_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(InputError, match=r"--output FILE\.parquet"):
        destination(Format.PARQUET, None)


def test_parquet_to_a_pipe_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert destination(Format.PARQUET, None) == Destination(Format.PARQUET, None)


def test_json_and_parquet_hold_what_duckdb_can_and_python_cannot(tmp_path: Path) -> None:
    table = duckdb.sql(
        "SELECT MAP {'pos': 0.5, 'neg': 0.25} AS m, INTERVAL 1 DAY AS i, 'infinity'::DATE AS d,"
        " TIMESTAMP '99999-01-01' AS t, DATE '2026-01-02' AS u"
    ).to_arrow_table()
    for suffix in ("json", "parquet"):
        destination(None, tmp_path / f"r.{suffix}").write(table.to_batches())
    (row,) = json.loads((tmp_path / "r.json").read_text())
    assert row == {
        "m": {"pos": 0.5, "neg": 0.25},
        "i": "1 day",
        "d": "infinity",
        "t": "99999-01-01 00:00:00",
        "u": "2026-01-02",
    }
    read = duckdb.read_parquet(str(tmp_path / "r.parquet"))
    assert read.project("i, d::VARCHAR, m['pos']").fetchall() == [("1 day", "infinity", 0.5)]


def test_a_link_stays_a_link_and_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    destination(None, link).write(ROWS.to_batches())
    assert link.is_symlink() and real.read_text().startswith(",".join(ROWS.column_names))
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(x.name for x in tmp_path.iterdir()) == ["link.csv", "real.csv"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    destination(Format.CSV, pipe).write(ROWS.to_batches())
    reader.join(timeout=20)
    assert read[0].startswith(",".join(ROWS.column_names)) and pipe.is_fifo()


@pytest.mark.parametrize("nesting", NESTINGS)
def test_every_type_is_written_in_every_form(nesting: str, tmp_path: Path) -> None:
    values = {t: e for t, e in expressions(nesting).items() if t != "TYPE"}
    names = ", ".join(quote_name(title) for title in values)
    row, nothing = ", ".join(values.values()), ", ".join("NULL" for _ in values)
    query = f"SELECT * FROM (VALUES ({row}), ({nothing}), ({row})) AS v({names})"
    zone = "SET TimeZone = 'America/New_York'"
    model = PlantedModel(lambda question, documents: 0.5)
    with covey.connect(model=model, cache=False, progress=False) as con:
        con.run(zone)
        for form in Format:
            for limit, rows in (("", 3), (" LIMIT 0", 0)):
                path = tmp_path / f"{rows}.{form.value}"
                Destination(form, path).write(con.sql(f"{query}{limit}").batches())
    with duckdb.connect() as own:
        own.execute(zone).fetchall()
        own.execute(f"COPY ({query}) TO '{tmp_path}/own.csv'").fetchall()
        assert (tmp_path / "3.csv").read_text() == (tmp_path / "own.csv").read_text()
        assert own.sql(f"SELECT count(*) FROM '{tmp_path}/3.parquet'").fetchall() == [(3,)]
        assert own.sql(f"FROM '{tmp_path}/0.parquet'").columns == list(values)
    rows = json.loads((tmp_path / "3.json").read_text())
    assert [list(each) for each in rows] == [list(values)] * 3
    assert json.loads((tmp_path / "0.json").read_text()) == []


def test_names_are_numbered_as_duckdb_does_it(tmp_path: Path) -> None:
    names = ["id", "id", "ID", "id_1"]
    table = pa.Table.from_arrays([pa.array([n]) for n in range(4)], names=names)
    for form in (Format.CSV, Format.JSON, Format.PARQUET):
        path = tmp_path / f"r.{form.value}"
        Destination(form, path).write(table.to_batches())
        assert duckdb.sql(f"FROM '{path}'").columns == ["id", "id_1", "ID_2", "id_1_1"]
