"""Errors and results go to other processes as they are, and connections say that they cannot."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import covey
from covey.errors import BudgetError, CoveyError, InputError, QueryError, UnsupportedError
from covey.testing import PlantedModel

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "old pickle": lambda thing: pickle.loads(pickle.dumps(thing, protocol=2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def all_kinds(kind: type[CoveyError] = CoveyError) -> Iterator[type[CoveyError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from all_kinds(each)


def every_module() -> None:
    """Import the modules that define errors, so that each kind is known."""
    for found in pkgutil.walk_packages(covey.__path__, "covey."):
        if ".kernels" not in found.name and not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def examples(kind: type[CoveyError]) -> list[CoveyError]:
    if not issubclass(kind, QueryError):
        return [kind("It is wrong.\nMend it."), kind("half \ud83d of a pair"), kind()]
    return [
        kind("No such column"),
        kind("No such column", sql="SELECT\n  x", span=(9, 10), hint="Did you mean y?"),
        kind("Half \ud83d of a pair", sql="SELECT '\ud83d'", span=(7, 10), done="Rows went."),
    ]


def raise_query_error(sql: str) -> None:
    raise QueryError("No such column", sql=sql, span=(7, 8), hint="Did you mean y?")


@pytest.mark.parametrize("way", COPIES)
def test_every_error_is_the_same_when_it_is_copied(way: str) -> None:
    every_module()
    kinds = list(all_kinds())
    assert {CoveyError, QueryError, UnsupportedError, BudgetError, InputError} <= set(kinds)
    for kind in kinds:
        for error in examples(kind):
            error.add_note("Further, this.")
            same = COPIES[way](COPIES[way](error))
            assert type(same) is kind
            assert str(same) == str(error)
            assert vars(same) == vars(error)
            assert traceback.format_exception_only(same) == traceback.format_exception_only(error)


def test_an_error_says_its_words_once_when_it_is_located_twice() -> None:
    with covey.connect(model=PlantedModel(lambda q, d: 0.5), cache=False) as con:
        con.run("CREATE TABLE t AS SELECT 'a' AS body")
        con.run("CREATE VIEW v AS SELECT body, AI.IF(PROMPT('x {0}', body)) AS r FROM t")
        with pytest.raises(QueryError) as caught:
            con.sql("SELECT AI.IF(PROMPT('y {0}', bdy)) FROM v")
    assert str(caught.value).count("No model call was made.") == 1
    assert COPIES["pickle"](caught.value).done == caught.value.done


def test_an_error_comes_out_of_another_process() -> None:
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with pool, pytest.raises(QueryError) as caught:
        pool.submit(raise_query_error, "SELECT x").result(100)
    assert str(caught.value).splitlines() == [
        "No such column (line 1, column 8)",
        "    SELECT x",
        "           ^",
        "Did you mean y?",
        "No model call was made.",
    ]
    assert caught.value.span == (7, 8)


@pytest.mark.parametrize("way", COPIES)
def test_what_a_query_gives_can_be_copied_and_a_connection_says_that_it_cannot(way: str) -> None:
    with covey.connect(model=PlantedModel(lambda q, d: 0.5), cache=False) as con:
        con.run("CREATE TABLE t AS SELECT * FROM (VALUES ('a', true), ('b', false)) t(body, label)")
        con.run("INSERT INTO t FROM t")
        query = con.sql("SELECT AI.IF(PROMPT('x {0}', body)) FROM t")
        given = [query.estimate(), query.report, query.arrow(), query.df(), query.schema]
        for thing in [*given, con.calibrate("x {body}", "t"), covey.CacheOptions()]:
            same = COPIES[way](thing)
            assert type(same) is type(thing)
            if dataclasses.is_dataclass(thing):
                assert str(same) == str(thing)
        with pytest.raises(InputError, match="cannot be pickled or copied"):
            COPIES[way](con)
        if way != "copy":
            for tied in (query, con.table("t")):
                with pytest.raises(InputError, match="query that is tied to it"):
                    COPIES[way](tied)
