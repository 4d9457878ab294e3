"""The errors a user can meet: one base, four kinds.

Every message names the place, the reason and the mend. `QueryError` (with
`UnsupportedError`) is the user's SQL; `ModelError` a checkpoint or device that
cannot be used; `InputError` a wrong argument of the Python or command-line
interface; `RunError` a run that failed or was stopped after it began.
"""

from __future__ import annotations

import re
from typing import Any

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Characters of a line of SQL that a message shows, and those of them before the mistake.
_LONGEST_LINE = 400
_BEFORE = 80


class CoveyError(Exception):
    """Base of every error that Covey raises on purpose.

    One that is pickled or copied, for another process say, is the same there.
    """

    def __str__(self) -> str:
        # Names and texts from elsewhere may hold what no terminal or file can take.
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", self._message())

    def _message(self) -> str:
        return super().__str__()


class InputError(CoveyError):
    """An argument of the Python or command-line interface is wrong."""


class ModelError(CoveyError):
    """A model cannot be found, read or run on this machine."""


class RunError(CoveyError):
    """A query was well formed but its run failed or was stopped."""


class BudgetError(RunError):
    """A query needs more than its budget allows: refused before it ran, or stopped."""


class QueryError(CoveyError):
    """The SQL text is wrong; nothing was asked of the model.

    Args:
        reason: what is wrong, one sentence without a full stop.
        sql: the user's whole text, or None where no text is at hand.
        span: (start, end) character offsets of the wrong part in `sql`, end exclusive.
        hint: the mend, a sentence.
        done: what happened before the mistake was found, a sentence.
    """

    def __init__(
        self,
        reason: str,
        *,
        sql: str | None = None,
        span: tuple[int, int] | None = None,
        hint: str | None = None,
        done: str = "No model call was made.",
    ) -> None:
        self.reason = reason
        self.sql = sql
        self.span = span
        self.hint = hint
        self.done = done
        # What an error is made anew from when it is pickled; the rest are attributes.
        super().__init__(reason)

    def _message(self) -> str:
        lines = []
        if self.sql is not None and self.span is not None:
            line, column = line_and_column(self.sql, self.span[0])
            lines.append(f"{self.reason} (line {line}, column {column})")
            lines.extend(underline(self.sql, self.span))
        else:
            lines.append(self.reason)
        if self.hint:
            lines.append(self.hint)
        lines.append(self.done)
        return "\n".join(lines)

    def replaced(self, **changes: Any) -> QueryError:
        """The same error with another reason, sql, span, hint or done."""
        kept = {name: getattr(self, name) for name in ("reason", "sql", "span", "hint", "done")}
        return type(self)(**kept | changes)


class UnsupportedError(QueryError):
    """The SQL is understood but asks for something that Covey does not do."""


def first_line(error: BaseException) -> str:
    """What another library's error says at first, as a part of a sentence."""
    return str(error).strip().partition("\n")[0].rstrip(".")


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """The 1-based line and column of a character offset."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def underline(text: str, span: tuple[int, int]) -> list[str]:
    """The line that holds `span`, and a line of carets under it.

    A span that runs over several lines is underlined to the end of its first. Of a long
    line the part around its start is shown.
    """
    start, end = span
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    before = after = ""
    if line_end - line_start > _LONGEST_LINE:
        shown = max(line_start, min(start - _BEFORE, line_end - _LONGEST_LINE))
        before = "…" if shown > line_start else ""
        after = "…" if shown + _LONGEST_LINE < line_end else ""
        line_start, line_end = shown, min(shown + _LONGEST_LINE, line_end)
    # A tab before the carets must stay a tab, or they stand in the wrong place.
    pad = "".join("\t" if c == "\t" else " " for c in text[line_start:start])
    width = max(1, min(end, line_end) - start)
    # What a terminal cannot print (halves of surrogate pairs, NUL …) must not hide the place.
    line = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text[line_start:line_end])
    return [f"    {before}{line}{after}", "    " + " " * len(before) + pad + "^" * width]


def is_masked_interrupt(error: BaseException | None) -> bool:
    """Whether an error is a Ctrl-C that came while DuckDB worked: its package raises another."""
    return type(error) is RuntimeError and str(error) == "Query interrupted"
