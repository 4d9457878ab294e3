"""Read the labels of a classification: a constant list of texts, perhaps described."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Callable
from typing import Any

from covey.errors import QueryError
from covey.prompts.question import Label
from covey.sql.bind import Binder, shown
from covey.sql.call_parser import Argument, RawCall
from covey.sql.dialect import example
from covey.sql.text import TokenList

MOST_LABELS = 1000

_HINT = "Write ['billing', 'shipping'] or [{'label': 'billing', 'description': '…'}, …]."
_FIELDS = ("label", "description")
_ONCE = "Name every label once; of a column take (SELECT DISTINCT …)."

Refuse = Callable[[str, str], QueryError]


def read_labels(
    argument: Argument | None, raw: RawCall, tokens: TokenList, binder: Binder, least: int
) -> tuple[Label, ...]:
    """The labels of a call: a constant list, a subquery, or a column of a table, table.column.

    Raises:
        QueryError: they are missing or not constant, of a table that the query defines,
            fewer than `least`, too many, blank, equal or no single line.
    """
    if argument is None:
        raise QueryError(
            f"{raw.spelling} needs its labels",
            sql=tokens.text,
            span=tokens.span(raw.first, raw.last),
            hint=f"Write {example(raw.function, None, raw.spelling)}.",
        )
    span = tokens.span(argument.first, argument.last)

    def refuse(reason: str, hint: str = _HINT) -> QueryError:
        return QueryError(reason, sql=tokens.text, span=span, hint=hint)

    value = binder.constant(span)
    if not isinstance(value, list):
        rows = binder.rows(span)
        if rows is None:
            raise refuse("The labels must be a constant list of two or more texts")
        if rows and len(rows[0]) > 2:
            raise refuse(
                f"This subquery of labels has {len(rows[0])} columns",
                "Select the name, or the "
                "name and its description: (SELECT name, meaning FROM topics).",
            )
        value = [row[0] if len(row) == 1 else row for row in rows]
    # One more than there may be shows mistakes, however many there are.
    labels = check_labels([_read_label(each, refuse) for each in value[: MOST_LABELS + 1]], refuse)
    if len(labels) < least:
        count = "a label" if least == 1 else "two or more labels"
        raise refuse(f"A classification needs {count}, not {len(labels)}")
    if len(labels) > MOST_LABELS:
        raise refuse(
            f"A classification takes at most {MOST_LABELS:,} labels, not {len(value):,}",
            "Classify into groups first, then within each group.",
        )
    return labels


def check_labels(labels: list[Label], refuse: Refuse) -> tuple[Label, ...]:
    """Refuse labels that a model or a reader could not tell apart.

    Raises:
        QueryError: as `refuse` makes it.
    """
    seen: dict[str, str] = {}
    for label in labels:
        if not label.text.strip():
            raise refuse("A label is blank", "Give every label a name.")
        for text in (label.text, label.description or ""):
            if len(text.splitlines()) > 1 or text.endswith("\n"):
                raise refuse(
                    f"The label {label.text!r} holds a line break", "Write each on one line."
                )
        name = unicodedata.normalize("NFC", label.text.strip())
        if label.text == seen.get(name):
            raise refuse(f"The label {label.text!r} is given twice", _ONCE)
        if name in seen:
            raise refuse(
                f"The labels {seen[name]!r} and {label.text!r} differ in blanks or accents' "
                "encoding alone",
                _ONCE,
            )
        seen[name] = label.text
    return tuple(labels)


def _read_label(value: Any, refuse: Refuse) -> Label:
    if isinstance(value, str):
        return Label(value)
    texts = list(value.values()) if isinstance(value, dict) else value
    if isinstance(texts, list | tuple):
        named = {str(k).lower(): v for k, v in value.items()} if isinstance(value, dict) else {}
        _check_fields(list(named), refuse)
        text = named.get("label", texts[0] if texts else None)
        description = named.get("description", texts[1] if len(texts) > 1 else None)
        if isinstance(text, str):
            return Label(text, description if isinstance(description, str) else None)
    raise refuse(f"The label {shown(value)} is no text", _HINT)


def _check_fields(names: list[str], refuse: Refuse) -> None:
    """Refuse a field that would be dropped or is a misspelled one.

    A struct of two fields of other names, the row of a table, is read in order.
    """
    for name in (name for name in names if name not in _FIELDS):
        near = difflib.get_close_matches(name, _FIELDS, n=1)
        if near:
            raise refuse(f"A label has no field {name}", f"Did you mean {near[0]}?")
        if len(names) > len(_FIELDS) or set(names) & set(_FIELDS):
            raise refuse(f"A label has no field {name}", _HINT)
