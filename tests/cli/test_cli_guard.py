"""Every way a command can end: exit code, one message, no traceback."""

from __future__ import annotations

import errno
import os
import signal
import time

import pytest
import typer
from typer.testing import CliRunner

from covey.cli.app import Commands
from covey.errors import (
    CoveyError,
    InputError,
    ModelError,
    QueryError,
    RunError,
    UnsupportedError,
)
from covey.execution.stop import last_stop, stoppable

SQL = "SELECT bdy FROM t"


def end_with(error: BaseException | None) -> tuple[int, str]:
    """Exit code and standard error of a command that raises `error`."""
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @app.callback()
    def group() -> None:
        """A group of one command."""

    @app.command()
    def command() -> None:
        if error is not None:
            raise error

    result = CliRunner().invoke(app, ["command"])
    assert result.stdout == ""
    return result.exit_code, result.stderr


def test_success_is_0_and_silent() -> None:
    assert end_with(None) == (0, "")


@pytest.mark.parametrize("kind", [QueryError, UnsupportedError])
def test_wrong_sql_is_2_with_the_place(kind: type[QueryError]) -> None:
    error = kind("no column bdy", sql=SQL, span=(7, 10), hint="Did you mean body?")
    assert end_with(error) == (
        2,
        "error: no column bdy (line 1, column 8)\n"
        "    SELECT bdy FROM t\n"
        "           ^^^\n"
        "Did you mean body?\n"
        "No model call was made.\n",
    )


def test_a_wrong_argument_is_2() -> None:
    assert end_with(InputError("no file x")) == (2, "error: no file x\n")


@pytest.mark.parametrize("kind", [ModelError, RunError, CoveyError])
def test_a_failed_model_or_run_is_1(kind: type[CoveyError]) -> None:
    assert end_with(kind("weights are cut short")) == (1, "error: weights are cut short\n")


def test_ctrl_c_is_130_with_one_line() -> None:
    assert end_with(KeyboardInterrupt()) == (130, "Stopped.\n")


def test_a_command_is_not_stopped_by_what_stopped_another() -> None:
    with pytest.raises(KeyboardInterrupt), stoppable(signal.SIGINT):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5.0)
    assert last_stop() == signal.SIGINT
    assert end_with(KeyError("span"))[0] == 1


def test_anything_else_is_called_a_bug_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COVEY_TRACEBACK", raising=False)
    code, message = end_with(KeyError("span\nof two lines"))
    assert code == 1
    assert message.startswith("error: this is a bug in Covey ")
    assert "KeyError" in message and "COVEY_TRACEBACK=1" in message
    assert message.count("\n") == 1


def test_the_traceback_of_a_bug_is_there_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_TRACEBACK", "1")
    code, message = end_with(KeyError("span"))
    assert code == 1
    assert message.startswith("Traceback (most recent call last):")
    assert message.splitlines()[-1].startswith("error: this is a bug in Covey ")


def test_a_traceback_is_never_shown_for_an_error_on_purpose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COVEY_TRACEBACK", "1")
    assert end_with(InputError("no file x")) == (2, "error: no file x\n")


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    assert end_with(OSError(errno.EPIPE, "Broken pipe")) == (141, "")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory"),
        (ImportError("libx.so: failed to map segment from shared object"), "not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "memory"),
        (RuntimeError("can't start new thread"), "not enough memory"),
        (OSError(errno.ENOSPC, "No space left on device", "x.bin"), "x.bin: No space left"),
        (PermissionError(errno.EACCES, "Permission denied", b"y"), "y: Permission denied"),
    ],
)
def test_a_condition_of_the_machine_is_no_bug(error: Exception, words: str) -> None:
    code, message = end_with(error)
    assert code == 1
    assert message.startswith("error: ") and words in message
    assert "bug" not in message and message.count("\n") == 1


def test_no_memory_to_name_a_bug_is_said_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(error: Exception) -> str:
        raise MemoryError

    monkeypatch.setattr("covey.cli.guard.bug_report", full)
    code, message = end_with(SystemError("no error set"))
    assert code == 1 and message.startswith("error: there is not enough memory")


def test_an_exit_code_chosen_by_the_command_is_kept() -> None:
    assert end_with(typer.Exit(7)) == (7, "")
