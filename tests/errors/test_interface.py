"""Every mistake a user can make in Python, and awkward text, with the whole message.

golden/interface.txt holds a title, the kind of error and its text;
`pytest --update-golden` writes it anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

GOLDEN = Path(__file__).parent / "golden" / "interface.txt"


def connect(answer: Any = None, label: Any = None, **options: Any) -> covey.Connection:
    def yes(question: str, documents: tuple[str, ...]) -> float:
        return 0.9

    con = covey.connect(model=PlantedModel(answer or yes, label), progress=False, **options)
    con.duckdb.execute("CREATE TABLE t AS SELECT 'hello' AS body")
    return con


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def closed() -> covey.Connection:
    con = connect()
    con.close()
    return con


def lone(con: covey.Connection, data: Any) -> list[Any]:
    """What a text with half a surrogate pair becomes."""
    con.register("odd", data)
    return con.sql("SELECT AI.IF(PROMPT('Urgent? {0}', body)) FROM odd").fetchall()


ASK = "SELECT AI.IF(PROMPT('Urgent? {0}', body)) FROM t"
SCORE = "SELECT AI.SCORE(PROMPT('Urgent? {0}', body)) FROM t"
CLASSIFY = "SELECT AI.CLASSIFY(body, ['a', 'b']) FROM t"

CASES: dict[str, Callable[[], Any]] = {
    "an unknown model": lambda: covey.connect(model="qwen3-4b-fp9"),
    "a model that is like none": lambda: covey.connect(model="gtp"),
    "a missing model file": lambda: connect_and_ask("missing.gguf"),
    "a missing model folder": lambda: connect_and_ask("./missing-folder"),
    "an empty model folder": lambda: connect_and_ask("empty"),
    "a model file that is none": lambda: connect_and_ask("notes.gguf"),
    "a model of a wrong kind": lambda: covey.connect(model=3),  # type: ignore[arg-type]
    "an unknown dialect": lambda: covey.connect(model="smollm2-135m", dialect="mysql"),
    "a database in a missing folder": lambda: connect(database="missing/folder/x.db"),
    "a database that is none": lambda: connect(database="notes.gguf"),
    "a planted answer above 1": lambda: connect(lambda q, d: 1.5).run(ASK),
    "a planted answer below 0": lambda: connect(lambda q, d: -0.1).run(SCORE),
    "a planted answer that is NaN": lambda: connect(lambda q, d: float("nan")).run(ASK),
    "a planted answer that is a text": lambda: connect(lambda q, d: "yes").run(ASK),
    "a planted answer that is TRUE": lambda: connect(lambda q, d: True).sql(ASK).fetchall(),
    "a planted label out of range": lambda: connect(None, lambda q, n, d: 2).run(CLASSIFY),
    "a planted label that is a text": lambda: connect(None, lambda q, n, d: "a").run(CLASSIFY),
    "a planted model without labels": lambda: connect().run(CLASSIFY),
    "a prompt that fails where the query must": lambda: connect(lambda q, d: None).run(
        "SELECT AI.IF(body, on_error => 'fail') FROM t"
    ),
    "more failures than allowed": lambda: connect(lambda q, d: None).run(
        "SELECT AI.IF(body, max_error_ratio => 0.5) FROM t"
    ),
    "a query above its budget": lambda: connect(max_calls=0).run(ASK),
    "a run above its budget": lambda: connect(max_calls=1).run(
        "SELECT AI.IF(body) FROM t WHERE AI.IF(PROMPT('Urgent? {0}', body))"
    ),
    "a budget that is no number": lambda: connect(max_cost="5"),
    "a budget below nothing": lambda: connect().sql(ASK, max_tokens=-1),
    "a parameter that holds itself": lambda: connect().sql("SELECT ?", [endless()]),
    "an option that holds itself": lambda: connect().table("t").ai_filter("{body}", x=endless()),
    "a mapping as an option": lambda: connect().table("t").ai_filter("{body}", x={1: 2}).query(),
    "labels that are none": lambda: connect().table("t").ai_classify("{body}", None),  # type: ignore[arg-type]
    "NUL in the name of a database": lambda: connect(database="a\0b"),
    "half a surrogate pair in the name of a database": lambda: connect(database="a\ud83d"),
    "calibration by a wrong kind": lambda: connect().calibrate("{body}", 3),
    "a price that is no number": lambda: connect(price_per_hour="much"),
    "a plan in a form that nobody has": lambda: connect().explain(ASK, "yaml"),
    "register of a wrong kind": lambda: connect().register("x", 3),
    "register of a list": lambda: connect().register("x", [1, 2]),
    "register without a name": lambda: connect().register("", pa.table({"a": [1]})),
    "register under no text": lambda: connect().register(3, pa.table({"a": [1]})),  # type: ignore[arg-type]
    "register of a missing file": lambda: connect().register("x", "missing.parquet"),
    "register of a file that is none": lambda: connect().register("x", "notes.gguf"),
    "register over a table": lambda: connect().register("t", pa.table({"a": [1]})),
    "register of a table without columns": lambda: connect().register("x", pa.table({})),
    "a closed connection, sql": lambda: closed().sql("SELECT 1"),
    "a closed connection, register": lambda: closed().register("x", pa.table({"a": [1]})),
    "a closed connection, table": lambda: closed().table("t"),
    "a connection closed behind the query": lambda: closed_behind(),
    "closing twice": lambda: closed().close(),
    "SQL that is bytes": lambda: connect().sql(b"SELECT 1"),  # type: ignore[arg-type]
    "SQL that is None": lambda: connect().sql(None),  # type: ignore[arg-type]
    "half a surrogate pair in SQL": lambda: connect().sql("SELECT\n '\ud83d', body FROM t"),
    "half a surrogate pair in a template": lambda: connect().sql(
        "SELECT AI.IF(PROMPT('\udc80 {0}', body)) FROM t"
    ),
    "NUL between words": lambda: connect().sql("SELECT 1 \0 2"),
    "NUL in a text": lambda: connect().sql("SELECT '\0', AI.IF('\0' || body) FROM t").fetchall(),
    "NUL in a name": lambda: connect().sql('SELECT "a\0b" FROM t'),
    "half a surrogate pair in a pandas frame": lambda: lone(
        connect(), pd.DataFrame({"body": pd.Series(["fine", "bad \ud83d"], dtype=object)})
    ),
    "NUL in a pandas frame": lambda: lone(connect(), pd.DataFrame({"body": ["a\0b"]})),
    "half a surrogate pair in the name of a table": lambda: connect().register(
        "\ud83d", pa.table({"a": [1]})
    ),
    "half a surrogate pair in a path": lambda: connect().register("x", "\ud83d.parquet"),
    "a column that is no UTF-8": lambda: lone(
        connect(), pa.table({"body": pa.array([b"\xff\xfe"]).view(pa.string())})
    ),
    "half a surrogate pair for the builder": lambda: (
        connect().table("t").ai_filter("\ud83d {body}").query()
    ),
}


def connect_and_ask(model: str) -> None:
    with covey.connect(model=model, progress=False) as con:
        con.run("SELECT AI.IF('x')")


def closed_behind() -> None:
    con = connect()
    query = con.sql(ASK)
    con.close()
    query.run()


def outcome(step: Callable[[], Any]) -> tuple[str, str]:
    try:
        result = step()
    except covey.CoveyError as error:
        return type(error).__name__, str(error)
    return "fine", repr(result) if isinstance(result, list) else ""


def test_messages_are_those_of_the_golden_file(
    pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.gguf").write_text("no model and no database")
    blocks = []
    for title, step in CASES.items():
        kind, message = outcome(step)
        # The message can be printed wherever it goes, and holds no path of this machine.
        message.encode()
        message = message.replace(str(tmp_path) + os.sep, "")
        blocks.append(f"## {title}\n---- {kind}\n{message}\n")
    now = "\n".join(blocks)
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.write_text(now, encoding="utf-8")
    assert now == GOLDEN.read_text(encoding="utf-8")
