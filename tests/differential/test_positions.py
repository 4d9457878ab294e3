"""AI calls wherever an expression may stand; see `differential.positions`."""

from __future__ import annotations

import pytest

from differential.positions import CHANGES, QUERIES, ways
from differential.statements import Statements
from effort import THOROUGH

NUMBERS = range(5) if THOROUGH else (None,)
pytestmark = pytest.mark.fuzz


def statements_of(text: str) -> list[str]:
    """Each line in one way, which differs from line to line, or in every way."""
    return [
        ways(line, place if number is None else number)
        for place, line in enumerate(text.strip().splitlines())
        for number in NUMBERS
    ]


@pytest.mark.parametrize("query", statements_of(QUERIES))
def test_a_query_gives_what_duckdb_gives(statements: Statements, query: str) -> None:
    assert statements.check(query) is None


@pytest.mark.parametrize("change", statements_of(CHANGES))
def test_a_change_does_what_duckdb_does(statements: Statements, change: str) -> None:
    statement, _, shown = change.rpartition("|")
    assert statements.check(statement, then=shown) is None
