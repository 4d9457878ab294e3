"""Every mistake a user can make in SQL, with the whole message.

The files in golden/ are read by people too: a title, the SQL, the kind of error and its
text. `pytest --update-golden` writes what Covey says now; the difference is the review.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import covey
from covey.testing import PlantedModel

GOLDEN = Path(__file__).parent / "golden"
CASE = re.compile(
    r"^## (?P<title>[^\n]+)\n(?P<sql>.*?)^---- (?P<kind>\w+)\n(?P<message>.*?)(?=^## |\Z)",
    re.MULTILINE | re.DOTALL,
)


def answer(question: str, documents: tuple[str, ...]) -> float:
    return 0.9


def label(question: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> int:
    return 0


@pytest.fixture(scope="module")
def con() -> Iterator[covey.Connection]:
    with covey.connect(model=PlantedModel(answer, label), progress=False) as connection:
        connection.run(
            "CREATE TABLE tickets (id INTEGER, body VARCHAR, product VARCHAR, raw BLOB);"
            "INSERT INTO tickets VALUES (1, 'hello', 'pump', 'x'::BLOB);"
            'CREATE TABLE orders (id INTEGER, "the text" VARCHAR, product VARCHAR);'
            "CREATE VIEW refunds AS SELECT id, body FROM tickets WHERE AI.IF(body)"
        )
        yield connection


def outcome(con: covey.Connection, sql: str) -> tuple[str, str]:
    """The kind of error and its text, or "rows" and the result."""
    try:
        return "rows", "\n".join(map(str, con.sql(sql).fetchall()))
    except covey.CoveyError as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("sql_*.txt")), ids=lambda path: path.stem)
def test_messages_are_those_of_the_golden_file(
    con: covey.Connection, path: Path, pytestconfig: pytest.Config
) -> None:
    written = path.read_text(encoding="utf-8")
    cases = list(CASE.finditer(written))
    assert "".join(case[0] for case in cases) == written, "a case is malformed"
    blocks = []
    for case in cases:
        kind, message = outcome(con, case["sql"].removesuffix("\n"))
        blocks.append(f"## {case['title']}\n{case['sql']}---- {kind}\n{message}\n")
    now = "\n".join(blocks)
    if pytestconfig.getoption("--update-golden"):
        path.write_text(now, encoding="utf-8")
    assert now == path.read_text(encoding="utf-8")
