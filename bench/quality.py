"""`covey bench quality`: answers against labels that people gave, way by way.

    covey bench quality --model MODEL --rows 68
    covey bench quality --movie-reviews vaderSentiment-0.5.zip

The second measures sentences of movie reviews with people's ratings, from the source package of
vaderSentiment 0.5: 10,605 sentences, each rated from -4 to 4 by twenty people (Hutto and Gilbert,
ICWSM 2014). It is read where it lies; Covey brings none of it.

    pip download --no-binary :all: --no-deps vaderSentiment==0.5
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import covey
from covey.cli.agreement import figures
from covey.cli.checkout import in_checkout
from covey.cli.demo import DEMO_MODEL, QUESTIONS, ROWS, TICKETS
from covey.cli.guard import connected, ended
from covey.cli.table import render
from covey.errors import InputError
from covey.sql.text import quote_text

# Examples and calibration come from tickets that are not measured.
OTHERS = "language = 'en' AND created < DATE '2026-07-01'"
LABELS = ("billing", "bug report", "shipping", "account access", "feature request", "praise")
TASK = "What is the message mainly about?"
# Longest text shown as an example, in characters: all rows attend to it.
_SHORT = 400
# Rows that a calibration is learned from.
_LEARNED = 80
LIKED = "Does the writer of this sentence like the film?"
SIDES = ("positive", "negative")
SIDES_TASK = "Is this sentence from a film review positive or negative?"
# A sentence whose mean rating is nearer to 0 says neither.
_CLEAR = 0.5
_ARCHIVE = "hutto_ICWSM_2014.tar.gz"
_RATINGS = "movieReviewSnippets_GroundTruth.txt"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask; `method` is "" for TRUE and FALSE."""

    method: str
    calibration: str = ""
    examples: bool = False

    def options(self, examples: str) -> str:
        """The options of a call, with a comma before each."""
        named = [f"method => '{self.method}'"] if self.method else []
        if self.calibration:
            named.append(f"calibration => '{self.calibration}'")
        if self.examples:
            named.append(f"examples => {examples}")
        return "".join(f", {option}" for option in named)

    @property
    def shown(self) -> tuple[str, str]:
        return self.calibration or "-", "yes" if self.examples else "-"


CLASSIFY = (
    Way("trie"),
    Way("stepwise"),
    Way("letters"),
    Way("trie", "prior"),
    Way("letters", "prior"),
    Way("trie", examples=True),
    Way("letters", examples=True),
    Way("trie", "prior", True),
)
JUDGE = (Way(""), Way("", "prior"), Way("", "labelled"), Way("", examples=True))


def measure(con: covey.Connection, path: str, rows: int) -> str:
    """Both tables, as text.

    Args:
        con: a connection whose model is measured.
        path: the example tickets.
        rows: how many tickets are measured, the first in order of `id`.
    """
    con.register("tickets", path)
    measured = f"(FROM tickets WHERE {ROWS} AND body IS NOT NULL ORDER BY id LIMIT {rows})"
    return f"{_topics(con, measured)}\n\n{_judgements(con, measured)}"


def measure_snippets(con: covey.Connection, path: str, rows: int) -> str:
    """Whether sentences of movie reviews are judged as people rated them, as text.

    Args:
        con: a connection whose model is measured.
        path: see `read_snippets`.
        rows: how many sentences are measured, spread evenly over the file. Examples and
            calibration come from others.
    """
    con.register("snippets", read_snippets(path))
    con.run(
        # Ids are shuffled by a multiplier modulo a prime (Fishman and Moore, 1986).
        "CREATE OR REPLACE TEMP TABLE rated AS SELECT *, rating > 0 AS liked, row_number() OVER "
        "(ORDER BY id * 742938285 % 2147483647) AS place FROM snippets "
        f"WHERE abs(rating) >= {_CLEAR}"
    )
    con.run(
        f"CREATE OR REPLACE TEMP TABLE others AS FROM rated WHERE place > {rows} "
        f"ORDER BY place LIMIT {_LEARNED}"
    )
    measured = f"(FROM rated WHERE place <= {rows})"
    lines = [("TRUE and FALSE", *line) for line in _liked(con, measured)]
    lines += [("two labels", *line) for line in _sides(con, measured)]
    names = ["asked for", "method", "calibration", "examples", "sentences", "agree", "commoner"]
    return (
        f"{LIKED} Sentences of movie reviews whose mean rating is {_CLEAR} or more from 0:\n"
        + render([*names, "balanced", "AUC"], lines, total_rows=len(lines), width=None)
        + f"\nlabelled: learned from {_LEARNED} other sentences; the examples are among those."
    )


