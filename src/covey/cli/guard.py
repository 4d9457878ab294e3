"""How every command ends: its exit code, and one message instead of a traceback.

0 success; 2 the user's SQL or arguments are wrong, nothing was run; 1 a model or a run
failed, or Covey has a bug; 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import errno
import functools
import os
import traceback
from collections.abc import Callable
from importlib.metadata import version
from typing import ParamSpec

import typer

from covey.errors import CoveyError, InputError, QueryError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_STOPPED = 130
TRACEBACK_VARIABLE = "COVEY_TRACEBACK"

P = ParamSpec("P")


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that no exception leaves it but typer's own exit."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except typer.Exit:
            raise
        except CoveyError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt as stop:
            typer.echo(str(stop) or "Stopped.", err=True)
            raise typer.Exit(EXIT_STOPPED) from None
        except Exception as error:
            # A reader that has gone away (`covey query … | head`) is typer's to end quietly.
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            typer.echo(bug_report(error), err=True)
            raise typer.Exit(EXIT_FAILED) from None

    return run


def exit_code(error: CoveyError) -> int:
    """2 for what the user can mend in the command, 1 for everything else."""
    return EXIT_USAGE if isinstance(error, QueryError | InputError) else EXIT_FAILED


def bug_report(error: Exception) -> str:
    """One line that names an unexpected error a bug; the traceback before it on demand."""
    summary = " ".join(f"{type(error).__name__}: {error}".split())
    line = f"error: this is a bug in Covey {version('covey')}: {summary}"
    if os.environ.get(TRACEBACK_VARIABLE):
        return "".join(traceback.format_exception(error)) + line
    return f"{line} (run it again with {TRACEBACK_VARIABLE}=1 for the traceback to report)"
