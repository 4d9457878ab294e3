"""The progress lines: what they say, when they are silent, how they leave a terminal."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest

import covey
from covey.execution.progress import (
    JsonProgress,
    NotebookProgress,
    PlainProgress,
    Progress,
    Shown,
    TerminalProgress,
    duration,
    progress_for,
)
from covey.testing import PlantedModel, planted

SHOW_CURSOR = "\x1b[?25h"
HIDE_CURSOR = "\x1b[?25l"


class Terminal(io.StringIO):
    """A stream that says it is a terminal and keeps what was written."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_a_line_says_rows_tokens_a_second_and_time_left(terminal: Terminal) -> None:
    clock = Clock()
    progress = TerminalProgress(terminal, clock)
    progress.start("AI.IF 1", 1000)
    clock.now += 10
    progress.update("AI.IF 1", 250, 1000, 4000)
    assert "AI.IF 1  250 of 1,000 rows (25%)  400 tokens/s  30 s left" in terminal.getvalue()


def test_a_finished_line_says_what_it_took_and_gives_the_terminal_back(terminal: Terminal) -> None:
    clock = Clock()
    progress = TerminalProgress(terminal, clock)
    progress.start("AI.IF 1", 1000)
    clock.now += 125
    progress.update("AI.IF 1", 1000, 1000, 50_000)
    progress.finish("AI.IF 1")
    drawn = terminal.getvalue()
    assert "AI.IF 1  1,000 rows  400 tokens/s  in 2:05" in drawn
    assert drawn.rindex(SHOW_CURSOR) > drawn.rindex(HIDE_CURSOR)


def test_an_operator_that_fails_early_still_gives_the_terminal_back(terminal: Terminal) -> None:
    progress = TerminalProgress(terminal, Clock())
    progress.start("AI.IF 1", None)
    progress.finish("AI.IF 1")
    drawn = terminal.getvalue()
    assert "AI.IF 1  0 rows  in 0.0 s" in drawn
    assert drawn.rindex(SHOW_CURSOR) > drawn.rindex(HIDE_CURSOR)


def test_the_terminal_is_held_until_the_last_operator_has_finished(terminal: Terminal) -> None:
    clock = Clock()
    progress = TerminalProgress(terminal, clock)
    progress.start("AI.IF 1", 10)
    progress.start("AI.SCORE 2", 4)
    progress.finish("AI.IF 1")
    assert SHOW_CURSOR not in terminal.getvalue()
    clock.now += 2
    progress.update("AI.SCORE 2", 1, 4, 100)
    assert "AI.SCORE 2  1 of 4 rows (25%)  50 tokens/s  6.0 s left" in terminal.getvalue()
    progress.finish("AI.SCORE 2")
    assert terminal.getvalue().count(SHOW_CURSOR) == 1


def test_an_unknown_total_shows_rows_without_a_share_or_time_left(terminal: Terminal) -> None:
    clock = Clock()
    progress = TerminalProgress(terminal, clock)
    progress.start("AI.IF 1", None)
    clock.now += 10
    progress.update("AI.IF 1", 1234, None, 5000)
    drawn = terminal.getvalue()
    assert "AI.IF 1  1,234 rows  500 tokens/s" in drawn
    assert "left" not in drawn and "%" not in drawn


def test_updates_in_quick_succession_are_drawn_once(terminal: Terminal) -> None:
    clock = Clock()
    progress = TerminalProgress(terminal, clock)
    progress.start("AI.IF 1", 100)
    before = terminal.getvalue()
    clock.now += 0.05
    progress.update("AI.IF 1", 7, 100, 70)
    assert terminal.getvalue() == before
    clock.now += 0.06
    progress.update("AI.IF 1", 9, 100, 90)
    assert "9 of 100" in terminal.getvalue()


def test_one_display_serves_a_second_query(terminal: Terminal) -> None:
    progress = TerminalProgress(terminal, Clock())
    for operator in ("first", "second"):
        progress.start(operator, 1)
        progress.update(operator, 1, 1, 10)
        progress.finish(operator)
    after_first = terminal.getvalue().rsplit(HIDE_CURSOR, 1)[1]
    assert "second" in after_first and "first" not in after_first


def test_names_that_never_started_are_ignored(terminal: Terminal) -> None:
    progress = TerminalProgress(terminal, Clock())
    progress.update("nobody", 1, 2, 3)
    progress.finish("nobody")
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("enabled", [None, False])
def test_a_stream_that_is_no_terminal_stays_silent(enabled: bool | None) -> None:
    stream = io.StringIO()
    progress = progress_for(stream, enabled)
    drive(progress)
    assert stream.getvalue() == ""
    assert type(progress) is Progress


@pytest.mark.parametrize(("enabled", "shows"), [(None, True), (True, True), (False, False)])
def test_a_terminal_shows_lines_unless_told_not_to(
    terminal: Terminal, enabled: bool | None, shows: bool
) -> None:
    drive(progress_for(terminal, enabled))
    assert ("AI.IF 1" in terminal.getvalue()) is shows


