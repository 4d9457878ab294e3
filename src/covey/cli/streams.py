"""Standard streams of a command that may be closed, full or without a reader."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from covey.errors import InputError, RunError


def prepare_streams() -> None:
    """Make the standard streams such that every write to them ends in a way that can be told.

    One that is closed is opened on nothing: otherwise the next file that is opened takes its
    number, and gets what is printed. What standard output cannot take is an error, of the kinds
    that commands have; what standard error cannot take has nobody to be told to.
    """
    if os.name == "nt":  # A console there is more than a file.
        return
    if sys.stdin is None:
        _open_on_nothing(0, os.O_RDONLY)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        # For reading, so that a write is an error as it is on a closed one.
        _open_on_nothing(1, os.O_RDONLY)
    if sys.stderr is None:
        _open_on_nothing(2, os.O_WRONLY)
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr)


def check_output() -> None:
    """See that standard output can be written, before the model is asked for what goes there.

    Raises:
        InputError: it is closed.
    """
    try:
        os.write(sys.stdout.fileno(), b"")
    except io.UnsupportedOperation:
        return  # No stream of the system's.
    except OSError as error:
        raise InputError(
            f"Standard output cannot be written: {error.strerror}. Open it, or name a file with"
            " --output."
        ) from None


class _Output(io.FileIO):
    """Standard output.

    Once it has failed it takes what is left without writing it: Python would try again at its
    end, and fail with words of its own.
    """

    _failed = False

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write some bytes.

        Raises:
            BrokenPipeError: its reader went away.
            RunError: it cannot be written.
        """
        if self._failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            if isinstance(error, BrokenPipeError):
                raise
            raise RunError(
                f"Standard output cannot be written: {error.strerror}. Send it elsewhere, or name"
                " a file with --output."
            ) from None


class _Messages(io.FileIO):
    """Standard error."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write some bytes, or lose them."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _text(raw: io.FileIO, before: TextIO | None) -> io.TextIOWrapper:
    # A character that the encoding lacks is written by its number.
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        before.encoding if before is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=raw.isatty(),
    )


def _open_on_nothing(number: int, way: int) -> None:
    opened = os.open(os.devnull, way)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
