"""`covey bench quality` on planted answers: the tables say what was planted."""

from __future__ import annotations

import csv
import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import covey
from covey.errors import InputError
from covey.testing import PlantedModel
from quality import CLASSIFY, JUDGE, LABELS, measure, measure_snippets, read_snippets

TICKETS = Path(__file__).parents[2] / "examples" / "tickets.csv"
TOPICS = {row["body"]: row["topic"] for row in csv.DictReader(TICKETS.open(encoding="utf-8"))}


def answer(question: str, documents: tuple[str, ...]) -> float:
    return 0.9 if "refund" in documents[0].lower() else 0.2


def label(question: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> int:
    if "positive" in labels:
        return labels.index("positive" if "refund" in documents[0] else "negative")
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


def write_package(path: Path, lines: list[str]) -> Path:
    """A package as vaderSentiment's source is laid out, with sentences of our own."""
    ratings = "\r\n".join(lines).encode()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as files:
        for name in (
            "._movieReviewSnippets_GroundTruth.txt",
            "movieReviewSnippets_GroundTruth.txt",
        ):
            entry = tarfile.TarInfo(f"hutto_ICWSM_2014/{name}")
            content = b"\0" if name.startswith("._") else ratings
            entry.size = len(content)
            files.addfile(entry, io.BytesIO(content))
    with zipfile.ZipFile(path, "w") as package:
        package.writestr("v/additional_resources/hutto_ICWSM_2014.tar.gz", archive.getvalue())
    return path


def test_rated_sentences_are_measured_from_the_package(
    con: covey.Connection, tmp_path: Path
) -> None:
    lines = []
    for i in range(200):
        # As in the package: what is liked comes first.
        rating = 0.1 if i % 3 == 2 else 1.5 if i < 100 else -2.0
        told = "a refund of joy" if rating > 0 else "a dull evening"
        lines.append(f"{i}\t{rating}\tSentence number {i} of a long review tells of {told}")
    path = write_package(tmp_path / "package.zip", lines)
    table = read_snippets(str(path))
    assert table.num_rows == 200 and table["rating"][100].as_py() == -2.0
    text = measure_snippets(con, str(path), 50)
    rows = [line for line in text.splitlines() if line.startswith("TRUE and FALSE")]
    assert len(rows) == len(JUDGE)
    # What is planted is right for every sentence that is rated clearly.
    assert {tuple(row.split()[-5:]) for row in rows if "labelled" not in row} == {
        ("50", "100%", rows[0].split()[-3], "100%", "1.00")
    }
    assert sum(line.startswith("two labels") for line in text.splitlines()) == len(CLASSIFY) - 1


@pytest.mark.parametrize("content", [b"no zip", None])
def test_another_package_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "package.zip"
    if content is not None:
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as package:
            package.writestr("setup.py", "")
    with pytest.raises(InputError, match="is not the source package of vaderSentiment"):
        read_snippets(str(path))