def _liked(con: covey.Connection, measured: str) -> list[tuple[object, ...]]:
    con.calibrate(f"{LIKED} {{body}}", "others", label="liked")
    shown = _shown(con, "liked", ("TRUE", "FALSE"))
    calls = ",\n".join(
        f"AI.MARGIN(PROMPT('{LIKED} {{0}}', body){way.options(shown)}) AS m{i}"
        for i, way in enumerate(JUDGE)
    )
    table = con.run(f"SELECT liked, {calls} FROM {measured}").arrow()
    labels = table["liked"].to_pylist()
    return [
        ("-", *way.shown, *figures(labels, table[f"m{i}"].to_pylist()))
        for i, way in enumerate(JUDGE)
    ]


def _sides(con: covey.Connection, measured: str) -> list[tuple[object, ...]]:
    """The probability of one of two labels, for the ways that differ."""
    ways = [way for way in CLASSIFY if way.method != "stepwise"]
    shown = _shown(con, "liked", SIDES)
    calls = ",\n".join(
        f"AI.CLASSIFY(body, ['{SIDES[0]}', '{SIDES[1]}'], task_description => '{SIDES_TASK}', "
        f"probabilities => TRUE{way.options(shown)})['{SIDES[0]}'] AS p{i}"
        for i, way in enumerate(ways)
    )
    table = con.run(f"SELECT liked, {calls} FROM {measured}").arrow()
    labels = table["liked"].to_pylist()
    lines: list[tuple[object, ...]] = []
    for i, way in enumerate(ways):
        margins = [None if p is None else p - 0.5 for p in table[f"p{i}"].to_pylist()]
        lines.append((way.method, *way.shown, *figures(labels, margins)))
    return lines


def _shown(con: covey.Connection, label: str, names: tuple[str, str]) -> str:
    """SQL of four short examples, TRUE and FALSE in turn."""
    texts = []
    found = {
        value: con.run(
            f"SELECT body FROM others WHERE {label} = {value} AND length(body) BETWEEN 40 AND "
            f"{_SHORT} ORDER BY place LIMIT 2"
        ).fetchall()
        for value in ("TRUE", "FALSE")
    }
    for pair in zip(*found.values(), strict=True):
        for (body,), name in zip(pair, names, strict=True):
            texts.append(f"{{'input': {quote_text(body)}, 'label': '{name}'}}")
    return f"[{', '.join(texts)}]"


def _topics(con: covey.Connection, measured: str) -> str:
    listed = ", ".join(f"'{label}'" for label in LABELS)
    shown = _examples(con, "topic", LABELS, 1)
    calls = ",\n".join(
        f"AI.CLASSIFY(body, [{listed}], task_description => '{TASK}'{way.options(shown)}) AS c{i}"
        for i, way in enumerate(CLASSIFY)
    )
    table = con.run(f"SELECT topic, {calls} FROM {measured} WHERE topic IS NOT NULL").arrow()
    right = table["topic"].to_pylist()
    lines = []
    for i, way in enumerate(CLASSIFY):
        given = table[f"c{i}"].to_pylist()
        lines.append((way.method, *way.shown, *_shares(right, given)))
    common = Counter(right).most_common(1)[0][1] / len(right)
    names = ["method", "calibration", "examples", "agree", "balanced"]
    return (
        f"The topic of {len(right)} tickets, one of {len(LABELS)}; the commonest is right for"
        f" {common:.0%}:\n"
        + render(names, lines, total_rows=len(lines), width=None)
        + "\nbalanced: mean over topics of the share that is right; chance is "
        + f"{1 / len(LABELS):.0%}."
    )


def _shares(right: Sequence[str], given: Sequence[str | None]) -> tuple[str, str]:
    """Share of answers that are right, and its mean over the right answers."""
    hits = [a == b for a, b in zip(right, given, strict=True)]
    shares = []
    for label in dict.fromkeys(right):
        inside = [hit for hit, each in zip(hits, right, strict=True) if each == label]
        shares.append(sum(inside) / len(inside))
    return f"{sum(hits) / len(hits):.0%}", f"{sum(shares) / len(shares):.0%}"


