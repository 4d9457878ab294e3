"""Values for the places of a text."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import covey
from covey.api.parameters import sql_literal
from covey.testing import PlantedModel


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    model = PlantedModel(
        lambda question, documents: 0.9 if documents[0] in question else 0.1,
        lambda question, labels, documents: labels.index(documents[0]),
        fingerprint="parameters",
    )
    with covey.connect(model, progress=False) as connection:
        connection.model = model
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
    assert {question for question, _ in con.model.calls} == {"is {0} in a, it's?"}
    twice = con.run("SELECT $1 + $1, '?', $$?$$ -- ?\n", [-2])
    assert twice.fetchall() == [(-4, "?", "?")]
    assert con.run("SELECT 3 -?", [-1]).fetchall() == [(4,)]
    assert con.run("SELECT 1; SELECT ? ORDER BY ?; SELECT ?", ["x", 1, "y"]).fetchall() == [("y",)]
    assert con.sql("SELECT ?", [7]).explain()
    # What has places of its own is left alone.
    con.run("PREPARE q AS SELECT ? + 1; EXECUTE q(2)")


def test_labels_and_options_may_be_parameters(con: covey.Connection) -> None:
    text = "SELECT AI.CLASSIFY(s, ?) AS c FROM t ORDER BY id LIMIT ?"
    labels = ["it's", "b", "a"]
    assert con.run(text, [labels, 2]).fetchall() == [("a",), ("b",)]
    text = "SELECT id FROM t WHERE AI.IF(PROMPT('a {0}', s), threshold => $t)"
    assert con.run(text, {"t": 0.95}).fetchall() == []


VALUES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(
        exclude_categories=["Cs"], exclude_characters="\x00")) | st.dates()
    | st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
    | st.times() | st.binary(max_size=9) | st.floats(allow_nan=False)
    | st.decimals(-(10**9), 10**9, places=3)
)  # fmt: skip


@settings(max_examples=40)
@given(st.lists(VALUES, max_size=4))
def test_a_value_comes_back_as_it_went_in(plain: covey.Connection, values: list[Any]) -> None:
    text = "SELECT 0 AS zero" + ", ?" * len(values)
    assert plain.run(text, values).fetchall() == [(0, *values)]


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
    assert sql_literal(decimal.Decimal("1E+3")) == "1000"
    assert sql_literal(uuid.UUID(int=1)) == "UUID '00000000-0000-0000-0000-000000000001'"


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT ?, ?", [1], r"There is no value for \? .line 1, column 11"),
        ("SELECT $mane", {"name": 1}, r"Values are given for: \$name"),
        ("SELECT ?, $1", [1], "not both"),
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
