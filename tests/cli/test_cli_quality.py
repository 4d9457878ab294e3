"""`covey bench quality` on planted answers: the tables say what was planted."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import covey
from covey.cli.quality import CLASSIFY, JUDGE, LABELS, measure
from covey.testing import PlantedModel

TICKETS = Path(__file__).parents[2] / "examples" / "tickets.csv"
TOPICS = {row["body"]: row["topic"] for row in csv.DictReader(TICKETS.open(encoding="utf-8"))}


def answer(question: str, documents: tuple[str, ...]) -> float:
    return 0.9 if "refund" in documents[0].lower() else 0.2


def label(question: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> int:
    right = TOPICS.get(documents[0]) or LABELS[0]
    return labels.index(right if len(documents[0]) % 2 else LABELS[0])


@pytest.fixture
def con() -> Iterator[covey.Connection]:
    with covey.connect(model=PlantedModel(answer, label), progress=False) as connection:
        yield connection


def test_every_way_is_measured_against_the_hand_labels(con: covey.Connection) -> None:
    text = measure(con, str(TICKETS), 40)
    topics, judgements = text.split("\n\n")
    assert "one of 6" in topics
    rows = [line for line in topics.splitlines() if re.match(r"trie|stepwise|letters", line)]
    assert len(rows) == len(CLASSIFY)
    shares = {tuple(line.split()[-2:]) for line in rows}
    assert len(shares) == 1, "planted answers do not depend on the way"
    right = [
        (topic, label("", LABELS, (body,)))
        for body, topic in con.run(
            "SELECT body, topic FROM (FROM tickets WHERE language = 'en' AND created >= "
            "DATE '2026-07-01' AND body IS NOT NULL ORDER BY id LIMIT 40) WHERE topic IS NOT NULL"
        ).fetchall()
    ]
    agree = sum(LABELS[number] == topic for topic, number in right) / len(right)
    assert rows[0].split()[-2] == f"{agree:.0%}"
    assert judgements.count("labelled  ") == judgements.count("prior  ") == 3
    assert len(judgements.splitlines()) == 3 + 3 * len(JUDGE) + 2
