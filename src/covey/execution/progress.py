"""What a person or a program sees while a query runs.

One line an operator on a terminal or in a notebook, a line now and then in a plain log,
or one JSON object an event. No text of a document is shown. rich and IPython are imported when
the first line is drawn, never before.
"""

from __future__ import annotations

import json
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from covey.errors import InputError

if TYPE_CHECKING:
    from rich.live import Live

# What `connect(progress=…)` takes.
Shown = bool | Literal["plain", "json"] | None


class Progress:
    """Told how far each operator is, and shows nothing; the subclasses show it.

    An operator is named by the text a person reads. Every `start` is followed by a `finish` of
    the same name, also when the run fails: a terminal is put back in order by the last one.
    """

    def start(self, operator: str, total: int | None) -> None:
        """An operator begins; `total` is its number of prompts, None while unknown.

        Later totals are what is expected by then: filters before it pass fewer rows or more.
        """

    def update(self, operator: str, done: int, total: int | None, tokens: int) -> None:
        """`done` prompts have answers; `tokens` were computed since `start`."""

    def finish(self, operator: str) -> None:
        """The operator has no more to do, or has failed. Unknown names are ignored."""


@dataclass(slots=True)
class _Line:
    """One operator's state. Times are seconds of the display's clock."""

    operator: str
    started: float
    total: int | None
    done: int = 0
    tokens: int = 0
    shown: float = 0.0
    finished: float | None = None

    def text(self, now: float) -> str:
        """The line as it reads at time `now`."""
        seconds = (now if self.finished is None else self.finished) - self.started
        if self.total is None or self.done == self.total:
            rows = f"{self.done:,} rows"
        else:
            share = self.done / self.total if self.total else 0.0
            rows = f"{self.done:,} of {self.total:,} rows ({share:.0%})"
        parts = [self.operator, rows]
        if seconds > 0 and self.tokens:
            parts.append(f"{self.tokens / seconds:,.0f} tokens/s")
        if self.finished is not None:
            parts.append(f"in {duration(seconds)}")
        elif self.total is not None and 0 < self.done < self.total:
            left = seconds * (self.total - self.done) / self.done
            parts.append(f"{duration(left)} left")
        return "  ".join(parts)


class _LineProgress(Progress):
    """Keeps the state of each operator, and shows it when it begins, ends, and now and then.

    Args:
        clock: seconds that only grow; a test gives its own.

    Attributes:
        pause: seconds at least between two updates that are shown.
    """

    pause: float

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lines: dict[str, _Line] = {}

    def start(self, operator: str, total: int | None) -> None:
        now = self._clock()
        self._lines[operator] = _Line(operator, now, total, shown=now)
        self._show("start", self._lines[operator], now)

    def update(self, operator: str, done: int, total: int | None, tokens: int) -> None:
        line, now = self._lines.get(operator), self._clock()
        if line is None or line.finished is not None:
            return
        line.done, line.total, line.tokens = done, total, tokens
        if now - line.shown >= self.pause:
            line.shown = now
            self._show("progress", line, now)

    def finish(self, operator: str) -> None:
        line = self._lines.get(operator)
        if line is None or line.finished is not None:
            return
        line.finished = self._clock()
        self._show("finish", line, line.finished)

    @abstractmethod
    def _show(self, event: str, line: _Line, now: float) -> None:
        """Show a line that starts, has progressed or finishes."""


class _DrawnProgress(_LineProgress):
    """Lines of text, one an operator, that are drawn together over what they were."""

    # Drawing costs about a millisecond, and a person reads no faster than this.
    pause = 0.1

    def _show(self, event: str, line: _Line, now: float) -> None:
        for other in self._lines.values():
            other.shown = now
        self._draw("\n".join(other.text(now) for other in self._lines.values()))

    @abstractmethod
    def _draw(self, text: str) -> None: ...


