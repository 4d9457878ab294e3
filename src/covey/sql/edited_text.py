"""Edits of SQL text that leave the rest untouched.

Covey never regenerates a user's SQL. It replaces spans of the text and hands the
result to DuckDB, so that whatever DuckDB accepts arrives there letter for letter
(docs/decisions/0001-splice-sql-text.md).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence

from covey.logical.text_span import TextSpan

# What stands in the place of a span: new text, and spans whose edited text is copied there.
Replacement = Sequence[str | TextSpan]
Edits = Mapping[TextSpan, Replacement]
NO_EDITS: Edits = {}


class EditedText:
    """A text and replacements of some of its spans.

    An edit inside the span of another is used when the inner span is rendered alone
    or copied by the outer one; where both are rendered, the outer one wins.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._numbers = itertools.count()
        # When each was made; a revert brings the earlier number back.
        self._made: dict[TextSpan, int] = {}
        self._edits: dict[TextSpan, Replacement] = {}
        # In the order in which they are written; see `_place`.
        self._places: list[TextSpan] = []
        self._done: list[tuple[TextSpan, Replacement | None, int]] = []

    def version(self, span: TextSpan) -> tuple[int, ...]:
        """Equal as long as no edit inside a span is."""
        first = bisect_left(self._places, (span[0], -len(self.text)))
        last = bisect_right(self._places, (span[1], 0))
        return tuple(self._made[TextSpan(at, -end)] for at, end in self._places[first:last])

    def replace(self, span: TextSpan, *new: str | TextSpan) -> None:
        """Put `new` in the place of `span`; a second edit of one span replaces the first."""
        self._done.append((span, self._edits.get(span), self._made.get(span, 0)))
        if span not in self._edits:
            insort(self._places, _place(span))
        self._edits[span] = new
        self._made[span] = next(self._numbers)

    def replacement(self, span: TextSpan) -> Replacement:
        """What stands in the place of a span: nothing new where it was not replaced."""
        return self._edits.get(span, (self.text[slice(*span)],))

    def snapshot(self) -> int:
        """The edits so far, for `revert`."""
        return len(self._done)

    def revert(self, snapshot: int) -> None:
        """Undo what was edited since a snapshot."""
        while len(self._done) > snapshot:
            span, before, self._made[span] = self._done.pop()
            if before is None:
                del self._edits[span], self._made[span]
                del self._places[bisect_left(self._places, _place(span))]
            else:
                self._edits[span] = before

    def render(self, span: TextSpan | None = None, also: Edits = NO_EDITS) -> str:
        """The edited text of `span`, or of everything, with further edits that are not kept."""
        return self.render_mapped(span, also)[0]

    def render_mapped(
        self, span: TextSpan | None = None, also: Edits = NO_EDITS
    ) -> tuple[str, OffsetMap]:
        """As `render`, with the map from offsets of the edited text to the original's."""
        writer = self._written(TextSpan(0, len(self.text)) if span is None else span, also)
        return "".join(writer.pieces), OffsetMap(writer.marks)

    def applied(self, span: TextSpan) -> set[TextSpan]:
        """The spans of the edits that show in the edited text of `span`."""
        return self._written(span).applied

    def _written(self, span: TextSpan, also: Edits = NO_EDITS) -> _Writer:
        new = [_place(edit) for edit in also if edit not in self._edits]
        places = sorted([*self._places, *new]) if new else self._places
        # Later maps are looked into where the first has no such edit.
        writer = _Writer(self.text, ChainMap({**also}, self._edits), places)
        writer.write(span)
        return writer


def _place(span: TextSpan) -> TextSpan:
    """Sorts outermost first at each place: the earlier start, then the longer span."""
    return TextSpan(span[0], -span[1])


class _Writer:
    """Writes edited text and remembers where each piece came from."""

    def __init__(self, text: str, edits: Edits, places: list[TextSpan]) -> None:
        self.text = text
        self.edits = edits
        self.places = places
        self.applied: set[TextSpan] = set()
        self.pieces: list[str] = []
        self.marks: list[tuple[int, int, bool]] = []
        self.length = 0

    def put(self, piece: str, origin: int, copied: bool) -> None:
        self.marks.append((self.length, origin, copied))
        self.pieces.append(piece)
        self.length += len(piece)

    def write(self, span: TextSpan) -> None:
        at, end = span
        for edit in self.outermost(span):
            self.put(self.text[at : edit.start], at, True)
            self.applied.add(edit)
            place = edit.start
            for part in self.edits[edit]:
                if isinstance(part, str):
                    self.put(part, place, False)
                else:
                    self.write(part)
                    place = part[1]
            at = edit.end
        self.put(self.text[at:end], at, True)

    def outermost(self, span: TextSpan) -> Iterator[TextSpan]:
        """The edits inside a span that are in no other edit inside it."""
        begin, end = span
        # What is inserted at the end of a span belongs to what follows.
        whole = end == len(self.text) or begin == end
        i, after_all = bisect_left(self.places, (begin, -len(self.text))), len(self.places)
        while i < after_all:
            start, stop = self.places[i][0], -self.places[i][1]
            if start > end or (start == end and not whole):
                return
            i += 1
            if stop <= end:
                yield TextSpan(start, stop)
                i = max(i, bisect_left(self.places, (stop, -len(self.text))))


class OffsetMap:
    """Where an offset of an edited text stood in the original.

    Args:
        marks: (offset in the edited text, offset in the original, whether the piece
            that begins there was copied), ascending.
    """

    def __init__(self, marks: list[tuple[int, int, bool]]) -> None:
        self._marks = marks
        self._starts = [m[0] for m in marks]

    def original(self, offset: int) -> int:
        """An offset inside a replacement maps to the start of what it replaced, or to the
        end of what was copied into it before.
        """
        start, origin, copied = self._marks[bisect_right(self._starts, offset) - 1]
        return origin + (offset - start if copied else 0)
