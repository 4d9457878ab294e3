"""A result as aligned text, for people. Widths are terminal cells, so wide scripts align."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from rich.cells import cell_len, set_cell_size

GAP = "  "
NARROWEST = 8
SHOWN_ROWS = 200


def render(
    names: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    total_rows: int,
    width: int | None,
) -> str:
    """Header, rule and rows; numbers to the right; a closing line when rows are left out.

    Args:
        names: the column names, duplicates allowed.
        rows: the rows to show, each as long as `names`.
        total_rows: the number of rows of the whole result.
        width: the terminal's width in cells, to which the widest columns are cut with
            an ellipsis; None cuts nothing.
    """
    layout = TableLayout(names)
    layout.measure(rows)
    if width is not None:
        layout.shrink(width)
    lines = [*layout.head(), *map(layout.line, rows)]
    if total_rows > len(rows):
        lines.append(
            f"({len(rows):,} of {total_rows:,} rows shown; --format csv, json or parquet"
            " gives them all)"
        )
    return "\n".join(lines)


class TableLayout:
    """How wide the columns of a table are, and which of them hold numbers.

    Args:
        names: the column names, duplicates allowed.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._headers = [cell_text(name) for name in names]
        self._widths = [cell_len(header) for header in self._headers]
        # Whether a column holds numbers alone; None while it holds nothing but NULL.
        self._numeric: list[bool | None] = [None] * len(names)

    def measure(self, rows: Sequence[Sequence[object]]) -> None:
        """Make room for some rows."""
        for row in rows:
            for i, value in enumerate(row):
                self._widths[i] = max(self._widths[i], cell_len(cell_text(value)))
                if value is not None:
                    self._numeric[i] = self._numeric[i] is not False and _is_number(value)

    def shrink(self, width: int) -> None:
        """Cut the widest columns until a line fits the width of a terminal."""
        self._widths = shrink(self._widths, width - len(GAP) * (len(self._widths) - 1))

    def head(self) -> list[str]:
        """Names and rule."""
        return [self.line(self._headers), GAP.join("-" * width for width in self._widths)]

    def line(self, row: Sequence[object]) -> str:
        """A row: numbers to the right, what is too long with an ellipsis."""
        return GAP.join(map(_fit, map(cell_text, row), self._widths, self._numeric)).rstrip()


def plain(text: str) -> str:
    """A text of several lines without other control characters."""
    return "\n".join(cell_text(line) for line in text.splitlines())


def cell_text(value: object) -> str:
    """One value on one line: SQL's words for NULL and booleans, no control characters."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(round(value, 6))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(cell_text(x) for x in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {cell_text(v)}" for k, v in value.items()) + "}"
    text = str(value)
    # A document may hold newlines, or escape codes that would drive the terminal.
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def shrink(widths: Sequence[int], room: int) -> list[int]:
    """Cut the widest columns until all fit in `room`, none below `NARROWEST`."""
    cut = list(widths)
    excess = sum(cut) - room
    while excess > 0:
        widest = max(range(len(cut)), key=cut.__getitem__)
        # Down to the second widest at once, so that the loop is short for any width.
        next_widest = max((w for i, w in enumerate(cut) if i != widest), default=0)
        floor = max(NARROWEST, min(next_widest, cut[widest] - 1))
        step = min(excess, cut[widest] - floor)
        if step <= 0:
            break
        cut[widest] -= step
        excess -= step
    return cut


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _fit(text: str, width: int, to_right: bool | None) -> str:
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    pad = " " * (width - length)
    return pad + text if to_right else text + pad
