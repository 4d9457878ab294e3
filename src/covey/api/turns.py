"""Whose turn it is on a connection: one query after another, from whatever thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from covey.errors import InputError


class Turns:
    """A lock that a thread may take again, except while it reads a result in batches."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._reading = False

    def __enter__(self) -> None:
        """Wait for one's turn.

        Raises:
            InputError: this thread is in the middle of a result.
        """
        self._lock.acquire()
        if self._reading:
            self._lock.release()
            raise InputError(
                "The connection has an open result: read its batches to the end, or close() the "
                "iterator, before the next query."
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The turn of whoever reads a result, until the block is left."""
        with self:
            self._reading = True
            try:
                yield
            finally:
                self._reading = False
