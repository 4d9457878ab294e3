"""Paths that stand for files which this process has open already."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = "/dev/fd"
_MOST_LINKS = 40


def descriptor(path: str | os.PathLike[str]) -> int | None:
    """The number of the open file that a path stands for; None of any other path.

    `/dev/stdin`, `/dev/fd/3`, `/proc/self/fd/3` and links to them. To open one by its path is
    not what it was opened as: a file is truncated, or read from its start, and a socket refused.
    """
    place = Path(path).absolute()
    for _ in range(_MOST_LINKS):
        if place.name.isdigit() and os.path.realpath(place.parent) == os.path.realpath(_FOLDER):
            return int(place.name)
        try:
            place = place.parent / place.readlink()
        except (OSError, ValueError):
            return None
    return None
