"""What a person sees while a query runs: one line an operator, on a terminal only.

Execution reports through the `Progress` protocol; nothing here is asked for an answer.
rich is imported when the first line is drawn, never before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.live import Live

# Drawing costs about a millisecond, and a person reads no faster than this.
SECONDS_BETWEEN_DRAWS = 0.1


class Progress(Protocol):
    """Told how far each operator is. An operator is named by the text a person reads.

    Every `start` is followed by a `finish` of the same name, also when the run fails:
    a terminal is put back in order by the last one.
    """

    def start(self, operator: str, total: int | None) -> None:
        """An operator begins; `total` is its number of prompts, None while unknown."""
        ...

    def update(self, operator: str, done: int, total: int | None, tokens: int) -> None:
        """`done` prompts have answers; `tokens` were computed since `start`."""
        ...

    def finish(self, operator: str) -> None:
        """The operator has no more to do, or has failed. Unknown names are ignored."""
        ...


class SilentProgress:
    """Shows nothing."""

    def start(self, operator: str, total: int | None) -> None:
        """See `Progress.start`."""

    def update(self, operator: str, done: int, total: int | None, tokens: int) -> None:
        """See `Progress.update`."""

    def finish(self, operator: str) -> None:
        """See `Progress.finish`."""


@dataclass(slots=True)
class _Line:
    """One operator's state. Times are seconds of the display's clock."""

    operator: str
    started: float
    total: int | None
    done: int = 0
    tokens: int = 0
    finished: float | None = None

    def text(self, now: float) -> str:
        """The line as it reads at time `now`."""
        seconds = (now if self.finished is None else self.finished) - self.started
        parts = [self.operator, self._rows()]
        if seconds > 0 and self.tokens:
            parts.append(f"{self.tokens / seconds:,.0f} tokens/s")
        if self.finished is not None:
            parts.append(f"in {duration(seconds)}")
        elif self.total is not None and 0 < self.done < self.total:
            left = seconds * (self.total - self.done) / self.done
            parts.append(f"{duration(left)} left")
        return "  ".join(parts)

    def _rows(self) -> str:
        if self.total is None or self.done == self.total:
            return f"{self.done:,} rows"
        share = self.done / self.total if self.total else 0.0
        return f"{self.done:,} of {self.total:,} rows ({share:.0%})"


class TerminalProgress:
    """Draws one line an operator on a terminal and leaves the last state standing.

    Args:
        stream: the terminal.
        clock: seconds that only grow; a test gives its own.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._live: Live | None = None
        self._drawn = 0.0

    def start(self, operator: str, total: int | None) -> None:
        """See `Progress.start`."""
        self._lines[operator] = _Line(operator, self._clock(), total)
        if self._live is None:
            self._live = self._open()
        self._draw()

    def update(self, operator: str, done: int, total: int | None, tokens: int) -> None:
        """See `Progress.update`. Draws at most every `SECONDS_BETWEEN_DRAWS`."""
        line = self._lines.get(operator)
        if line is None:
            return
        line.done, line.total, line.tokens = done, total, tokens
        if self._clock() - self._drawn >= SECONDS_BETWEEN_DRAWS:
            self._draw()

    def finish(self, operator: str) -> None:
        """See `Progress.finish`. The last open operator gives the terminal back."""
        line = self._lines.get(operator)
        if line is None or line.finished is not None:
            return
        line.finished = self._clock()
        self._draw()
        if self._live is not None and all(x.finished is not None for x in self._lines.values()):
            self._live.stop()
            self._live = None
            self._lines.clear()

    def _open(self) -> Live:
        from rich.console import Console
        from rich.live import Live

        # No refresh thread and no redirection: the caller's own streams stay the caller's.
        live = Live(
            console=Console(file=self._stream, highlight=False),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start()
        return live

    def _draw(self) -> None:
        from rich.text import Text

        if self._live is None:
            return
        now = self._drawn = self._clock()
        lines = "\n".join(line.text(now) for line in self._lines.values())
        self._live.update(Text(lines, no_wrap=True, overflow="ellipsis"), refresh=True)


def duration(seconds: float) -> str:
    """A time for people: `42 s`, `3:05` (minutes and seconds) or `1:02:03`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def progress_for(stream: TextIO | None, enabled: bool | None) -> Progress:
    """The progress to use for an output stream.

    Args:
        stream: where a person may be watching; None (a process without a standard
            error) shows nothing.
        enabled: False for none; None or True for lines when `stream` is a terminal.
    """
    if enabled is False or stream is None or stream.closed or not stream.isatty():
        return SilentProgress()
    return TerminalProgress(stream)
