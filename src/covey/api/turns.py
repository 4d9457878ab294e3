"""Whose turn it is on a connection: one query after another, from whatever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from covey.errors import InputError


class Turns:
    """A lock that a thread may take again, except while it reads a result in batches.

    A result that is read holds it, and not the thread that began to read: any thread may go
    on with the result, and end it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Whose turn it is; of a result, the thread that read on last.
        self._thread: threading.Thread | None = None
        self._depth = 0
        self._reading = False

    def __enter__(self) -> None:
        """Wait for one's turn.

        Raises:
            InputError: this thread is in the middle of a result.
        """
        thread = threading.current_thread()
        with self._changed:
            while self._depth and self._thread is not thread:
                self._changed.wait()
            if self._reading:
                # To wait would be for ever: nobody but this thread is known to read on.
                raise InputError(
                    "The connection has an open result: read its batches to the end, or close() "
                    "the iterator, before the next query."
                )
            self._thread = thread
            self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._thread = None
                self._changed.notify_all()

    @contextmanager
    def reading(self) -> Iterator[Callable[[], None]]:
        """The turn of a result, until the block is left, by whatever thread.

        Yields:
            What a thread calls when it goes on with the result.
        """
        with self:
            self._reading = True
            try:
                yield self._go_on
            finally:
                self._reading = False

    def _go_on(self) -> None:
        with self._changed:
            self._thread = threading.current_thread()
