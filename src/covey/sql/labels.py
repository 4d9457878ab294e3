"""Read the labels of a classification: a constant list of texts, perhaps described."""

from __future__ import annotations

from typing import Any

from covey.errors import QueryError
from covey.prompts.question import Label
from covey.sql.bind import Binder, shown
from covey.sql.calls import Argument, RawCall
from covey.sql.dialect import example
from covey.sql.text import TokenList

_HINT = "Write ['billing', 'shipping'] or [{'label': 'billing', 'description': '…'}, …]."


def read_labels(
    argument: Argument | None, raw: RawCall, tokens: TokenList, binder: Binder
) -> tuple[Label, ...]:
    """The labels of a call.

    Raises:
        QueryError: they are missing or not constant, fewer than two, blank or equal.
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
        raise refuse("The labels must be a constant list of two or more texts")
    labels: list[Label] = []
    seen: set[str] = set()
    for each in value:
        label = _read_label(each)
        if label is None:
            raise refuse(f"The label {shown(each)} is no text")
        if not label.text.strip():
            raise refuse("A label is blank", "Give every label a name.")
        if label.text in seen:
            raise refuse(f"The label {label.text!r} is given twice", "Name every label once.")
        seen.add(label.text)
        labels.append(label)
    if len(labels) < 2:
        raise refuse(f"A classification needs two or more labels, not {len(labels)}")
    return tuple(labels)


def _read_label(value: Any) -> Label | None:
    if isinstance(value, str):
        return Label(value)
    if isinstance(value, dict):
        texts = list(value.values())
        named = {str(k).lower(): v for k, v in value.items()}
        text = named.get("label", texts[0] if texts else None)
        description = named.get("description", texts[1] if len(texts) > 1 else None)
        if isinstance(text, str):
            return Label(text, description if isinstance(description, str) else None)
    return None
