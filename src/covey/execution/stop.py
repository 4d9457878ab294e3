"""Ctrl-C: once stops after the chunk that is running, twice stops at once."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self


class Stopped(KeyboardInterrupt):
    """A run that Ctrl-C stopped between two chunks; the message says how to go on."""


class Interrupts:
    """Holds an interrupt back while a chunk runs. Where none runs, it acts at once.

    Python's own handler is replaced while the block lasts, and only in the main thread: a
    handler of the caller's stays. Where another thread leaves the block, which cannot take the
    handler away, it stays and does as Python's own until the main thread can.

    Args:
        interrupt: stops DuckDB, from any thread. Python runs no handler before DuckDB
            returns, which may take hours.

    Attributes:
        wanted: whether the run is to stop after the chunk.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._installed = False
        self._in_chunk = False
        self._raised = False
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self.wanted = False

    def __enter__(self) -> Self:
        if not _in_main_thread():
            return self
        left = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(left, Interrupts) and not left._installed:
            left._take_away()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._installed = True
            self._watch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._installed:
            return
        self._installed = False
        if _in_main_thread():
            self._take_away()
        if self._raised and isinstance(error, Exception):
            # DuckDB has made an error of its own of it.
            raise KeyboardInterrupt from None

    @contextmanager
    def chunk(self) -> Iterator[None]:
        """What runs in the block is not interrupted the first time."""
        self._in_chunk = True
        try:
            yield
        finally:
            self._in_chunk = False

    def _take_away(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._bell is not None:
            signal.set_wakeup_fd(-1)
            for end in self._bell:
                end.close()

    def _watch(self) -> None:
        """Let a thread know of signals that come while DuckDB works."""
        heard, rung = socket.socketpair()
        rung.setblocking(False)
        before = signal.set_wakeup_fd(rung.fileno(), warn_on_full_buffer=False)
        if before != -1:
            # An event loop listens there.
            signal.set_wakeup_fd(before)
            heard.close()
            rung.close()
            return
        self._bell = heard, rung
        threading.Thread(
            target=self._listen, args=(heard,), name="covey-interrupts", daemon=True
        ).start()

    def _listen(self, heard: socket.socket) -> None:
        try:
            while number := heard.recv(1):
                # Where the handler has run, Python and not DuckDB was at work.
                heeded = self.wanted or self._raised
                asleep = self._installed and not self._in_chunk and not heeded
                if number[0] == signal.SIGINT and asleep:
                    self._interrupt()
        except OSError:
            return  # The block was left.

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._installed:
            self._take_away()
            signal.default_int_handler(number, frame)
        if self.wanted or not self._in_chunk:
            self._raised = True
            raise KeyboardInterrupt
        self.wanted = True
        if sys.stderr is not None:
            print(
                "Stopping when the running chunk is done. Ctrl-C again stops at once.",
                file=sys.stderr,
            )


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
