"""How every command ends: its exit code, and one message instead of a traceback.

0 success; 2 the user's SQL or arguments are wrong, nothing was run; 1 a model or a run
failed, or Covey has a bug. A signal that ends a command gives 128 and its number, as a shell
says it: 129 SIGHUP, 130 Ctrl-C, 143 SIGTERM, and 141 where the reader of a pipe went away.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from covey.errors import CoveyError, InputError, QueryError
from covey.execution.stop import forget_stops, last_stop, stoppable

if TYPE_CHECKING:
    import covey

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SIGNAL = 128
# Of a reader that went away: Python ignores the signal and reports an error.
EXIT_PIPE = EXIT_SIGNAL + 13
TRACEBACK_VARIABLE = "COVEY_TRACEBACK"

# What libraries say where the system gives them no memory; none has a type for it.
_NO_MEMORY = (
    "failed to map segment",
    "cannot allocate memory",
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "can't start new thread",
    "cannot apply additional memory protection",
)


@contextmanager
def in_good_order() -> Iterator[None]:
    """What runs in the block is stopped by Ctrl-C, SIGTERM and SIGHUP, and clears away.

    Everything that it needs is imported before.
    """
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    with stoppable(*(getattr(signal, name) for name in names if hasattr(signal, name))):
        yield


@contextmanager
def connected(model: str | None, **options: Any) -> Iterator[covey.Connection]:
    """A connection, as `covey.connect` opens it, for a block that is stopped in good order."""
    import covey

    connect = covey.connect
    with in_good_order(), connect(model, **options) as connection:
        yield connection


def ended(command: Callable[[], int]) -> int:
    """Run a command to its end; no exception leaves it.

    Args:
        command: gives its exit code.

    Returns:
        the exit code; what went wrong was said on standard error.
    """
    forget_stops()
    try:
        code = command()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt as stop:
        return _stopped(str(stop))
    except BrokenPipeError:
        # `covey query … | head` has all that it wanted.
        return EXIT_PIPE
    except CoveyError as error:
        _say(f"error: {error}")
        return exit_code(error)
    except Exception as error:
        if last_stop() is not None:
            # A library made an error of its own of it.
            return _stopped()
        _say(_explained(error))
        return EXIT_FAILED


def _explained(error: Exception) -> str:
    reason = condition(error)
    if reason is None:
        try:
            return bug_report(error)
        except MemoryError as lack:
            # It imports; and where memory lacks, Python makes errors of other kinds of it, too.
            reason = condition(lack)
    return f"error: {reason}"


def _stopped(message: str = "") -> int:
    _say(message or "Stopped.")
    return EXIT_SIGNAL + (last_stop() or signal.SIGINT)


def exit_code(error: CoveyError) -> int:
    """2 for what the user can mend in the command, 1 for everything else."""
    return EXIT_USAGE if isinstance(error, QueryError | InputError) else EXIT_FAILED


def condition(error: Exception) -> str | None:
    """What an error says of the machine that the command runs on; None where it is a bug."""
    summary = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(words in summary.lower() for words in _NO_MEMORY):
        return (
            f"there is not enough memory{f' ({summary})' if summary else ''}. Close other"
            " programs, raise the limit (ulimit -v), or use a smaller model. Answers so far are"
            " kept: the same command goes on."
        )
    if isinstance(error, OSError):
        place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return (
            f"the system refused: {place}{error.strerror or summary}. Mend that, and give the"
            " command again."
        )
    return None


def bug_report(error: Exception) -> str:
    """One line that names an unexpected error a bug; the traceback before it on demand."""
    from importlib.metadata import version

    summary = " ".join(f"{type(error).__name__}: {error}".split())
    line = f"error: this is a bug in Covey {version('covey')}: {summary}"
    if os.environ.get(TRACEBACK_VARIABLE):
        return "".join(traceback.format_exception(error)) + line
    return f"{line} (run it again with {TRACEBACK_VARIABLE}=1 for the traceback to report)"


def _say(message: str) -> None:
    # There may be nobody to tell.
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(message, file=sys.stderr, flush=True)
