"""Where files lie: the user's cache, folders of this process, and files it has open already."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from covey.errors import InputError

FOLDER_VARIABLE = "COVEY_CACHE"

_PREFIX = "covey-scratch-"
_LOCK = "lock"
# A folder younger than this may not have its lock yet.
_SECONDS_TO_LOCK = 60.0

_DESCRIPTORS = "/dev/fd"
_MOST_LINKS = 40


def cache_folder() -> Path:
    """The folder that `COVEY_CACHE` names, else `covey` among the user's caches.

    Answers, measured rates and compiled kernels lie there: all of it may be lost.

    Raises:
        InputError: the user has no home folder.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    # `import covey` must stay light.
    from platformdirs import user_cache_path

    try:
        return user_cache_path("covey", appauthor=False)
    except RuntimeError:
        raise InputError(
            f"There is no home folder for what Covey keeps. Set HOME, or {FOLDER_VARIABLE} to a "
            "folder."
        ) from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of the cache, so that no other process reads half of it.

    Where its folder cannot be written the content is lost: whoever reads the file takes a
    missing one for one that was never kept.
    """
    part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
    with suppress(OSError):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


class Scratch:
    """A folder of this process, private to the user, with a lock that goes with the process.

    Attributes:
        path: the folder.

    Raises:
        OSError: it cannot be made, or DuckDB could not name it.
    """

    def __init__(self) -> None:
        # `import covey` must stay light.
        from filelock import FileLock

        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=temporary_folder()))
        # Whatever thread lets it go.
        self._lock = FileLock(self.path / _LOCK, mode=0o600, thread_local=False)
        self._lock.acquire()
        self._process = os.getpid()

    def delete(self) -> None:
        """Delete the folder and all that is in it; nothing of another process's."""
        if os.getpid() != self._process:
            return
        self._lock.release()
        shutil.rmtree(self.path, ignore_errors=True)


def temporary_folder() -> str:
    """The folder for temporary files that DuckDB is to open; OSError where it cannot name it."""
    folder = tempfile.gettempdir()
    if not is_utf_8(folder):
        raise OSError(errno.EILSEQ, "the name of their folder is no UTF-8")
    return folder


def is_utf_8(name: str) -> bool:
    """Whether DuckDB can open a file of a name; others have bytes that Python kept as they are."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def clear_scratch() -> None:
    """Delete the folders of processes that were killed: nobody holds their locks."""
    from filelock import FileLock, Timeout

    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not (entry.name.startswith(_PREFIX) and _is_old_and_ours(entry)):
                continue
            lock = Path(entry.path) / _LOCK
            if not lock.exists():
                continue
            # A folder that goes meanwhile, or a file system without locks, is left alone.
            with suppress(Timeout, OSError, NotImplementedError):
                with FileLock(lock, timeout=0):
                    pass
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_old_and_ours(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        old = found.st_mtime < time.time() - _SECONDS_TO_LOCK
        return ours and old and stat.S_ISDIR(found.st_mode)
    return False


def descriptor(path: str | os.PathLike[str]) -> int | None:
    """The number of the open file that a path stands for; None of any other path.

    `/dev/stdin`, `/dev/fd/3`, `/proc/self/fd/3` and links to them. To open one by its path is
    not what it was opened as: a file is truncated, or read from its start, and a socket refused.
    """
    place, folder = Path(path).absolute(), os.path.realpath(_DESCRIPTORS)
    for _ in range(_MOST_LINKS):
        if place.name.isdigit() and os.path.realpath(place.parent) == folder:
            return int(place.name)
        try:
            place = place.parent / place.readlink()
        except (OSError, ValueError):
            return None
    return None