class TerminalProgress(_DrawnProgress):
    """Draws one line an operator on a terminal and leaves the last state standing."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._live: Live | None = None

    def _draw(self, text: str) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            console = Console(file=self._stream, highlight=False)
            # No refresh thread and no redirection: the caller's own streams stay the caller's.
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
        # The last open operator gives the terminal back.
        if all(line.finished is not None for line in self._lines.values()):
            self._live.stop()
            self._live = None
            self._lines.clear()


class NotebookProgress(_DrawnProgress):
    """Shows the lines below a notebook's cell, each time in the place of the last.

    `show` displays a text and returns a handle whose `update` replaces it.
    """

    def __init__(
        self, show: Callable[[str], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._display = show
        self._handle: Any = None

    def _draw(self, text: str) -> None:
        if self._handle is None:
            self._handle = self._display(text)
        else:
            self._handle.update(text)


class PlainProgress(_LineProgress):
    """Writes a line now and then, for logs."""

    pause = 10.0

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream

    def _show(self, event: str, line: _Line, now: float) -> None:
        if event != "start":
            print(line.text(now).replace("\n", " "), file=self._stream, flush=True)


class JsonProgress(PlainProgress):
    """Writes one JSON object an event: "start", "progress", "finish".

    Every object has `event`, `operator` (the call as written), `done`, `total` (prompts;
    null while unknown), `tokens` and `seconds` since the start.
    """

    pause = 1.0

    def _show(self, event: str, line: _Line, now: float) -> None:
        values = {
            "event": event,
            "operator": line.operator,
            "done": line.done,
            "total": line.total,
            "tokens": line.tokens,
            "seconds": round(now - line.started, 3),
        }
        print(json.dumps(values), file=self._stream, flush=True)


@dataclass(slots=True)
class _CallTally:
    """What was asked for a call: prompts, how many have answers, and tokens computed."""

    written: str
    total: int = 0
    done: int = 0
    tokens: int = 0


class CallProgress:
    """Counts what the calls of a query have asked, and tells a `Progress` of it.

    Args:
        progress: shows it.

    Attributes:
        share: of the rows that are taken up by now, in (0, 1]: totals are expected to grow in
            the same proportion.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._calls: dict[int, _CallTally] = {}
        self.share = 1.0

    def asked(self, call: int, written: str, prompts: int) -> None:
        """So many more prompts of a call, by its index, are under way."""
        if call not in self._calls:
            self._calls[call] = _CallTally(written)
            self._progress.start(written, None)
        self._calls[call].total += prompts

    def answered(self, call: int, prompts: int, tokens: int) -> bool:
        """So many prompts of a call were answered; say whether it has no more to ask."""
        asked = self._calls[call]
        asked.done += prompts
        asked.tokens += tokens
        total = round(asked.total / self.share)
        self._progress.update(asked.written, asked.done, total, asked.tokens)
        if self.share < 1.0 or asked.done < asked.total:
            return False
        self._progress.finish(asked.written)
        del self._calls[call]
        return True

    def close(self) -> None:
        """No call asks any more."""
        for asked in self._calls.values():
            self._progress.finish(asked.written)


def duration(seconds: float) -> str:
    """A time for people: `42 s`, `3:05` (minutes and seconds) or `1:02:03`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def progress_for(stream: TextIO | None, shown: Shown) -> Progress:
    """The progress to use for an output stream.

    Args:
        stream: where a person or a program may be watching; None (a process without a
            standard error) shows nothing.
        shown: False for nothing; None for lines on a terminal and in a notebook; True also
            for a line now and then elsewhere; "plain" for those everywhere; "json" for
            events.
    """
    if shown is False or stream is None or stream.closed:
        return Progress()
    if shown == "json":
        return JsonProgress(stream)
    if shown == "plain":
        return PlainProgress(stream)
    if "ipykernel" in sys.modules:
        return NotebookProgress(_display)
    if stream.isatty():
        return TerminalProgress(stream)
    return PlainProgress(stream) if shown else Progress()


def check_shown(shown: Any) -> Shown:
    """What `connect(progress=…)` was given.

    Raises:
        InputError: it is none of those that `Shown` names.
    """
    if shown is None or isinstance(shown, bool) or shown in ("plain", "json"):
        chosen: Shown = shown
        return chosen
    raise InputError(f"progress is True, False, 'plain', 'json' or None, not {shown!r}.")


def _display(text: str) -> Any:
    """A text below the cell of the notebook that runs."""
    from IPython.display import display  # type: ignore[import-not-found]

    handle = display({"text/plain": text}, raw=True, display_id=True)

    class Handle:
        def update(self, text: str) -> None:
            handle.update({"text/plain": text}, raw=True)

    return Handle()
