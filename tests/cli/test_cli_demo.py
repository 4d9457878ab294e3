"""`covey demo`: the figures it prints are computed from the answers it got."""

from __future__ import annotations

import re

import duckdb
import pytest
from commandline import CommandLine

from covey.cli import demo
from covey.cli.checkout import in_checkout


@pytest.fixture(scope="module")
def tickets() -> list[tuple[str, bool, bool, bool]]:
    """Body and the three hand labels, of the tickets the demo reads."""
    path = in_checkout(demo.TICKETS, "this test")
    return duckdb.sql(
        "SELECT body, NOT is_angry, wants_refund, mentions_bug"
        f" FROM '{path}' WHERE {demo.ROWS} AND is_angry IS NOT NULL"
    ).fetchall()


def test_right_answers_are_measured_as_right(
    command_line: CommandLine, tickets: list[tuple[str, bool, bool, bool]]
) -> None:
    labels = {body: given for body, *given in tickets}
    questions = [asked.question + " {0}" for asked in demo.QUESTIONS]

    def right(question: str, documents: tuple[str, ...]) -> float:
        return 0.9 if labels[documents[0]][questions.index(question)] else 0.1

    command_line.plant(right, instead_of=demo.DEMO_MODEL)
    ended = command_line("demo")
    assert (ended.code, ended.stderr) == (0, "")
    for asked in demo.QUESTIONS:
        assert re.search(rf"{re.escape(asked.question)} .* 100% .* 100% +1\.00\n", ended.stdout)
        assert re.search(rf"{re.escape(asked.question)} .* {len(tickets)} ", ended.stdout)
    calm = sum(given[0] for given in labels.values())
    assert f"{calm:,} TRUE" in ended.stdout


def test_answers_that_ignore_the_text_are_measured_as_chance(command_line: CommandLine) -> None:
    command_line.plant(lambda question, documents: 0.7, instead_of=demo.DEMO_MODEL)
    ended = command_line("demo")
    for asked in demo.QUESTIONS:
        assert re.search(rf"{re.escape(asked.question)} .* 50% +0\.50\n", ended.stdout)


def test_a_model_that_answers_nothing_is_not_measured(command_line: CommandLine) -> None:
    command_line.plant(lambda question, documents: None, instead_of=demo.DEMO_MODEL)
    ended = command_line("demo")
    assert ended.code == 0
    assert ended.stdout.count("not measured") == len(demo.QUESTIONS)


def test_the_demo_shows_its_query_and_the_counts_by_product(
    command_line: CommandLine, tickets: list[tuple[str, bool, bool, bool]]
) -> None:
    command_line.plant(lambda question, documents: 0.7, instead_of=demo.DEMO_MODEL)
    ended = command_line("demo")
    assert ended.stdout.startswith(demo.shown_query())
    counts = [int(n) for n in re.findall(r"^[A-Z][a-z]+ +(\d+)$", ended.stdout, re.MULTILINE)]
    assert sum(counts) >= len(tickets)
    assert counts == sorted(counts, reverse=True)


def test_what_is_said_of_the_small_model_is_not_said_of_another(command_line: CommandLine) -> None:
    command_line.plant(lambda question, documents: 0.7, instead_of="other")
    ended = command_line("demo", "--model", "other")
    assert ended.code == 0
    assert "SmolLM2" not in ended.stdout


def test_the_demo_runs_end_to_end_on_smollm2(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three short tickets, in which each of the three labels is both TRUE and FALSE.
    monkeypatch.setattr(demo, "ROWS", "id IN (1008, 1202, 1221)")
    ended = command_line("demo", "--no-progress")
    assert (ended.code, ended.stderr) == (0, "")
    assert "model smollm2-135m" in ended.stdout
    assert "3 prompts" in ended.stdout
    assert len(re.findall(r" 3 +\d+% ", ended.stdout)) == len(demo.QUESTIONS)
    assert demo.SMALL_MODEL in ended.stdout
