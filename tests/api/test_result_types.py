"""A result is what DuckDB gives in each form, or is refused before anything is asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

import covey
from api.typed_values import NESTINGS, VALUES, expressions
from covey.api.results import ARROW, PANDAS, POLARS, ROWS, Form
from covey.errors import InputError, RunError
from covey.execution.arrow_types import distinct_names
from covey.sql.text import quote_name
from covey.testing import PlantedModel

# Of these Arrow has none: the text is given.
AS_TEXT = re.compile(r"UHUGEINT|\bBIT\b|TIME WITH TIME ZONE|ENUM\([^)]*\)(?=\[\d)")
ASK = "SELECT AI.SCORE(PROMPT('Late? {{0}}', body)) AS s, {} FROM t"


def connect(**options: Any) -> tuple[PlantedModel, covey.Connection]:
    model = PlantedModel(lambda question, documents: 0.5)
    con = covey.connect(model=model, cache=False, progress=False, **options)
    con.duckdb.execute("CREATE TABLE t AS SELECT 'a parcel' AS body")
    return model, con


def own_connection() -> duckdb.DuckDBPyConnection:
    own = duckdb.connect()
    own.execute("SET TimeZone = 'America/New_York'").fetchall()
    return own


def fits(form: Form, kind: Any) -> bool:
    try:
        form.check([("a", kind)])
    except InputError:
        return False
    return True


def reads(read: Callable[[], Any]) -> bool:
    try:
        read()
    except (duckdb.NotImplementedException, polars.exceptions.ComputeError):
        return False
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return False
    return True


def as_arrow(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    """DuckDB's Arrow table, with text in place of what that cannot hold."""
    columns = [
        f"#{place}::{AS_TEXT.sub('VARCHAR', str(kind))} AS {quote_name(name)}"
        for place, (kind, name) in enumerate(zip(relation.types, relation.columns, strict=True), 1)
    ]
    return relation.project(", ".join(columns)).to_arrow_table()


