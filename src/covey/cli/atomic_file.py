"""Writing a file of a result: it appears whole or not at all, and leaves nothing else behind."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from covey.errors import InputError, RunError
from covey.hardware.paths import descriptor

# Bytes of a file's name that are part of that of its partial file: names may have 255.
_LONGEST = 200


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when all of it has been written.

    What a link points to is replaced, not the link, and keeps its permissions. A pipe, a device
    or a file that is open already (`/dev/stdout`) is written to: what it holds is not ours.

    Raises:
        InputError: it cannot be opened; nothing has been asked yet.
        BrokenPipeError: the reader of a pipe went away.
        RunError: it cannot be written.
    """
    try:
        if descriptor(path) is not None or (path.exists() and not path.is_file()):
            file, partial = _open_stream(path), None
        else:
            target = Path(os.path.realpath(path))
            file, partial = _open_partial(target)
    except OSError as error:
        raise InputError(
            f"--output {path} cannot be opened: {error.strerror}. Name another file."
        ) from None
    try:
        with _writing(path), file:
            yield file
            file.flush()
            if partial is not None:
                # A disk that is full may say so only now.
                os.fsync(file.fileno())
                if target.exists():
                    shutil.copymode(target, partial)
                partial.replace(target)
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror or error}. Make room there, or name"
            " another file with --output. Answers are kept: the same command goes on."
        ) from None


def _open_stream(path: Path) -> BinaryIO:
    number = descriptor(path)
    file = path.open("wb") if number is None else os.fdopen(os.dup(number), "wb")
    with suppress(BrokenPipeError):
        # What is open for reading only says so.
        os.write(file.fileno(), b"")
    return file


def _open_partial(target: Path) -> tuple[BinaryIO, Path]:
    """A new file beside the target, whose lock goes with the process."""
    stem = os.fsdecode(os.fsencode(target.name)[:_LONGEST])
    _clear(target.parent, stem)
    partial = target.with_name(f".{stem}.{os.getpid()}.partial")
    while True:
        file = partial.open("xb")
        _lock(file)
        with suppress(FileNotFoundError):
            if os.path.samestat(partial.stat(), os.fstat(file.fileno())):
                return file, partial
        # Another process took it for one without an owner, before it was locked.
        file.close()


def _clear(folder: Path, stem: str) -> None:
    """Delete the partial files of processes that were killed: nobody holds their locks."""
    ours = re.compile(rf"\.{re.escape(stem)}\.\d+\.partial")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError), Path(entry.path).open("r+b") as file:
                    if _lock(file):
                        Path(entry.path).unlink()


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed; False where another process has, or nobody can."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
