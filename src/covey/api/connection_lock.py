"""The lock of a connection: one query after another, from whatever thread."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar

from covey.errors import InputError
from covey.execution.stop import unmask
from covey.hardware import forks

_OPEN = (
    "The connection has an open result: read its batches to the end, or close() the iterator, "
    "before the next query. Another connection is not kept from anything."
)
_WITHIN = (
    "The connection runs a query, and this call comes from within it: from the model's own "
    "function, say, or from what shows its progress. Use another connection there."
)
_INHERITED = (
    "The connection belongs to the process that this one was forked from, and its threads are not "
    f"here. Connect anew in this process, or {forks.SPAWN}."
)

T = TypeVar("T")
Read = Callable[[], Generator[T, None, None] | Literal[False]]
# The generator of an open result, None once nobody has it any more.
Reading = Callable[[], Generator[Any, None, Any] | None]


class ConnectionLock:
    """A fair, reentrant lock: threads hold it in the order in which they asked for it.

    A thread that holds it may take it again, but not from within a query that it runs. A result
    that is read in batches holds it itself, until it is read or closed: any thread may go on
    with it, and whoever asks for the lock meanwhile, in whatever thread, is refused and does
    not wait for a reader who may never come back.

    Everything here belongs to whoever holds `_changed`.

    Attributes:
        foreign: whether this process was forked from the one that the connection belongs to.
    """

    def __init__(self) -> None:
        # Python may end a forgotten result in the middle of what is done here: the lock of a
        # condition may be taken again by its thread.
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        # Who holds it; of a result, the thread that read on last.
        self._thread: threading.Thread | None = None
        self._depth = 0
        self._running = False
        self._result: Reading | None = None
        # Whether the result that holds the lock waits for its reader.
        self._waits = False
        self.foreign = False
        forks.tell(self)

    def inherited(self) -> None:
        """See `covey.hardware.forks`: whoever held the lock is not here to give it back."""
        self.foreign = True
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        """Wait for the lock.

        Raises:
            InputError: a result is open, this thread is in the middle of a query, or this
                process was forked from that of the connection.
        """
        self.check_process()
        thread = threading.current_thread()
        with self._changed:
            self._refuse_within()
            if self._result is None and self._thread is thread:
                self._depth += 1
                return
            place = object()
            self._waiting.append(place)
            try:
                self._changed.wait_for(
                    lambda: self._result or (not self._depth and self._waiting[0] is place)
                )
            finally:
                self._waiting.remove(place)
                self._changed.notify_all()
            if self._result is not None:
                raise InputError(_OPEN)
            self._take(thread)

    def check_process(self) -> None:
        """Refuse what a forked process asks of a connection that it inherited.

        Raises:
            InputError: this is one.
        """
        if self.foreign:
            raise InputError(_INHERITED)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave()
        unmask(error)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold it for a query that is run: nothing is done on the connection from within it.

        Raises:
            InputError: as `__enter__`.
        """
        with self:
            self._running = True
            try:
                yield
            finally:
                self._running = False

    def reading(self, read: Read[T]) -> Generator[T, None, bool]:
        """What is read while a result holds the lock, from the first batch to the last or `close`.

        Args:
            read: runs the query and gives its batches; False where nothing is left to run.

        Returns:
            whether there was something to read.

        Raises:
            InputError: with the first batch, as `__enter__`.
        """
        batches = self._reading(read, lambda: known())
        known = weakref.ref(batches)
        return batches

    def _reading(self, read: Read[T], known: Reading) -> Generator[T, None, bool]:
        with self.running():
            found = read()
            if found is False:
                return False
            with self._changed:
                self._result = known
                self._changed.notify_all()
            try:
                for batch in found:
                    with self._paused():
                        yield batch
                    self.check_process()
            finally:
                if self.foreign:
                    forks.keep_for_ever(found)  # what it would end is another process's
                else:
                    found.close()
                with self._changed:
                    self._result = None
        return True

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Hold it before all that wait; a result that waits for its reader is closed.

        Raises:
            InputError: this thread is in the middle of a query.
        """
        while not self._took_first():
            result = self._result and self._result()
            # Where the reader was faster, or the result is being forgotten, it is waited for.
            with suppress(ValueError):
                if result is not None:
                    result.close()
        try:
            yield
        finally:
            self._leave()

    def _took_first(self) -> bool:
        """Take the lock when it is free; False where a result waits for its reader."""
        with self._changed:
            self._refuse_within()
            self._changed.wait_for(lambda: not self._depth or self._waits)
            if self._depth:
                return False
            self._take(threading.current_thread())
            return True

    def _leave(self) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._thread = None
                self._changed.notify_all()

    def _take(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._depth = 1

    def _refuse_within(self) -> None:
        mine = self._thread is threading.current_thread()
        if mine and self._running and not self._waits:
            raise InputError(_WITHIN)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        with self._changed:
            self._waits = True
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._waits = False
                self._thread = threading.current_thread()
