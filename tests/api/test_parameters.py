"""Values for the places of a text."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot import TokenType

import covey
from covey.api.parameters import sql_literal
from covey.sql.text import read_tokens
from covey.testing import PlantedModel
from effort import examples


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    model = PlantedModel(
        lambda question, documents: 0.9 if documents[0] in question else 0.1,
        lambda question, labels, documents: labels.index(documents[0]),
        fingerprint="parameters",
    )
    with covey.connect(model, progress=False) as connection:
        connection.planted = model
        connection.register("t", pa.table({"id": [1, 2, 3], "s": ["a", "b", "it's"]}))
        yield connection


@pytest.fixture(scope="module")
def plain() -> Iterator[covey.Connection]:
    with covey.connect(PlantedModel(lambda question, documents: 0.9), cache=False) as connection:
        yield connection


def test_places_by_order_number_and_name(con: covey.Connection) -> None:
    asked = "SELECT id FROM t WHERE AI.IF(PROMPT({}, s)) AND id > {} ORDER BY id"
    for text, params in (
        (asked.format("?", "?"), ["is {0} in a, it's?", 1]),
        (asked.format("$2", "$1"), (1, "is {0} in a, it's?")),
        (asked.format("$question", "$least"), {"least": 1, "question": "is {0} in a, it's?"}),
    ):
        assert con.run(text, params).fetchall() == [(3,)]
    assert {question for question, _ in con.planted.calls} == {"is {0} in a, it's?"}
    twice = con.run("SELECT $1 + $1, '?', $$?$$ -- ?\n", [-2])
    assert twice.fetchall() == [(-4, "?", "?")]
    assert con.run("SELECT 3 -?", [-1]).fetchall() == [(4,)]
    assert con.run("SELECT 1; SELECT ? ORDER BY ?; SELECT ?", ["x", 1, "y"]).fetchall() == [("y",)]
    assert con.sql("SELECT ?", [7]).explain()
    # What has places of its own is left alone.
    con.run("PREPARE q AS SELECT ? + 1; EXECUTE q(2)")


PLACES = [
    ("SELECT 2 IN ($1,$2)", [1, 2]),
    ("SELECT $1+$2", [1, 2]),
    ("SELECT [$1,$2]", [1, 2]),
    ("SELECT $a,$b", {"a": 1, "b": "x"}),
    ("SELECT $1::INT+$2::INT", ["1", 2]),
    ("SELECT ?::DATE, ?::INT", ["2020-01-01", "7"]),
    ("SELECT ?1::INT+?2::INT, ?2", [5, 6]),
    ("SELECT x[?:?], x[$1:$2] FROM (SELECT [1,2,3,4] AS x)", [2, 3]),
    ("SELECT x FROM (VALUES (-3),(4)) t(x) WHERE @x=?", [3]),
    ("SELECT @$1,@ $2", [-1, -2]),
    ("SELECT 1<$1,$2<2,1<?3", [0, 1, 2]),
    ("SELECT $A,$b,$B", {"a": 1, "B": 2}),
    ('SELECT $"a b",$é', {"a b": 1, "é": "é"}),
    ("SELECT 'é', $a, $$ $a,$b $$, $é$ $a,' $é$, '$a,$b', x$1 FROM (SELECT 1 AS x$1)", {"a": 1}),
    ("SELECT E'\\'$1,$2', $1,$2 /* $1,' /* $2 */ $3 */ -- $1,$2", [1, 2]),
    ("SELECT ?, $1, ?", [5, 6]),
    ("SELECT $3, ?, $1,$2", [5, 6, 7, 8]),
    ("SELECT $ 1,$ a", {"1": 1}),
    ("SELECT ? 1", [5]),
    ("SELECT ?,? FROM (SELECT 1) WHERE ?=1and ?", [1, 2, 1, True]),
    ("SELECT 1 WHERE ? + ? = 0.3::DOUBLE", [0.1, 0.2]),
    ("SELECT x[?::1] FROM (SELECT [1] AS x)", [1]),
    ("SELECT ??", [1, 2]),
    ("SELECT ?+$0", [1]),
]


def rows_or_none(run: Callable[[], Any]) -> Any:
    try:
        return run().fetchall()
    except (duckdb.Error, covey.CoveyError):
        return None


@pytest.mark.parametrize(("text", "params"), PLACES)
def test_places_are_those_of_duckdb(plain: covey.Connection, text: str, params: Any) -> None:
    expected = rows_or_none(lambda: duckdb.execute(text, params))
    assert rows_or_none(lambda: plain.run(text, params)) == expected
    # Without values they stay, for a PREPARE.
    if isinstance(params, list) and expected is not None and "?" not in text:
        values = ", ".join(map(sql_literal, params))
        assert plain.run(f"PREPARE p AS {text}\n; EXECUTE p({values})").fetchall() == expected


SIGNS = "$1 $2 $a $b $$ $a$ ? ?1 ?2 , + ( ) [ ] :: : ' \" é @ < -- /* */ \n 1 a INT E'\\".split(" ")


@examples(300)
@given(st.lists(st.sampled_from(SIGNS), max_size=12), st.booleans())
def test_any_text_with_places_is_as_duckdb_has_it(
    plain: covey.Connection, signs: list[str], named: bool
) -> None:
    text = "SELECT 1, " + "".join(signs)
    numbers = {str(name): int(name) for name in re.findall(r"[$?](\d)", text)}
    params: Any = {"a": 1, "b": 2} if named else [numbers[n] for n in sorted(numbers)]
    expected = rows_or_none(lambda: duckdb.execute(text, params))
    if expected is not None:
        assert rows_or_none(lambda: plain.run(text, params)) == expected


@examples(200)
@given(st.lists(st.sampled_from([*SIGNS, ";", "{", "}", "-", "\x01", "😀", "?::"]), max_size=9))
@example(["-", "$", ";{:", "$", "}"])
def test_tokens_stand_where_they_were_written(signs: list[str]) -> None:
    text = "".join(signs)
    try:
        tokens = read_tokens(text)
    except covey.QueryError:
        return
    for token in tokens:
        written = text[token.start : token.end]
        assert written
        if token.kind in (TokenType.PARAMETER, TokenType.PLACEHOLDER, TokenType.NUMBER):
            assert written == token.text


def test_labels_and_options_may_be_parameters(con: covey.Connection) -> None:
    text = "SELECT AI.CLASSIFY(s, ?) AS c FROM t ORDER BY id LIMIT ?"
    labels = ["it's", "b", "a"]
    assert con.run(text, [labels, 2]).fetchall() == [("a",), ("b",)]
    text = "SELECT id FROM t WHERE AI.IF(PROMPT('a {0}', s), threshold => $t)"
    for threshold, ids in ((0.95, []), (0.5, [1]), (1e-7, [1, 2, 3])):
        for value in (threshold, np.float64(threshold), decimal.Decimal(str(threshold))):
            assert sorted(con.run(text, {"T": value}).fetchall()) == [(i,) for i in ids]
    for wrong in (math.nan, math.inf):
        with pytest.raises(covey.QueryError, match="threshold"):
            con.run(text, {"t": wrong})


VALUES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(
        exclude_categories=["Cs"], exclude_characters="\x00")) | st.dates()
    | st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
    | st.times() | st.binary(max_size=9) | st.floats(allow_nan=False)
    | st.decimals(-(10**9), 10**9, places=3)
)  # fmt: skip


@examples(40)
@given(st.lists(VALUES, max_size=4))
def test_a_value_comes_back_as_it_went_in(plain: covey.Connection, values: list[Any]) -> None:
    text = "SELECT 0 AS zero" + ", ?" * len(values)
    assert plain.run(text, values).fetchall() == [(0, *values)]


class Level(enum.IntEnum):
    LOW = 3


class Word(enum.StrEnum):
    IT = "it's"


class Share(float):
    def __repr__(self) -> str:
        return "a share"


EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
KINDS = [
    *(0.1, 1.0, 1e22, 1e300, 1e-7, -0.0, -2.5, math.inf, -math.inf, math.nan, Share(0.5)),
    *(0, -7, 2**31, -(2**31), 2**63, -(2**63), 2**64, 2**127, -(2**127), Level.LOW, True),
    *("", "it's", Word.IT, "a\x00b", b"", b"\x00a", bytearray(b"a"), uuid.UUID(int=1), None),
    *map(decimal.Decimal, ("1.10", "1E+3", "0.00001", "-5", "NaN", "Infinity", "1" * 40)),
    datetime.date(1, 1, 1),
    datetime.datetime(2020, 1, 1, 12, tzinfo=EAST),
    datetime.time(1, 2, 3, tzinfo=EAST),
    datetime.timedelta(-1, 5),
    np.datetime64("2020-01-01"),
    np.float64(0.1),
    np.array([1, 2]),
    pd.Timestamp("2020-01-01 01:00:00"),
    pd.NaT,
    *([], [None], [1, None], (1, 2), [1, 0.5], [1, True], [1, 2**40], [Level.LOW, 1]),
    *([1, "a"], ["a", None, 2.5], [True, "x"], [1e20, "x"], [[1], ["a"]], [0.1, "x", 1]),
    [datetime.date(2020, 1, 1), "x"],
    *({}, {"a": 1, "b": [1, "x"]}, {1: 2}, {"it's": {"b": None}}, [{"a": 1}, {"b": 2}]),
]  # fmt: skip


@pytest.mark.parametrize("value", KINDS, ids=repr)
def test_a_value_has_the_type_that_duckdb_gives_it(plain: covey.Connection, value: Any) -> None:
    ((back, kind),) = duckdb.execute("SELECT $1, typeof($1)", [value]).fetchall()
    assert plain.run("SELECT typeof($1)", [value]).fetchall() == [(kind,)]
    # Not every type comes back from Arrow as from DuckDB.
    assert repr(duckdb.execute(f"SELECT {sql_literal(value)}").fetchall()) == repr([(back,)])


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
    | st.text("ab'", max_size=3)
)  # fmt: skip


@examples(60)
@given(
    st.lists(SCALARS, max_size=4)
    | st.lists(st.lists(st.integers(0, 9) | st.text("ab", max_size=1), min_size=1), max_size=3)
    | st.dictionaries(st.sampled_from("abc"), SCALARS | st.lists(SCALARS, max_size=3), max_size=3)
)
def test_lists_and_mappings_are_as_duckdb_has_them(plain: covey.Connection, value: Any) -> None:
    text = "SELECT $1, typeof($1)"
    expected = rows_or_none(lambda: duckdb.execute(text, [value]))
    if expected is not None:
        assert plain.run(text, [value]).fetchall() == expected


def test_scalars_of_numpy_that_duckdb_does_not_take(plain: covey.Connection) -> None:
    for value, back in (
        (np.uint64(2**64 - 1), (2**64 - 1, "UBIGINT")),
        (np.bool_(True), (True, "BOOLEAN")),
        (np.timedelta64(3, "s"), (datetime.timedelta(seconds=3), "INTERVAL")),
        (np.datetime64("NaT"), (None, '"NULL"')),
    ):
        assert plain.run("SELECT $1, typeof($1)", [value]).fetchall() == [back]
    fine = np.datetime64("2020-01-01T00:00:00.123456789")
    assert plain.run("SELECT $1::VARCHAR", [fine]).fetchall() == [
        ("2020-01-01 00:00:00.123456789",)
    ]


def test_other_values() -> None:
    with covey.connect(PlantedModel(lambda question, documents: 0.9), cache=False) as con:

        def back(value: Any) -> Any:
            return con.run("SELECT $v", {"v": value}).fetchall()[0][0]

        assert back(["a", None]) == ["a", None]
        assert back({"a": 1, "b": [True]}) == {"a": 1, "b": [True]}
        assert back(np.int32(5)) == 5 and back(np.float64(0.5)) == 0.5
        assert math.isnan(back(math.nan)) and back(-math.inf) == -math.inf
        assert back(datetime.timedelta(days=1, microseconds=3)) == datetime.timedelta(1, 0, 3)
        noon = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
        assert back(noon) == noon
    assert sql_literal(uuid.UUID(int=1)) == "UUID '00000000-0000-0000-0000-000000000001'"


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT ?, ?", [1], r"There is no value for \? .line 1, column 11"),
        ("SELECT $mane", {"name": 1}, r"Values are given for: \$name"),
        ("SELECT ?, $a", {"1": 1, "a": 1}, "not both"),
        ("SELECT 1, ?", None, r"no value for \? .line 1, column 11.*\s.*\s.*\s.*give it beside"),
        ("SELECT AI.IF(PROMPT($q, s)) FROM t", None, r"There is no value for \$q"),
    ],
)
def test_places_without_a_value(
    con: covey.Connection, text: str, params: Any, message: str
) -> None:
    with pytest.raises(covey.QueryError, match=message):
        con.sql(text, params)


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT ?", [1, 2], r"The value \$2 has no place"),
        ("SELECT 1", {"x": 1}, r"The value \$x has no place"),
        ("SELECT ?", "x", "list of values"),
        ("SELECT ?", 3, "list of values"),
        ("SELECT ?", [object()], "type object cannot be a parameter"),
        ("SELECT ?", [{1, 2}], "type set cannot be a parameter"),
        ("SELECT ?", [10**400], "1329 bits"),
        ("SELECT ?", [[b"a", "b"]], "texts beside a value of type bytes"),
        ("SELECT $a", {"a": 1, "A": 2}, r"Two values are named \$A"),
        ("SELECT ?", [np.timedelta64(1, "ns")], "finer than the microseconds"),
    ],
)
def test_values_without_a_place_or_a_form(
    con: covey.Connection, text: str, params: Any, message: str
) -> None:
    with pytest.raises(covey.InputError, match=message):
        con.sql(text, params)


def test_a_mistake_is_shown_where_it_was_written(con: covey.Connection) -> None:
    text = "SELECT ? AS long_value,\n  nope FROM t"
    with pytest.raises(covey.QueryError) as caught:
        con.sql(text, ["x" * 200])
    assert caught.value.sql == text
    assert caught.value.span == (text.index("nope"), text.index("nope") + 4)


def test_a_mistake_in_a_value_is_shown_at_its_place(con: covey.Connection) -> None:
    text = "SELECT AI.IF(PROMPT(?)), 1 AS one FROM t"
    with pytest.raises(covey.QueryError, match="is plain text here") as caught:
        con.sql(text, ["Is {s} long? " * 9])
    assert caught.value.span == (text.index("?"), text.index("?") + 1)
