"""`covey bench suite` and its neighbours reach the suite, and pass its exit code on."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from covey.cli.app import app
from suite.__main__ import main


def test_the_commands_reach_the_suite(tmp_path: Path) -> None:
    def code(*arguments: str) -> int:
        return CliRunner().invoke(app, ["bench", *arguments]).exit_code

    assert code("suite", "sql", "LEP-1") == 0
    assert code("report", str(tmp_path)) == 1
    assert code("peers", "nobody") == 2


def test_a_query_is_printed_as_sql(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "FEV-10"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("-- FEV-10\nSELECT c.id AS c, e.id AS e\n")
    assert "ON c.evidence_wiki_url = e.id AND AI.IF(PROMPT(" in printed


def test_a_run_and_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["run", "--smoke", "--check", "--out", out, "--only", "LEP"]) == 0
    assert capsys.readouterr().out.count(", as DuckDB") == 6
    assert main(["report", out, "--no-plots"]) == 0
    assert "| LEP-6 | 0 | covey-planted |" in (tmp_path / "out" / "report.md").read_text()
    assert main(["compare", out, out]) == 0
    assert "Geometric mean of the ratios: 1.00." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--only", "NOPE-1"], "There is no query 'NOPE-1'."),
        (["run", "--scale", "0.3"], "There is no scale factor 0.3. Known: 0.01, 0.1, 0.5, 1.0."),
        (["compare", "nowhere", "x"], "has no result files"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
