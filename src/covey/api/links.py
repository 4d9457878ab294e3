"""Links inside allowed folders that lead out of them.

DuckDB opens no file behind one, but a pattern with a wildcard for the link itself lists the
names there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path


def linked_folders(allowed: Sequence[Path]) -> Iterator[Path]:
    """The links to folders inside some folders that lead to none of these."""
    real = [path.resolve() for path in allowed]
    open_ones = [path for path in allowed if path.is_dir()]
    while open_ones:
        try:
            entries = list(os.scandir(open_ones.pop()))
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            if not entry.is_symlink():
                if entry.is_dir():
                    open_ones.append(path)
            elif path.is_dir():
                target = path.resolve()
                if not any(target.is_relative_to(inside) for inside in real):
                    yield path


def passes_through(pattern: str, link: Path) -> bool:
    """Whether a pattern lists what lies behind a link."""
    # The folder may be named through another link.
    wanted = Path(os.path.normpath(Path.cwd() / pattern)).parts
    return any(_passes(wanted, path.parts) for path in (link, link.parent.resolve() / link.name))


def _passes(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether the first parts of a pattern match a path, and some are left."""
    # Which part of the pattern may come next.
    states = {0}
    for number, name in enumerate(path):
        after = set[int]()
        for state in states:
            at = state
            while at < len(pattern) and pattern[at] == "**":
                if number < len(path) - 1:  # It goes through no link itself.
                    after.add(at)
                at += 1
            if at < len(pattern) and fnmatchcase(name.lower(), pattern[at].lower()):
                after.add(at + 1)
        states = after
    return any(state < len(pattern) for state in states)
