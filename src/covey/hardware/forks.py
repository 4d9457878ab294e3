"""What a process that was forked does with what it inherited: it leaves it alone.

Of all threads only the one that forks goes on in the child. DuckDB's workers, a tokeniser, whoever
writes answers and torch's OpenMP threads are gone there, and what needs them, or is closed in good
order with them, waits for ever or crashes. So an inherited object is told, refuses its work, and
is never collected.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SPAWN = 'start processes by "spawn": multiprocessing.get_context("spawn")'


class Inheritable(Protocol):
    """Something that a forked process has no use for."""

    def inherited(self) -> None:
        """This is the child now, and the only thread: nothing may be waited for."""
        ...


_told: weakref.WeakSet[Inheritable] = weakref.WeakSet()
# Held while a file is open that a child must not find open.
_whole = threading.RLock()
_forked = False
_torch_came_along = False


def tell(thing: Inheritable) -> None:
    """In every process that is forked from this one, `thing.inherited` is called."""
    _told.add(thing)


def keep_for_ever(thing: object) -> None:
    """Let nothing of it be closed, not even when the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def was_forked() -> bool:
    """Whether Covey was there already when this process was forked from another."""
    return _forked


def torch_came_along() -> bool:
    """Whether torch was there already, whose threads are then gone."""
    return _torch_came_along


@contextmanager
def unforked() -> Iterator[None]:
    """No process is forked within the block: whoever wants to waits for its end."""
    with _whole:
        yield


def _in_child() -> None:
    global _forked, _torch_came_along
    _whole.release()
    _forked = True
    _torch_came_along = "torch" in sys.modules
    for thing in list(_told):
        thing.inherited()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_whole.acquire, after_in_parent=_whole.release, after_in_child=_in_child
    )