def test_every_type_of_duckdb_is_looked_at() -> None:
    known = duckdb.sql("SELECT DISTINCT logical_type FROM duckdb_types()").fetchall()
    assert {name for (name,) in known} <= set(VALUES)


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_form_refuses_the_types_that_duckdb_refuses(nesting: str) -> None:
    own = own_connection()
    for title, expression in expressions(nesting).items():
        relation = own.sql(f"SELECT {expression} AS a")
        (kind,) = relation.types
        for form, read in (
            (ROWS, relation.fetchall),
            (PANDAS, relation.df),
            (POLARS, relation.pl),
            (ARROW, relation.to_arrow_table),
        ):
            assert fits(form, kind) == reads(read), f"{title} as {form.name}"


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("limit", ["", " LIMIT 0"])
def test_a_form_has_the_values_of_duckdb(nesting: str, limit: str) -> None:
    own = own_connection()
    _, con = connect()
    con.run("SET TimeZone = 'America/New_York'")
    kinds = {
        title: (expression, own.sql(f"SELECT {expression} AS a").types[0])
        for title, expression in expressions(nesting).items()
    }

    def query(form: Form) -> str:
        chosen = {"one": "1"} | {t: e for t, (e, kind) in kinds.items() if fits(form, kind)}
        names = [quote_name(title) for title in chosen]
        values = ", ".join(f"({v})" for v in chosen.values())
        nulls = ", ".join("NULL" for _ in chosen)
        rows = f"VALUES ({values}), ({nulls}), ({values})"
        return f"SELECT * FROM ({rows}) AS v({', '.join(names)}){limit}"

    rows = query(ROWS)
    assert repr(con.sql(rows).fetchall()) == repr(own.sql(rows).fetchall())
    assert con.sql(rows).schema == list(
        zip(own.sql(rows).columns, map(str, own.sql(rows).types), strict=True)
    )
    pandas = query(PANDAS)
    found, wanted = con.sql(pandas).df(), own.sql(pandas).df()
    assert_frame_equal(found, wanted)
    arrow = con.sql(query(ARROW))
    table = arrow.arrow()
    assert table.schema.equals(as_arrow(own.sql(query(ARROW))).schema)
    assert repr(table.to_string()) == repr(as_arrow(own.sql(query(ARROW))).to_string())
    batches = list(con.sql(query(ARROW)).batches())
    assert pa.Table.from_batches(batches).schema.equals(table.schema)
    assert repr(pa.Table.from_batches(batches).to_string()) == repr(table.to_string())
    frame = con.sql(query(POLARS)).pl()
    assert frame.equals(polars.from_arrow(as_arrow(own.sql(query(POLARS)))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "column", "message"),
    [
        ("pl", "INTERVAL '1' DAY AS d", "'d' is of type INTERVAL, which a polars frame cannot"),
        ("pl", "[INTERVAL '1' DAY] AS d", r"INTERVAL \(INTERVAL\[\]\), which a polars frame"),
        ("pl", "union_value(k := 1) AS d", r"'d' is of type UNION\(k INTEGER\)"),
        ("df", "TIMETZ '10:00:00+02' AS d", "TIME WITH TIME ZONE, which a pandas frame cannot"),
        ("df", "1::UHUGEINT AS d", "'d' is of type UHUGEINT"),
        ("fetchall", "MAP {1::BIGNUM: 1} AS d", "BIGNUM .* which a Python value cannot"),
        ("arrow", "get_type(1) AS d", "'d' is of type TYPE"),
        ("run", "get_type(1) AS d", "'d' is of type TYPE"),
        ("batches", "get_type(1) AS d", "'d' is of type TYPE"),
        ("early", "get_type(1) AS d", "'d' is of type TYPE"),
    ],
)
def test_what_has_no_place_in_a_form_is_refused_before_anything_is_asked(
    form: str, column: str, message: str
) -> None:
    model, con = connect()
    query = con.sql(ASK.format(column))
    read = {
        "batches": lambda: next(query.batches()),
        "early": lambda: next(query.batches(early=True)),
    }.get(form) or getattr(query, form)
    with pytest.raises(InputError, match=message):
        read()
    assert not model.calls
    if form in ("pl", "df", "fetchall"):
        # Another form is read from the same query, asked once; then it is refused as before.
        assert query.arrow().num_rows == 1
        with pytest.raises(InputError, match=message):
            read()
        assert len(model.calls) == 1


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_said_before_anything_is_asked(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, con = connect()
    monkeypatch.setattr("covey.api.results.find_spec", lambda name: None)
    query = con.sql(ASK.format("1 AS one"))
    with pytest.raises(InputError, match=f"needs {package}: pip install {package}"):
        (query.df if package == "pandas" else query.pl)()
    assert not model.calls


def test_what_shows_only_behind_a_statement_is_refused_and_the_result_kept() -> None:
    _, con = connect()
    con.run("CREATE TABLE d (i INTERVAL)")
    query = con.sql("INSERT INTO d VALUES (INTERVAL '1' DAY) RETURNING i")
    with pytest.raises(InputError, match="'i' is of type INTERVAL"):
        query.pl()
    assert query.arrow().num_rows == 1
    assert con.sql("SELECT count(*) FROM d").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        ("df", "'infinity'::DATE", "a pandas frame can hold: Could not convert DATE"),
        ("pl", "MAP {TIME '24:00:00': 1}", "a polars frame can hold: Map keys cannot be null"),
    ],
)
def test_a_value_without_a_place_leaves_the_result_to_be_read_otherwise(
    form: str, value: str, message: str
) -> None:
    model, con = connect()
    query = con.sql(ASK.format(f"{value} AS d"))
    with pytest.raises(RunError, match=message):
        getattr(query, form)()
    own = duckdb.sql(f"SELECT {value} AS d")
    assert query.fetchall() == [(0.5, own.fetchall()[0][0])]
    assert query.arrow()["d"].equals(own.to_arrow_table()["d"])
    assert len(model.calls) == 1


NAMES = [
    ["id", "id", "ID", "id_1"],
    ["a_1", "a", "a", "a_2", "a"],
    ["a", "A"],
    ["a\nb", "A\nB", 'x"y', 'x"Y'],
    ["1", "1"],
]


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_equal_names_are_numbered_where_duckdb_does(names: list[str]) -> None:
    columns = ", ".join(f"{place} AS {quote_name(name)}" for place, name in enumerate(names))
    query, own = f"SELECT {columns}", own_connection()
    _, con = connect()
    assert con.sql(query).columns == con.sql(query).arrow().column_names == names
    assert next(con.sql(query).batches()).schema.names == names
    assert list(con.sql(query).df().columns) == list(own.sql(query).df().columns)
    assert con.sql(query).pl().columns == own.sql(query).pl().columns
    assert distinct_names(names) == own.sql(query).pl().columns
