"""Where Covey keeps what it may lose: answers, measured rates and compiled kernels."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from covey.errors import InputError

FOLDER_VARIABLE = "COVEY_CACHE"


def cache_folder() -> Path:
    """The folder that `COVEY_CACHE` names, else `covey` among the user's caches.

    Raises:
        InputError: the user has no home folder.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "covey"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else _home() / "AppData" / "Local") / "covey" / "Cache"
    # The XDG specification says that a relative path is to be ignored.
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else _home() / ".cache") / "covey"


def _home() -> Path:
    try:
        return Path.home()
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
