"""Golden plans: what is loaded, what is asked in which order, and what runs on demand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

GOLDEN = Path(__file__).with_name("plans.sql")


@pytest.fixture(scope="module")
def connection():
    with covey.connect(model=PlantedModel(lambda question, documents: 1.0)) as con:
        bodies = ["one", "two", None, "four"]
        con.register("t", pa.table({"id": [1, 2, 3, 4], "k": [1, 1, 2, 2], "body": bodies}))
        con.register("p", pa.table({"pid": [1, 2, 3], "k": [1, 2, 3], "text": ["a", "b", "c"]}))
        yield con


def read_golden() -> tuple[str, list[tuple[str, str, str]]]:
    """The head of the file, and (title, statement, plan) of each paragraph."""
    head, *paragraphs = GOLDEN.read_text().split("\n\n# ")
    cases = []
    for paragraph in paragraphs:
        title, _, rest = paragraph.partition("\n")
        statement, _, plan = f"{rest}\n".partition("\n----\n")
        cases.append((title, statement, plan.strip("\n")))
    return head.strip("\n"), cases


def steps(explained: str) -> str:
    """The plan without the list of figures below it."""
    return explained.partition("\n\nexpected")[0]


def test_plans_are_as_written(connection, request):
    head, cases = read_golden()
    plans = [steps(connection.explain(statement)) for _, statement, _ in cases]
    if request.config.getoption("--update-golden"):
        paragraphs = [
            f"# {title}\n{statement}\n----\n{plan}"
            for (title, statement, _), plan in zip(cases, plans, strict=True)
        ]
        GOLDEN.write_text("\n\n".join([head, *paragraphs]) + "\n")
        return
    assert cases
    for (title, _, expected), plan in zip(cases, plans, strict=True):
        assert plan == expected, title
