"""A text made from parts of others, and where each part was written.

What Covey binds and plans is not always what the user wrote: one statement of several,
or a statement with the texts of views in front. Mistakes are found in the rewritten text
and reported at the place where they were written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from covey.errors import QueryError
from covey.logical.text_span import TextSpan


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text that somebody wrote: the user's whole text, or that of a view."""

    sql: str
    view: str | None = None


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a rewritten text; `at` is its offset in what was written.

    A piece without `written` is glue, and a mistake in it is shown at the piece behind.
    `end` is the offset behind what was written where that is another text: `?` for a value.
    """

    text: str
    written: SourceText | None = None
    at: int = 0
    end: int | None = None


class RewrittenSql:
    """A text put together from pieces."""

    def __init__(self, pieces: Iterable[Fragment]) -> None:
        self._pieces = [piece for piece in pieces if piece.text]
        self.text = "".join(piece.text for piece in self._pieces)
        self._starts = []
        length = 0
        for piece in self._pieces:
            self._starts.append(length)
            length += len(piece.text)

    def part(self, start: int, end: int) -> list[Fragment]:
        """The pieces of the characters [start, end)."""
        found = []
        for begin, piece in zip(self._starts, self._pieces, strict=True):
            first, last = max(start - begin, 0), min(end - begin, len(piece.text))
            if first < last:
                at = piece.at if piece.end is not None else piece.at + first
                found.append(Fragment(piece.text[first:last], piece.written, at, piece.end))
        return found

    def locate(self, error: QueryError, done: str | None = None) -> QueryError:
        """The same error at the place where the wrong part was written.

        Args:
            error: raised for this text; one that has no place in it keeps its words.
            done: what happened before it was found; None as the error says.
        """
        reason, sql, span = error.reason, error.sql, error.span
        if sql == self.text and span is not None:
            number = bisect_right(self._starts, span[0]) - 1
            begin = self._starts[number]
            behind = next(
                (i for i in range(number, len(self._pieces)) if self._pieces[i].written), number
            )
            piece = self._pieces[behind]
            if piece.written is not None:
                sql = piece.written.sql
                span = self._place(piece, span, begin if behind == number else span[0])
                if piece.written.view is not None:
                    reason = f"In the view {piece.written.view}: {reason}"
        return error.replaced(reason=reason, sql=sql, span=span, done=done or error.done)

    @staticmethod
    def _place(piece: Fragment, span: tuple[int, int], begin: int) -> TextSpan:
        if piece.end is not None:
            return TextSpan(piece.at, piece.end)
        start = piece.at + span[0] - begin
        end = piece.at + min(span[1] - begin, len(piece.text))
        return TextSpan(start, max(start + 1, end))
