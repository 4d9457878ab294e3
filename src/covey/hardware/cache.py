"""Where Covey keeps what it may lose: answers and measured rates."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER_VARIABLE = "COVEY_CACHE"


def cache_folder() -> Path:
    """The folder that `COVEY_CACHE` names, else `covey` among the user's caches."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "covey"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "covey" / "Cache"
    # The XDG specification says that a relative path is to be ignored.
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "covey"
