"""The example data keep what examples/README.md promises about them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TICKETS = EXAMPLES / "tickets.csv"
TOPICS = {"billing", "bug report", "shipping", "account access", "feature request", "praise"}
PRODUCTS = {"Emberpot", "Dustling", "Glimmerpost", "Tallywren", "Nookvault"}
# Chinese and Japanese are written without spaces: there a character counts as a word.
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")
SPEAKS_OF_MONEY_BACK = re.compile(
    r"refund|money back|chargeback|credit note|rembours|rimborso", re.IGNORECASE
)


class Ticket(NamedTuple):
    id: int
    created: object
    product: str
    channel: str
    body: str | None
    wants_refund: bool | None
    is_angry: bool | None
    mentions_bug: bool | None
    topic: str | None
    language: str | None

    @property
    def labels(self) -> tuple[object, ...]:
        return self[5:]

    @property
    def has_text(self) -> bool:
        return self.body is not None and bool(self.body.strip())


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def tickets(con: duckdb.DuckDBPyConnection) -> list[Ticket]:
    rows = con.execute(f"SELECT * FROM '{TICKETS}'").fetchall()
    return [Ticket(*row) for row in rows]


@pytest.fixture(scope="module")
def written(tickets: list[Ticket]) -> list[tuple[Ticket, str]]:
    """The tickets that say something, with their text."""
    return [(t, t.body) for t in tickets if t.body is not None and t.body.strip()]


def columns(con: duckdb.DuckDBPyConnection, name: str) -> dict[str, str]:
    described = con.execute(f"DESCRIBE SELECT * FROM '{EXAMPLES / name}'").fetchall()
    return {row[0]: row[1] for row in described}


def test_duckdb_sniffs_the_types_of_all_columns(con: duckdb.DuckDBPyConnection) -> None:
    assert columns(con, "tickets.csv") == {
        "id": "BIGINT",
        "created": "DATE",
        "product": "VARCHAR",
        "channel": "VARCHAR",
        "body": "VARCHAR",
        "wants_refund": "BOOLEAN",
        "is_angry": "BOOLEAN",
        "mentions_bug": "BOOLEAN",
        "topic": "VARCHAR",
        "language": "VARCHAR",
    }
    assert columns(con, "orders.csv") == {
        "id": "BIGINT",
        "ticket_id": "BIGINT",
        "amount": "DOUBLE",
        "ordered": "DATE",
        "country": "VARCHAR",
    }
    assert columns(con, "policies.csv") == {"id": "BIGINT", "title": "VARCHAR", "text": "VARCHAR"}


def test_duckdb_reads_every_body_as_the_csv_module_does(tickets: list[Ticket]) -> None:
    with TICKETS.open(newline="", encoding="utf-8") as file:
        plain = {int(row["id"]): row["body"] for row in csv.DictReader(file)}
    assert {t.id: t.body or "" for t in tickets} == plain
    assert any("\n" in body for body in plain.values())


def test_empty_text_is_null_by_default_and_kept_on_demand(
    con: duckdb.DuckDBPyConnection,
) -> None:
    counts = """count(*) FILTER (body IS NULL), count(*) FILTER (body = ''),
        count(*) FILTER (body <> '' AND trim(body, E' \\n') = '')"""
    default = con.execute(f"SELECT {counts} FROM '{TICKETS}'").fetchone()
    exact = con.execute(
        f"SELECT {counts} FROM read_csv('{TICKETS}', allow_quoted_nulls = false)"
    ).fetchone()
    assert default == (7, 0, 3)
    assert exact == (5, 2, 3)


def test_ids_are_unique_and_dates_span_the_period(tickets: list[Ticket]) -> None:
    assert len(tickets) >= 240
    assert len({t.id for t in tickets}) == len(tickets)
    months = Counter(str(t.created)[:7] for t in tickets)
    assert min(months) == "2025-10"
    assert max(months) == "2026-11"
    assert len(months) == 14
    assert min(months.values()) >= 10
    assert {t.product for t in tickets} == PRODUCTS


def test_a_ticket_is_labelled_exactly_if_it_has_text(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        given = {label is not None for label in ticket.labels}
        assert given == {ticket.has_text}, ticket.id
    assert {t.topic for t in tickets if t.has_text} == TOPICS


def test_classes_are_balanced(written: list[tuple[Ticket, str]]) -> None:
    total = len(written)
    assert 0.35 <= sum(bool(t.wants_refund) for t, _ in written) / total <= 0.45
    assert 0.15 <= sum(bool(t.is_angry) for t, _ in written) / total <= 0.35
    assert 0.20 <= sum(bool(t.mentions_bug) for t, _ in written) / total <= 0.40
    assert min(Counter(t.topic for t, _ in written).values()) >= 30
    languages = Counter(t.language for t, _ in written)
    assert len(languages) >= 8
    assert languages["en"] < 0.85 * total


def test_lengths_run_from_15_to_400_words(written: list[tuple[Ticket, str]]) -> None:
    lengths = sorted(len(WORD.findall(body)) for _, body in written)
    assert lengths[0] >= 15
    assert lengths[-1] <= 400
    assert sum(30 <= n <= 120 for n in lengths) > len(lengths) / 2
    assert sum(n > 200 for n in lengths) >= 20
    assert sum(n > 350 for n in lengths) >= 4


def test_refunds_are_also_spoken_of_where_none_is_wanted(
    written: list[tuple[Ticket, str]],
) -> None:
    """A word search must not be able to answer the question."""
    spoken = [t.wants_refund for t, body in written if SPEAKS_OF_MONEY_BACK.search(body)]
    silent = [t.wants_refund for t, body in written if not SPEAKS_OF_MONEY_BACK.search(body)]
    assert spoken.count(False) >= 12
    assert silent.count(True) >= 12


@pytest.mark.parametrize(
    "mark",
    [
        "{order_id}",
        "{{invoice.year}}",
        "{0}",
        '{"level"',
        "<div ",
        "C:\\\\Users",
        "<|im_end|>",
        "ANSWER: TRUE",
        "“",
        "\u2019",
        "🙃",
        "返金",
        "السلام",
        "מגדל",
        "---- Original message ----",
    ],
)
def test_awkward_text_is_there(written: list[tuple[Ticket, str]], mark: str) -> None:
    assert any(mark in body for _, body in written)


def test_some_bodies_are_repeated_with_equal_labels(written: list[tuple[Ticket, str]]) -> None:
    labels: dict[str, list[tuple[object, ...]]] = {}
    for ticket, body in written:
        labels.setdefault(body, []).append(ticket.labels)
    repeated = [given for given in labels.values() if len(given) > 1]
    assert len(repeated) >= 3
    assert all(len(set(given)) == 1 for given in repeated)


def test_some_different_bodies_share_a_long_opening(written: list[tuple[Ticket, str]]) -> None:
    bodies = {body for _, body in written}
    openings = Counter(body[:400] for body in bodies if len(body) > 400)
    assert sum(n > 1 for n in openings.values()) >= 2


def test_orders_belong_to_tickets_and_precede_them(con: duckdb.DuckDBPyConnection) -> None:
    orders = f"'{EXAMPLES / 'orders.csv'}'"
    rows = con.execute(f"""
        SELECT count(*), count(DISTINCT o.id), bool_and(o.ordered <= t.created),
               bool_and(o.amount > 0), bool_and(regexp_full_match(o.country, '[A-Z]{{2}}'))
        FROM {orders} AS o JOIN '{TICKETS}' AS t ON t.id = o.ticket_id""").fetchone()
    total = con.execute(f"SELECT count(*) FROM {orders}").fetchone()
    assert rows is not None and total is not None
    assert rows[0] == rows[1] == total[0] >= 140
    assert rows[2:] == (True, True, True)
    per_ticket = con.execute(f"""
        SELECT count(o.id) FROM '{TICKETS}' AS t LEFT JOIN {orders} AS o ON t.id = o.ticket_id
        GROUP BY t.id""").fetchall()
    counts = Counter(row[0] for row in per_ticket)
    assert set(counts) == {0, 1, 2}
    assert min(counts[0], counts[2]) >= 5


def test_policies_are_short_statements(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(f"SELECT * FROM '{EXAMPLES / 'policies.csv'}'").fetchall()
    assert len(rows) >= 25
    assert len({row[0] for row in rows}) == len({row[1] for row in rows}) == len(rows)
    assert all(10 <= len(text.split()) <= 60 for _, _, text in rows)
