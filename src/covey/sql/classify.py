"""Read what AI.CLASSIFY asks and what it gives: a constant list of labels, perhaps described; one
or several of them, or probabilities.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlglot import TokenType

from covey.errors import QueryError
from covey.logical.calls import Reading
from covey.prompts.question import LETTERS, Label, Method, QuestionKind
from covey.sql.bind import Binder, shown
from covey.sql.braces import Purpose, Words
from covey.sql.call_parser import Argument, RawCall
from covey.sql.functions import example
from covey.sql.options import Arguments
from covey.sql.text import TokenList, nearest

_NONE = "none of these"


@dataclass(frozen=True, slots=True)
class Classification:
    """What a call of AI.CLASSIFY wants.

    Attributes:
        kind: one label, or each label for itself.
        labels: what the model is asked about.
        fallback: the label that stands for no other, if one was asked for.
        reading: what the call gives.
        top_k: how many labels it gives; None for one, or for all probabilities.
        method: how the label is found, where the user says so.
        full: whether all labels' scores are needed.
        words: the labels and descriptions that are written in the call.
    """

    kind: QuestionKind
    labels: tuple[Label, ...]
    fallback: str | None
    reading: Reading
    top_k: int | None
    method: Method | None
    full: bool
    words: tuple[Words, ...]


def read_classification(
    given: Arguments, raw: RawCall, tokens: TokenList, binder: Binder
) -> Classification:
    """The labels and the options about them.

    Raises:
        QueryError: they are wrong, or contradict each other.
    """
    mode = given.choice("output_mode", ("single", "multi"))
    probabilities = given.flag("probabilities")
    several = mode == "multi"
    # Asked for itself, or beside a label for all else, one label is enough.
    least = 1 if several or "none_of_these" in given.options else 2
    argument = given.parameters.get("categories")
    labels = read_labels(argument, raw, tokens, binder, least)
    _refuse_together(given, several, probabilities)
    fallback = _fallback(given, labels)
    if fallback is not None and not several:
        labels = (*labels, Label(fallback))
    top_k = _top_k(given, len(labels))
    full = probabilities or (top_k or 1) > 1
    method = _method(given, labels, several, full)
    # The best label's probability needs all others where content-free scores are taken off.
    full |= "threshold" in given.options and "calibration" in given.options and not several
    if probabilities:
        reading = Reading.PROBABILITIES
    else:
        reading = Reading.LABEL if mode is None and top_k is None else Reading.LABELS
    kind = QuestionKind.EACH if several else QuestionKind.CLASSIFY
    full = full and not several
    words = _words(argument, tokens)
    return Classification(kind, labels, fallback, reading, top_k, method, full, words)


def _words(argument: Argument | None, tokens: TokenList) -> tuple[Words, ...]:
    """The texts of a list of labels; none of a subquery, which gives labels of other rows."""
    if argument is None or not tokens.is_open(argument.first):
        return ()
    if tokens.begins_query(argument.first + 1):
        return ()
    return tuple(
        Words(tokens[i].text, tokens.span(i, i + 1), Purpose.LABEL)
        for i in range(argument.first, argument.last)
        if tokens[i].kind in (TokenType.STRING, TokenType.BYTE_STRING)
    )


def _refuse_together(given: Arguments, several: bool, probabilities: bool) -> None:
    """Refuse options that have no meaning beside each other."""
    options = given.options
    scores = "top_k" in options or probabilities
    for name, is_wrong, reason, hint in (
        (
            "top_k",
            several,
            "top_k has no meaning where each label is asked for itself",
            "Leave out output_mode for the labels in order, or top_k for all that apply.",
        ),
        (
            "output_mode",
            not several and scores,
            "output_mode => 'single' gives one label, without probabilities",
            "Leave it out.",
        ),
        (
            "threshold",
            not several and "none_of_these" not in options,
            "A threshold needs a label for the rows that do not reach it",
            "Add none_of_these => 'other', or output_mode => 'multi'.",
        ),
        (
            "threshold",
            not several and scores,
            "A threshold has no meaning beside probabilities and top_k",
            "Compare the probabilities in SQL.",
        ),
    ):
        if is_wrong and name in options:
            raise given.refuse(name, reason, hint)


def _fallback(given: Arguments, labels: tuple[Label, ...]) -> str | None:
    """The label of the option none_of_these."""
    value = given.value("none_of_these")
    if value is None or value is False:
        return None
    text = _NONE if value is True else value
    if not isinstance(text, str):
        raise given.wrong("none_of_these", "a label or TRUE", "Write 'other'.")
    check_labels([*labels, Label(text)], partial(given.refuse, "none_of_these"))
    return text


def _top_k(given: Arguments, count: int) -> int | None:
    value = given.value("top_k")
    if value is None or (type(value) is int and 1 <= value <= count):
        return value
    raise given.wrong("top_k", f"a whole number from 1 to {count}", "Write top_k => 2.")


def _method(
    given: Arguments, labels: tuple[Label, ...], several: bool, full: bool
) -> Method | None:
    chosen = given.choice("method", tuple(method.value for method in Method))
    if chosen is None:
        return None
    method = Method(chosen)
    if several:
        raise given.refuse(
            "method",
            "Where each label is asked for itself there is one method only",
            "Leave method out.",
        )
    if method is Method.STEPWISE and full:
        raise given.refuse(
            "method",
            "method => 'stepwise' finds the best label, not the scores of all",
            "Use method => 'trie', or leave it out.",
        )
    if method is Method.LETTERS and len(labels) > len(LETTERS):
        raise given.refuse(
            "method",
            f"method => 'letters' has {len(LETTERS)} letters, and there are {len(labels)} labels",
            "Use method => 'trie' or 'stepwise', or leave it out.",
        )
    return method


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
        raise tokens.error(
            f"{raw.spelling} needs its labels",
            raw.span,
            f"Write {example(raw.function, None, raw.spelling)}.",
        )
    span = argument.span

    def refuse(reason: str, hint: str = _HINT) -> QueryError:
        return tokens.error(reason, span, hint)

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
        near = nearest(name, _FIELDS)
        if near:
            raise refuse(f"A label has no field {name}", f"Did you mean {near}?")
        if len(names) > len(_FIELDS) or set(names) & set(_FIELDS):
            raise refuse(f"A label has no field {name}", _HINT)