def _judgements(con: covey.Connection, measured: str) -> str:
    con.run(
        "CREATE OR REPLACE TEMP TABLE others AS FROM tickets "
        f"WHERE {OTHERS} AND body IS NOT NULL ORDER BY id LIMIT {_LEARNED}"
    )
    lines = []
    for asked in QUESTIONS:
        con.calibrate(f"{asked.question} {{body}}", "others", label=asked.label)
        shown = _examples(con, asked.label, (True, False), 2)
        calls = ",\n".join(
            f"AI.MARGIN({asked.prompt}{way.options(shown)}) AS m{i}" for i, way in enumerate(JUDGE)
        )
        table = con.run(f"SELECT {asked.label} AS label, {calls} FROM {measured}").arrow()
        labels = table["label"].to_pylist()
        for i, way in enumerate(JUDGE):
            found = figures(labels, table[f"m{i}"].to_pylist())
            lines.append((asked.question if not i else "", *way.shown, *found))
    names = ["question", "calibration", "examples", "tickets", "agree", "commoner", "balanced"]
    return (
        "TRUE and FALSE:\n"
        + render([*names, "AUC"], lines, total_rows=len(lines), width=None)
        + "\nprior: content-free answers subtracted. labelled: learned from "
        + f"{_LEARNED} tickets before July 2026.\nThe examples are of that time too; none of them"
        + " is measured."
    )


def _examples(con: covey.Connection, label: str, answers: Sequence[Any], each: int) -> str:
    """SQL of some short examples of each answer, the answers in turn."""
    query = (
        f"SELECT body, ({label}) FROM tickets WHERE {OTHERS} AND ({label}) IS NOT NULL"
        f" AND length(trim(body)) BETWEEN 40 AND {_SHORT} ORDER BY id"
    )
    found: dict[Any, list[str]] = {answer: [] for answer in answers}
    for body, answer in con.run(query).fetchall():
        if len(found[answer]) < each:
            found[answer].append(body)
    texts = []
    for place in range(each):
        for answer, bodies in found.items():
            if place < len(bodies):
                written = str(answer).upper() if isinstance(answer, bool) else answer
                texts.append(f"{{'input': {quote_text(bodies[place])}, 'label': '{written}'}}")
    return f"[{', '.join(texts)}]"


def read_snippets(path: str) -> pa.Table:
    """Sentences and their mean ratings, in the order of the file.

    Args:
        path: the source package, a .zip.

    Returns:
        id int64, rating float64 and body string.

    Raises:
        InputError: there is no such file, or it is another package.
    """
    try:
        lines = _ratings(path).decode("utf-8").splitlines()
        rows = [line.split("\t", 2) for line in lines if line.strip()]
        return pa.table(
            {
                "id": pa.array([int(number) for number, _, _ in rows], pa.int64()),
                "rating": pa.array([float(rating) for _, rating, _ in rows], pa.float64()),
                "body": pa.array([text.strip() for _, _, text in rows], pa.string()),
            }
        )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InputError(
            f"{path} is not the source package of vaderSentiment 0.5 ({error}). Fetch it: pip"
            " download --no-binary :all: --no-deps vaderSentiment==0.5"
        ) from None


def _ratings(path: str) -> bytes:
    """The file with the ratings: in an archive inside the package."""
    with zipfile.ZipFile(path) as package:
        name = _ending(package.namelist(), _ARCHIVE)
        archive = io.BytesIO(package.read(name))
    with tarfile.open(fileobj=archive, mode="r:gz") as files:
        member = files.extractfile(_ending(files.getnames(), _RATINGS))
        if member is None:
            raise KeyError(_RATINGS)
        return member.read()


def _ending(names: list[str], end: str) -> str:
    # A Mac's archive has a second file for each, whose name begins with a dot.
    found = [name for name in names if name.endswith(f"/{end}")]
    if not found:
        raise KeyError(f"it has no {end}")
    return found[0]


def main() -> int:
    """Measure what the arguments name, and print the tables."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("covey bench quality", None, __doc__, formatter_class=plain)
    parser.add_argument("-m", "--model", default=DEMO_MODEL, help="a name or a path")
    parser.add_argument("--rows", type=int, default=68, help="texts to measure, 2 or more")
    parser.add_argument("--movie-reviews", metavar="ZIP", help="measure rated sentences instead")
    given = parser.parse_args()
    if given.rows < 2:
        parser.error("--rows is 2 or more")
    table = measure_snippets if given.movie_reviews else measure
    path = given.movie_reviews or str(in_checkout(TICKETS, "covey bench quality"))
    with connected(given.model) as connection:
        print(table(connection, path, given.rows))
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
