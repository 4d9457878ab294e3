"""A text made from parts of others, and where each part was written.

What Covey binds and plans is not always what the user wrote: one statement of several,
or a statement with the texts of views in front. Mistakes are found in the rewritten text
and reported at the place where they were written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

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

    A fragment without `written` is glue, and a mistake in it is shown at the fragment behind.
    `end` is the offset behind what was written where that is another text: `?` for a value.
    """

    text: str
    written: SourceText | None = None
    at: int = 0
    end: int | None = None


class RewrittenSql:
    """A text put together from fragments."""

    def __init__(self, fragments: Iterable[Fragment]) -> None:
        self.fragments = [fragment for fragment in fragments if fragment.text]
        self.text = "".join(fragment.text for fragment in self.fragments)
        self._starts = [0, *accumulate(len(fragment.text) for fragment in self.fragments)][:-1]

    def part(self, start: int, end: int) -> list[Fragment]:
        """The fragments of the characters [start, end)."""
        found = []
        for begin, fragment in zip(self._starts, self.fragments, strict=True):
            first, last = max(start - begin, 0), min(end - begin, len(fragment.text))
            if first < last:
                at = fragment.at if fragment.end is not None else fragment.at + first
                found.append(
                    Fragment(fragment.text[first:last], fragment.written, at, fragment.end)
                )
        return found

    def edited(self, edits: Iterable[tuple[TextSpan, Sequence[Fragment]]]) -> RewrittenSql:
        """The same text with fragments in the places of some spans, which do not overlap."""
        fragments, at = list[Fragment](), 0
        for span, new in sorted(edits, key=lambda edit: edit[0]):
            fragments += [*self.part(at, span.start), *new]
            at = span.end
        return RewrittenSql([*fragments, *self.part(at, len(self.text))])

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
                (i for i in range(number, len(self.fragments)) if self.fragments[i].written), number
            )
            fragment = self.fragments[behind]
            if fragment.written is not None:
                sql = fragment.written.sql
                span = self._place(fragment, span, begin if behind == number else span[0])
                if fragment.written.view is not None:
                    reason = f"In the view {fragment.written.view}: {reason}"
        return error.replaced(reason=reason, sql=sql, span=span, done=done or error.done)

    @staticmethod
    def _place(fragment: Fragment, span: tuple[int, int], begin: int) -> TextSpan:
        if fragment.end is not None:
            return TextSpan(fragment.at, fragment.end)
        start = fragment.at + span[0] - begin
        end = fragment.at + min(span[1] - begin, len(fragment.text))
        return TextSpan(start, max(start + 1, end))
