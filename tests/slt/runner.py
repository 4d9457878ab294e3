"""Runs a topic file: every query through Covey, and through the oracle for its rows."""

from __future__ import annotations

from typing import Any

import covey
from covey.testing import PlantedModel
from differential.compare import rows_of
from differential.oracle import Oracle, Recorder
from differential.translate import translate
from slt.topic import Record, Topic, printed


def without_limit(sql: str) -> str:
    """The query without the LIMIT that ends it."""
    before, limit, after = sql.rpartition("LIMIT ")
    if not limit or not after.strip().isdigit():
        raise ValueError(f"'some' wants a query that ends in LIMIT n: {sql}")
    return before


def oracle_rows(topic: Topic) -> list[list[str]]:
    """The rows of every query by the oracle, in the order of the records."""
    oracle = Oracle(topic.rules.answer, topic.rules.label)
    found: list[list[str]] = []
    for record in topic.records:
        if record.kind == "statement":
            oracle.execute(translate(record.sql))
        if record.kind != "query":
            found.append([])
            continue
        text = record.sql if record.some is None else without_limit(record.sql)
        rows = printed(rows_of(oracle.arrow(translate(text))))
        found.append(sorted(rows) if record.sorted else rows)
    return found


def failures(topic: Topic) -> list[str]:
    """What is wrong, a paragraph a record; empty where all is right."""
    recorder = Recorder(topic.rules.answer, topic.rules.label)
    model = PlantedModel(recorder.answer, recorder.label)
    connection = covey.connect(model=model, progress=False)
    wrong = []
    for record in topic.records:
        recorder.clear()
        reason = _run(connection, record)
        if reason is None and record.asked_too_much(len(recorder.asked)):
            asked = "\n  ".join(str(each.words) for each in recorder.asked)
            most = "at most " if record.at_most else ""
            reason = f"{len(recorder.asked)} calls, expected {most}{record.calls}:\n  {asked}"
        if reason is not None:
            wrong.append(f"{topic.path.name}, line {record.line}: {reason}\n{record.sql}")
    return wrong


def _run(connection: covey.Connection, record: Record) -> str | None:
    if record.kind == "statement" and record.words != "ai":
        connection.duckdb.execute(record.sql)
        return None
    try:
        rows = connection.sql(record.sql).fetchall()
    except covey.CoveyError as error:
        return _refusal(record, error)
    if record.kind == "error":
        return f"not refused, gave {printed(rows)}; expected {record.words}"
    if record.kind == "statement":
        return None
    return _difference(record, rows)


def _refusal(record: Record, error: covey.CoveyError) -> str | None:
    if record.kind != "error":
        return f"{type(error).__name__}: {error}"
    name, _, words = record.words.partition(" ")
    if type(error).__name__ != name or words not in str(error):
        return f"{type(error).__name__}: {error}; expected {record.words}"
    return None


def _difference(record: Record, rows: list[tuple[Any, ...]]) -> str | None:
    got = printed(rows)
    if record.some is None:
        got = sorted(got) if record.sorted else got
        return None if got == record.rows else f"rows {got}, expected {record.rows}"
    if len(got) != record.some:
        return f"{len(got)} rows, expected {record.some}"
    left = list(record.rows)
    for row in got:
        if row not in left:
            return f"row {row!r} is not among {record.rows}"
        left.remove(row)
    return None
