"""`covey query` and `covey explain`: results, messages and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from commandline import CommandLine

import covey

TICKETS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "product": ["Lamp", "Rug", "Lamp", "Rug"],
        "body": ["refund please", "lovely rug", "I want a refund", None],
    }
)
QUESTION = "AI.IF(PROMPT('Is the customer asking for a refund? {0}', body))"


def says_refund(question: str, documents: tuple[str, ...]) -> float:
    return 0.9 if "refund" in documents[0] else 0.1


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    path = tmp_path / "tickets.parquet"
    pyarrow.parquet.write_table(TICKETS, path)
    return path


def grouped(tickets: Path) -> str:
    return f"SELECT product, count(*) AS n FROM '{tickets}' WHERE {QUESTION} GROUP BY product"


def test_a_result_is_a_table_on_standard_output_and_the_report_is_not(
    command_line: CommandLine, tickets: Path
) -> None:
    command_line.plant(says_refund)
    ended = command_line("query", grouped(tickets))
    assert ended.code == 0
    assert ended.stdout == "product  n\n-------  -\nLamp     2\n"
    assert ended.stderr.strip()


def test_without_the_report_standard_error_is_empty(
    command_line: CommandLine, tickets: Path
) -> None:
    command_line.plant(says_refund)
    ended = command_line("query", grouped(tickets), "--no-report")
    assert (ended.code, ended.stderr) == (0, "")


def test_sql_from_standard_input(command_line: CommandLine, tickets: Path) -> None:
    command_line.plant(says_refund)
    ended = command_line("query", "-", "--format", "json", stdin=grouped(tickets))
    assert ended.code == 0
    assert json.loads(ended.stdout) == [{"product": "Lamp", "n": 2}]


def test_csv_on_standard_output(command_line: CommandLine, tickets: Path) -> None:
    command_line.plant(says_refund)
    ended = command_line("query", grouped(tickets), "--format", "csv")
    assert ended.stdout == "product,n\nLamp,2\n"


def test_parquet_into_a_file(command_line: CommandLine, tickets: Path, tmp_path: Path) -> None:
    command_line.plant(says_refund)
    ended = command_line("query", grouped(tickets), "--output", str(tmp_path / "r.parquet"))
    assert (ended.code, ended.stdout) == (0, "")
    assert pyarrow.parquet.read_table(tmp_path / "r.parquet").to_pylist() == [
        {"product": "Lamp", "n": 2}
    ]


def test_a_null_document_is_not_sent(command_line: CommandLine, tickets: Path) -> None:
    seen: list[str] = []

    def record(question: str, documents: tuple[str, ...]) -> float:
        seen.append(documents[0])
        return 0.9

    command_line.plant(record)
    ended = command_line("query", grouped(tickets), "--format", "csv")
    assert sorted(seen) == ["I want a refund", "lovely rug", "refund please"]
    assert ended.code == 0


def test_an_unknown_column_names_the_place_and_the_nearest_column(
    command_line: CommandLine, tickets: Path
) -> None:
    command_line.plant(never_asked)
    ended = command_line(
        "query", f"SELECT id FROM '{tickets}' t\nWHERE AI.IF(PROMPT('Refund? {{0}}', t.bdy))"
    )
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: ")
    assert "line 2" in ended.stderr
    assert "WHERE AI.IF(PROMPT('Refund? {0}', t.bdy))" in ended.stderr
    assert "body" in ended.stderr
    assert ended.stderr.endswith("No model call was made.\n")


def test_an_unknown_function_names_the_nearest(command_line: CommandLine, tickets: Path) -> None:
    command_line.plant(never_asked)
    ended = command_line("query", f"SELECT AI.CLASIFY(body, ['a', 'b']) FROM '{tickets}'")
    assert ended.code == 2
    assert "AI.CLASSIFY" in ended.stderr


def test_sql_that_does_not_parse_is_2(command_line: CommandLine) -> None:
    command_line.plant(never_asked)
    ended = command_line("query", "SELEC 1")
    assert ended.code == 2
    assert ended.stderr.startswith("error: ")


def test_a_missing_table_file_is_2(command_line: CommandLine, tmp_path: Path) -> None:
    command_line.plant(never_asked)
    ended = command_line("query", f"SELECT * FROM '{tmp_path / 'none.parquet'}' WHERE {QUESTION}")
    assert ended.code == 2
    assert "none.parquet" in ended.stderr


def test_a_missing_model_is_1_and_named(command_line: CommandLine, tickets: Path) -> None:
    ended = command_line("query", grouped(tickets), "--model", "/nowhere/model")
    assert ended.code in (1, 2)
    assert "/nowhere/model" in ended.stderr


def test_an_unknown_model_name_points_at_the_list(command_line: CommandLine, tickets: Path) -> None:
    ended = command_line("query", grouped(tickets), "--model", "smolm2")
    assert ended.code in (1, 2)
    assert "smollm2-135m" in ended.stderr


def test_no_sql_is_refused_with_the_mend(command_line: CommandLine) -> None:
    ended = command_line("query", "-", stdin="  \n")
    assert ended.code == 2
    assert ended.stderr == (
        "error: standard input holds no SQL. "
        "Give the query in quotes, or: covey query - < query.sql\n"
    )


def test_a_bad_destination_is_refused_before_the_model_is_asked(
    command_line: CommandLine, tickets: Path, tmp_path: Path
) -> None:
    command_line.plant(never_asked)
    ended = command_line("query", grouped(tickets), "--output", str(tmp_path / "no" / "r.csv"))
    assert ended.code == 2
    assert "does not exist" in ended.stderr


def test_an_unknown_option_is_2(command_line: CommandLine) -> None:
    ended = command_line("query", "SELECT 1", "--modle", "x")
    assert ended.code == 2
    assert "--model" in ended.stderr


def test_explain_prints_a_plan_and_asks_nothing(command_line: CommandLine, tickets: Path) -> None:
    command_line.plant(never_asked)
    ended = command_line("explain", grouped(tickets))
    assert (ended.code, ended.stderr) == (0, "")
    assert "AI.IF" in ended.stdout


def test_explain_as_json_and_beside_what_happened(command_line: CommandLine, tickets: Path) -> None:
    command_line.plant(never_asked)
    ended = command_line("explain", "--json", grouped(tickets))
    assert ended.code == 0
    assert json.loads(ended.stdout)["statements"][0]["expected"]["calls"]["low"] > 0
    command_line.plant(lambda question, documents: 0.9)
    ended = command_line("explain", "--analyze", grouped(tickets))
    assert ended.code == 0 and "; was " in ended.stdout


def test_a_query_above_its_budget_is_1_and_asks_nothing(
    command_line: CommandLine, tickets: Path
) -> None:
    command_line.plant(never_asked)
    ended = command_line("query", "--max-calls", "0", grouped(tickets))
    assert ended.code == 1
    assert "max_calls" in ended.stderr and ended.stdout == ""


def test_explain_counts_on_the_answers_of_the_store_that_it_is_given(
    command_line: CommandLine, tickets: Path, tmp_path: Path
) -> None:
    command_line.plant(says_refund, fingerprint="refunds")
    folder = str(tmp_path / "kept")
    assert command_line("query", "--cache", folder, grouped(tickets)).code == 0
    known = command_line("explain", "--analyze", "--cache", folder, grouped(tickets))
    assert "was: 0 prompts, 3 answered by earlier runs" in known.stdout
    for options in ([], ["--no-cache"]):
        anew = command_line("explain", "--analyze", *options, grouped(tickets))
        assert "was: 3 prompts" in anew.stdout
    both = command_line("explain", "--cache", folder, "--no-cache", grouped(tickets))
    assert both.code == 2 and "exclude each other" in both.stderr


def test_a_plan_asked_for_in_sql_keeps_its_lines(command_line: CommandLine, tickets: Path) -> None:
    command_line.plant(lambda question, documents: 0.9)
    ended = command_line("query", f"EXPLAIN SELECT AI.IF(body) FROM '{tickets}'")
    assert ended.code == 0
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("1. load") and "then DuckDB runs the rest" in lines


def test_explain_reads_standard_input_and_refuses_wrong_sql(
    command_line: CommandLine, tickets: Path
) -> None:
    command_line.plant(never_asked)
    ended = command_line("explain", "-", stdin=f"SELECT bdy FROM '{tickets}' WHERE {QUESTION}")
    assert ended.code == 2
    assert "bdy" in ended.stderr


def test_a_process_leaves_the_right_exit_code_and_no_traceback(tickets: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", "from covey.cli.main import main; main()", "query", "SELECT bdy"
         f" FROM '{tickets}' WHERE {QUESTION}"],
        capture_output=True, text=True, check=False, env={**os.environ, "COVEY_TRACEBACK": "1"},
    )  # fmt: skip
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr
    assert "bdy" in finished.stderr


def never_asked(question: str, documents: tuple[str, ...]) -> float:
    raise AssertionError("the model was asked")


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "table"])
def test_no_form_of_a_result_is_held_whole(
    command_line: CommandLine,
    tickets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    def whole(query: covey.Query) -> pa.Table:
        raise AssertionError("the whole result was made")

    monkeypatch.setattr(covey.Query, "arrow", whole)
    command_line.plant(says_refund)
    sql = f"SELECT id FROM '{tickets}' WHERE {QUESTION}"
    target = tmp_path / f"result.{form}"
    assert command_line("query", sql, "-f", form, "-o", str(target)).code == 0
    assert target.stat().st_size
    assert command_line("query", f"CREATE TABLE x AS {sql}; FROM x", "-f", "csv").stdout == (
        "id\n1\n3\n"
    )
    made = command_line("query", f"CREATE TABLE x AS {sql}", "-f", "json")
    assert (made.code, json.loads(made.stdout)) == (0, [{"Count": 2}])
    nothing = command_line("query", "CREATE VIEW v AS SELECT 1", "-f", "json")
    assert (nothing.code, json.loads(nothing.stdout)) == (0, [])


def test_a_database_file_is_opened_as_the_user_says(
    command_line: CommandLine, tickets: Path, tmp_path: Path
) -> None:
    command_line.plant(says_refund)
    file = str(tmp_path / "shop.duckdb")
    made = command_line("query", f"CREATE TABLE t AS FROM '{tickets}'", "-d", file)
    assert made.code == 0
    sql = f"SELECT id FROM t WHERE {QUESTION} ORDER BY id"
    for options in (["--database", file], ["-d", file, "--read-only"]):
        read = command_line("query", sql, "-f", "csv", *options)
        assert (read.code, read.stdout) == (0, "id\n1\n3\n")
        assert command_line("explain", sql, *options).code == 0
    before = Path(file).stat()
    refused = command_line("query", "DELETE FROM t", "-d", file, "--read-only")
    assert refused.code != 0 and "read-only" in refused.stderr
    assert Path(file).stat().st_mtime_ns == before.st_mtime_ns
    missing = command_line("query", sql, "-d", str(tmp_path / "no.duckdb"), "--read-only")
    assert missing.code != 0 and "cannot be opened" in missing.stderr
    assert not (tmp_path / "no.duckdb").exists()
    for same in (file, str(tmp_path / "new.duckdb")):
        over = command_line("query", "SELECT 1", "-f", "csv", "-d", same, "-o", same)
        assert over.code == 2 and "is the database itself" in over.stderr
        assert Path(same).exists() == (same == file)
    assert command_line("query", "DELETE FROM t", "-d", file).code == 0
    assert command_line("query", "SELECT count(*) AS n FROM t", "-d", file).stdout == "n\n-\n0\n"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, body FROM '{0}' WHERE id < 0 AND {1}",
        "SELECT id, body FROM '{0}' WHERE id < 0 AND {1} ORDER BY id",
        "CREATE TABLE u (id BIGINT, body VARCHAR); "
        "INSERT INTO u SELECT id, body FROM '{0}' WHERE id < 0 AND {1} RETURNING id, body",
    ],
)
def test_a_file_without_rows_has_its_columns(
    command_line: CommandLine, tickets: Path, tmp_path: Path, sql: str
) -> None:
    command_line.plant(says_refund)
    text = sql.format(tickets, QUESTION)
    ended = command_line("query", text, "--format", "csv")
    assert (ended.code, ended.stdout) == (0, "id,body\n")
    target = tmp_path / "none.parquet"
    assert command_line("query", text, "--output", str(target)).code == 0
    assert pyarrow.parquet.read_table(target).schema.names == ["id", "body"]


@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet"])
def test_a_statement_without_a_result_is_written_in_every_form(
    command_line: CommandLine, tickets: Path, tmp_path: Path, form: str
) -> None:
    command_line.plant(says_refund)
    text = f"CREATE VIEW v AS SELECT * FROM '{tickets}' WHERE {QUESTION}"
    target = tmp_path / "none"
    ended = command_line("query", text, "--format", form, "--output", str(target))
    assert ended.code == 0, ended.stderr
    assert target.exists()
    assert command_line("query", text, "--format", "table").code == 0