@pytest.mark.parametrize("shown", [True, "plain"])
def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(shown: bool | str) -> None:
    stream, clock = io.StringIO(), Clock()
    assert isinstance(progress_for(stream, shown), PlainProgress)
    progress = PlainProgress(stream, clock)
    progress.start("AI.IF 1", None)
    for second in range(25):
        clock.now += 1
        progress.update("AI.IF 1", second, 100, 10 * second)
    progress.update("AI.IF 1", 40, 40, 400)
    progress.finish("AI.IF 1")
    progress.finish("AI.IF 1")
    assert stream.getvalue().splitlines() == [
        "AI.IF 1  9 of 100 rows (9%)  9 tokens/s  1:41 left",
        "AI.IF 1  19 of 100 rows (19%)  10 tokens/s  1:25 left",
        "AI.IF 1  40 rows  16 tokens/s  in 25 s",
    ]


def test_a_program_gets_an_object_an_event() -> None:
    stream, clock = io.StringIO(), Clock()
    assert isinstance(progress_for(stream, "json"), JsonProgress)
    progress = JsonProgress(stream, clock)
    progress.start("AI.IF('x\ny')", None)
    clock.now += 0.5
    progress.update("AI.IF('x\ny')", 1, 9, 5)
    clock.now += 0.5
    progress.update("AI.IF('x\ny')", 2, 8, 10)
    progress.finish("AI.IF('x\ny')")
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["start", "progress", "finish"]
    assert events[1] == {
        "event": "progress", "operator": "AI.IF('x\ny')", "done": 2, "total": 8,
        "tokens": 10, "seconds": 1.0,
    }  # fmt: skip


def test_a_notebook_replaces_its_lines() -> None:
    shown: list[str] = []

    class Handle:
        def update(self, text: str) -> None:
            shown.append(text)

    def show(text: str) -> Handle:
        shown.append(text)
        return Handle()

    clock = Clock()
    progress = NotebookProgress(show, clock)
    progress.start("AI.IF 1", 4)
    clock.now += 1
    progress.update("AI.IF 1", 2, 4, 100)
    clock.now += 1
    progress.finish("AI.IF 1")
    assert shown == [
        "AI.IF 1  0 of 4 rows (0%)",
        "AI.IF 1  2 of 4 rows (50%)  100 tokens/s  1.0 s left",
        "AI.IF 1  2 of 4 rows (50%)  50 tokens/s  in 2.0 s",
    ]


def test_totals_are_projected_and_end_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted, "PROMPTS_A_BATCH", 50)
    monkeypatch.setattr("covey.execution.bridge.MOST_ROWS", 100)
    monkeypatch.setattr("covey.execution.progress.JsonProgress.pause", 0.0)
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    model = PlantedModel(lambda question, documents: 0.9 if documents[0][-1] in "02468" else 0.1)
    with covey.connect(model, progress="json") as con:
        con.register("t", pa.table({"s": [f"ticket {i}" for i in range(1000)]}))
        query = "SELECT * FROM t WHERE AI.IF(PROMPT('A {0}', s)) AND AI.IF(PROMPT('B {0}', s))"
        assert len(con.run(query).fetchall()) == 500
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    for name, total in (("A {0}", 1000), ("B {0}", 500)):
        mine = [event for event in events if name in event["operator"]]
        assert [event["event"] for event in mine].count("finish") == 1
        # A sample asks both questions about some rows, whatever the other's answer.
        assert mine[-1]["done"] == mine[-1]["total"]
        assert total <= mine[-1]["done"] <= 1.1 * total
    first = next(event for event in events if event["event"] == "progress")
    assert first["total"] == 1000, "the whole is expected from the first batch on"


def test_another_kind_of_progress_is_refused() -> None:
    with pytest.raises(covey.InputError, match="'plain', 'json'"):
        covey.connect(PlantedModel(lambda *_: 1.0), progress="loud")


@pytest.mark.parametrize("shown", [None, True, "plain", "json"])
def test_a_closed_or_missing_stream_is_silent(
    terminal: Terminal, capsys: pytest.CaptureFixture[str], shown: Shown
) -> None:
    drive(progress_for(terminal, shown))
    assert terminal.getvalue(), "an open one is not"
    terminal.close()
    for stream in (terminal, None):
        progress = progress_for(stream, shown)
        assert type(progress) is Progress
        drive(progress)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (1.25, "1.2 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1:00"),
     (185, "3:05"), (3723, "1:02:03")],
)  # fmt: skip
def test_durations_are_short_and_right(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def drive(progress: Progress) -> None:
    """One operator from start to finish."""
    progress.start("AI.IF 1", 3)
    progress.update("AI.IF 1", 3, 3, 30)
    progress.finish("AI.IF 1")
