"""The format of a topic file.

Lines that begin with `#` are prose. At the top stand the rules (`answer`, `label`).
Records follow, with blank lines between:

    statement                 SQL without calls, run in DuckDB
    CREATE TABLE t ...

    statement ai              SQL with calls that gives no rows

    query                     the rows in this order, `|` between columns
    SELECT ...
    ----
    1 | refund
    calls 2                   exactly so many prompts reached the model

    calls at most 2           no more than so many, where how much is asked at a time counts

    query rowsort             the rows in any order; printed sorted
    query some 2              any 2 of the rows printed, for LIMIT without ORDER BY
    error QueryError a word   the query is refused with this error, naming these words

`(empty)` is the empty string, `NULL` is NULL, `\\n` a line break. A text that would
read as something else stands in quotes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slt.rules import Rule, Rules, read_rule

RULES = ("answer", "label")
KINDS = ("statement", "query", "error")


class FormatError(Exception):
    """A topic file that cannot be read: file, line and reason."""


@dataclass(slots=True)
class Record:
    """One statement, query or refused query.

    Attributes:
        line: where it starts, 1-based.
        kind: "statement", "query" or "error".
        words: what follows the kind on its line.
        sql: the text.
        rows: the expected rows as printed.
        calls: the expected number of prompts; None where nothing is said.
        at_most: `calls` is an upper bound.
    """

    line: int
    kind: str
    words: str
    sql: str = ""
    rows: list[str] = field(default_factory=list)
    calls: int | None = None
    at_most: bool = False

    def asked_too_much(self, calls: int) -> bool:
        """The number of calls is not the expected one."""
        if self.calls is None:
            return False
        return calls > self.calls if self.at_most else calls != self.calls

    @property
    def some(self) -> int | None:
        """How many of the rows come, where any will do."""
        return int(self.words.split()[1]) if self.words.startswith("some") else None

    @property
    def sorted(self) -> bool:
        return self.words == "rowsort" or self.some is not None


@dataclass(slots=True)
class Topic:
    """A file: its rules and its records."""

    path: Path
    rules: Rules
    records: list[Record]


def read_topic(path: Path) -> Topic:
    """Read a topic file.

    Raises:
        FormatError: it does not follow the format.
    """
    answers: list[Rule] = []
    labels: list[Rule] = []
    records: list[Record] = []
    for line, block in _blocks(path.read_text().splitlines()):
        kind, _, words = block[0].partition(" ")
        if kind in RULES:
            for text in block:
                kind, _, words = text.partition(" ")
                (answers if kind == "answer" else labels).append(read_rule(words))
        elif kind in KINDS:
            records.append(_record(path, line, kind, words.strip(), block[1:]))
        else:
            raise FormatError(f"{path.name}, line {line}: no record starts with {kind!r}")
    return Topic(path, Rules(tuple(answers), tuple(labels)), records)


def _blocks(lines: list[str]) -> list[tuple[int, list[str]]]:
    """Runs of lines between blank lines and prose, with the number of the first."""
    blocks: list[tuple[int, list[str]]] = []
    current: list[str] = []
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip() and not line.startswith("#"):
            if not current:
                blocks.append((number, current))
            current.append(line)
        else:
            current = []
    return blocks


def _record(path: Path, line: int, kind: str, words: str, body: list[str]) -> Record:
    record = Record(line, kind, words)
    if body and body[-1].startswith("calls "):
        said = body.pop().removeprefix("calls ")
        record.at_most = said.startswith("at most ")
        record.calls = int(said.removeprefix("at most "))
    if "----" in body:
        cut = body.index("----")
        body, record.rows = body[:cut], body[cut + 1 :]
    elif kind == "query":
        raise FormatError(f"{path.name}, line {line}: a query needs ---- and its rows")
    record.sql = "\n".join(body)
    return record


def printed(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows as they stand in a file."""
    return [" | ".join(_cell(value) for value in row) for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list):
        return f"[{', '.join(_cell(item) for item in value)}]"
    if not isinstance(value, str):
        return str(value)
    if value == "":
        return "(empty)"
    shown = value.replace("\n", "\\n")
    plain = shown.strip() == shown and shown not in ("NULL", "true", "false") and "|" not in shown
    return shown if plain else f"'{shown}'"
