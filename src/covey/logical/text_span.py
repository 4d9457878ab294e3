"""A place in an SQL text."""

from __future__ import annotations

from typing import NamedTuple


class TextSpan(NamedTuple):
    """Character offsets in a text; `end` is exclusive, and `text[slice(*span)]` what stands there.

    SELECT a FROM t
           ^          TextSpan(7, 8)
    """

    start: int
    end: int

    def holds(self, inner: tuple[int, int]) -> bool:
        """Whether another place is inside this one, or is it."""
        return self.start <= inner[0] and inner[1] <= self.end
