"""Ctrl-C: once stops after the batch that is running, twice stops at once."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

from covey.errors import is_masked_interrupt
from covey.hardware import forks


class Stopped(KeyboardInterrupt):
    """A run that Ctrl-C stopped between two batches; the message says how to go on."""


_LOG = logging.getLogger(__name__)
# To the listening thread: no signal has this number.
_NOTICE = b"\0"
# Which signal stopped the process last: signals are the process's, and so is this.
_last: int | None = None
# The one whose handlers and bell another thread than the main one left behind.
_left: list[Interrupts] = []


@contextmanager
def stoppable(*numbers: int) -> Iterator[None]:
    """Let signals that end the process stop what runs in the block as Ctrl-C does.

    Those that are ignored, or that somebody handles, stay as they are.
    """
    if not _in_main_thread():
        yield
        return
    before: dict[int, Any] = {}
    try:
        for number in numbers:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, _stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_stop() -> int | None:
    """The signal that stopped something last; None where none did since `forget_stops`."""
    return _last


def forget_stops() -> None:
    """What stopped something before is no longer the last stop."""
    global _last
    _last = None


def unmask(error: BaseException | None) -> None:
    """Where DuckDB has made an error of its own of an interrupt, raise that again."""
    if is_masked_interrupt(error):
        raise KeyboardInterrupt from None


def _stop(number: int, frame: FrameType | None) -> None:
    global _last
    _last = number
    raise KeyboardInterrupt


class Interrupts:
    """Holds an interrupt back while a batch runs. Where none runs, it acts at once.

    Python's own handler, and those of `stoppable`, are replaced while the block lasts, and only in
    the main thread: a handler of the caller's stays. Where another thread leaves the block, which
    cannot take the handlers away, they stay and do as those before until the main thread can.

    The thread of the run and the handlers write what is here. The thread that listens for signals
    only reads it, and interrupts while it holds `_leaving`, so that it never meets a later query.

    Args:
        interrupt: stops DuckDB, from any thread. Python runs no handler before DuckDB
            returns, which may take hours.

    Attributes:
        wanted: whether the run is to stop after the batch.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._installed = False
        self._before: dict[int, Any] = {}
        self._in_batch = False
        self._raised = False
        self._leaving = threading.Lock()
        self._bell: tuple[socket.socket, socket.socket, threading.Thread] | None = None
        self.wanted = False

    def __enter__(self) -> Self:
        if not _in_main_thread():
            return self
        if _left:
            _left.pop()._take_away()
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if handler in (signal.default_int_handler, _stop):
                self._before[number] = signal.signal(number, self._handle)
        if self._before:
            self._installed = True
            forks.tell(self)
            self._watch()
        return self

    def inherited(self) -> None:
        """See `covey.hardware.forks`: a signal to this process rings no bell in the other."""
        if self._installed:
            self._installed = False
            self._take_away()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self._installed:
            return
        with self._leaving:
            self._installed = False
        if _in_main_thread():
            self._take_away()
        else:
            _left.append(self)
        if self._raised and isinstance(error, Exception):
            # DuckDB has made an error of its own of it.
            raise KeyboardInterrupt from None

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What runs in the block is not interrupted the first time."""
        self._in_batch = True
        try:
            yield
        finally:
            self._in_batch = False

    def _take_away(self) -> None:
        for number, handler in self._before.items():
            # Somebody may have set another meanwhile.
            if getattr(signal.getsignal(number), "__self__", None) is self:
                signal.signal(number, handler)
        if self._bell is not None:
            signal.set_wakeup_fd(-1)
            heard, rung, thread = self._bell
            rung.close()
            # It ends when it has heard all; what it says may be waited for by others.
            thread.join(1.0)
            heard.close()

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
        thread = threading.Thread(
            target=self._listen, args=(heard,), name="covey-interrupts", daemon=True
        )
        self._bell = heard, rung, thread
        thread.start()

    def _listen(self, heard: socket.socket) -> None:
        try:
            while number := heard.recv(1):
                if number == _NOTICE:
                    _LOG.warning(
                        "Stopping when the running batch is done. Ctrl-C again stops at once."
                    )
                    continue
                # Where the handler has run, Python and not DuckDB was at work.
                heeded = self.wanted or self._raised
                with self._leaving:
                    asleep = self._installed and not self._in_batch and not heeded
                    if number[0] in self._before and asleep:
                        self._interrupt()
        except OSError:
            return  # The block was left.

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._installed:
            self._take_away()
            _left.clear()
            _stop(number, frame)
        if self.wanted or not self._in_batch:
            # Where somebody makes another error of it, the next batch does not begin.
            self.wanted = self._raised = True
            _stop(number, frame)
        global _last
        _last = number
        self.wanted = True
        if self._bell is not None:
            # The stream for messages may be in the middle of another.
            with suppress(OSError):
                self._bell[1].send(_NOTICE)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
