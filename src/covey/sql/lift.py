"""Lift the AI calls out of a text: each becomes a look-up that DuckDB can run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import duckdb
from sqlglot import TokenType

from covey.errors import QueryError
from covey.logical.calls import AICall, CallOptions, OnError, Reading
from covey.prompts.question import Label, Question, QuestionKind
from covey.sql.bind import Binder
from covey.sql.calls import Argument, RawCall, find_calls
from covey.sql.functions import IGNORED_OPTIONS, nearest_option
from covey.sql.prompt import read_prompt
from covey.sql.text import EditedText, Span, TokenList


@dataclass(slots=True)
class LiftedText:
    """A statement whose AI calls are known and replaced by look-ups.

    Attributes:
        tokens: the user's text.
        edited: the same text with every call replaced by its look-up over texts.
        calls: the calls; `calls[i].index == i`.
        binder: DuckDB's view of the edited text.
    """

    tokens: TokenList
    edited: EditedText
    calls: list[AICall]
    binder: Binder


def lift(sql: str, connection: duckdb.DuckDBPyConnection) -> LiftedText:
    """Find and read every AI call of one statement.

    Raises:
        QueryError: a call is wrong; says where, why and the mend.
        UnsupportedError: a function of another system.
    """
    tokens = TokenList(sql)
    edited = EditedText(sql)
    binder = Binder(connection, edited)
    calls: list[AICall] = []
    for raw in find_calls(tokens, binder.has_function):
        call = _read_call(raw, len(calls), tokens, binder)
        calls.append(call)
        edited.replace(call.span, *_text_lookup(call))
    return LiftedText(tokens, edited, calls, binder)


def _text_lookup(call: AICall) -> list[str | Span]:
    """The look-up of a call over the texts of its documents."""
    parts: list[str | Span] = [f"{call.text_lookup}("]
    for number, span in enumerate(call.arguments):
        parts += [", CAST((" if number else "CAST((", span, ") AS VARCHAR)"]
    # DuckDB tells a function how many rows it wants only through an argument.
    return [*parts, ")"] if call.arguments else [*parts, "NULL)"]


def _read_call(raw: RawCall, index: int, tokens: TokenList, binder: Binder) -> AICall:
    by_name, options_span, options = _sort_arguments(raw, tokens, binder)
    first_name = raw.function.parameters[0]
    prompt_argument = by_name.get(first_name)
    if prompt_argument is None:
        raise QueryError(
            f"{raw.spelling} needs a text argument",
            sql=tokens.text,
            span=tokens.span(raw.first, raw.last),
            hint=f"Write {raw.spelling}(PROMPT('Is it urgent? {{0}}', t.body)).",
        )
    prompt = read_prompt(tokens, prompt_argument.first, prompt_argument.last, binder)
    if raw.function.reading is Reading.LABEL:
        labels = _read_labels(by_name.get("categories"), raw, tokens, binder)
        task = options.pop("task_description", None)
        template = prompt.template if prompt.template != "{0}" else ""
        template = f"{task} {template}".strip() if task else template
        kind = QuestionKind.CLASSIFY
    else:
        labels, template, kind = (), prompt.template, QuestionKind.JUDGE
    anchor = _read_anchor(options.pop("anchor", None), prompt.arguments, tokens, options_span)
    question = Question(kind, template, len(prompt.arguments), labels, anchor)
    return AICall(
        index=index,
        name=raw.function.name,
        reading=raw.function.reading,
        question=question,
        arguments=prompt.arguments,
        span=tokens.span(raw.first, raw.last),
        name_span=raw.name_span,
        constant=not any(_names_column(tokens, span) for span in prompt.arguments),
        options=_read_options(options, options_span, tokens.text),
    )


def _names_column(tokens: TokenList, span: Span) -> bool:
    inside = (t for t in tokens if span[0] <= t.start and t.end <= span[1])
    return any(t.kind is TokenType.IDENTIFIER or t.word for t in inside)


def _sort_arguments(
    raw: RawCall, tokens: TokenList, binder: Binder
) -> tuple[dict[str, Argument], Span, dict[str, Any]]:
    """Arguments by parameter name, and the values of the options with their place."""
    by_name: dict[str, Argument] = {}
    options: dict[str, Any] = {}
    options_span = raw.name_span
    parameters = raw.function.parameters
    positional = 0
    for argument in raw.arguments:
        span = tokens.span(argument.first, argument.last)
        if argument.name in parameters:
            by_name[str(argument.name)] = argument
        elif argument.name is not None:
            _known_option(argument.name, raw, tokens.text, span)
            options[argument.name] = binder.constant(span)
            options_span = span
        elif positional < len(parameters):
            by_name[parameters[positional]] = argument
            positional += 1
        else:
            value = binder.constant(span)
            if not isinstance(value, dict):
                raise QueryError(
                    f"{raw.spelling} takes no such argument",
                    sql=tokens.text,
                    span=span,
                    hint="Options are a struct, {'selectivity': 0.2}, or named, "
                    "selectivity => 0.2. Several columns go into one PROMPT('… {0} {1}', a, b).",
                )
            for name in value:
                _known_option(name, raw, tokens.text, span)
            options.update({name.lower(): v for name, v in value.items()})
            options_span = span
    for name in IGNORED_OPTIONS:
        options.pop(name, None)
    return by_name, options_span, options


def _known_option(name: str, raw: RawCall, sql: str, span: Span) -> None:
    if name.lower() in raw.function.options or name.lower() in IGNORED_OPTIONS:
        return
    near = nearest_option(name, raw.function)
    raise QueryError(
        f"{raw.spelling} has no option {name}",
        sql=sql,
        span=span,
        hint=f"Did you mean {near}?" if near else f"It has {', '.join(raw.function.options)}.",
    )


def _read_labels(
    argument: Argument | None, raw: RawCall, tokens: TokenList, binder: Binder
) -> tuple[Label, ...]:
    if argument is None:
        raise QueryError(
            f"{raw.spelling} needs its labels",
            sql=tokens.text,
            span=tokens.span(raw.first, raw.last),
            hint=f"Write {raw.spelling}(t.body, ['billing', 'shipping']).",
        )
    span = tokens.span(argument.first, argument.last)
    value = binder.constant(span)
    labels = tuple(_read_label(v) for v in value) if isinstance(value, list) else ()
    seen: set[str] = set()
    for label in labels:
        if label is None or not label.text.strip() or label.text in seen:
            what = "is no text" if label is None else f"{label.text!r} is blank or given twice"
            raise QueryError(f"A label {what}", sql=tokens.text, span=span, hint="Name it once.")
        seen.add(label.text)
    if len(labels) < 2:
        raise QueryError(
            "The labels must be a constant list of two or more texts",
            sql=tokens.text,
            span=span,
            hint="Write ['billing', 'shipping'] or [{'label': 'billing', 'description': '…'}, …].",
        )
    return tuple(label for label in labels if label is not None)


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


def _read_anchor(value: Any, arguments: tuple[Span, ...], tokens: TokenList, span: Span) -> int:
    """The anchor as a placeholder number, from a number or an alias of its argument."""
    if value is None:
        return 0
    if isinstance(value, int) and 0 <= value < len(arguments):
        return value
    for number, (start, end) in enumerate(arguments):
        alias = tokens.text[start:end].partition(".")[0].strip().strip('"')
        if isinstance(value, str) and alias.lower() == value.lower():
            return number
    raise QueryError(
        f"The anchor {value!r} is none of the prompt's documents",
        sql=tokens.text,
        span=span,
        hint="Give a placeholder's number, or the alias before an argument's column.",
    )


def _read_options(options: dict[str, Any], span: Span, sql: str) -> CallOptions:
    def share(name: str) -> float | None:
        value = options.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not _is_share(value):
            raise QueryError(
                f"The option {name} must be a number from 0 to 1, not {value!r}",
                sql=sql,
                span=span,
                hint="Write it as 0.25.",
            )
        return float(value)

    on_error = options.get("on_error", OnError.NULL.value)
    if on_error not in [choice.value for choice in OnError]:
        raise QueryError(
            f"The option on_error must be 'null' or 'fail', not {on_error!r}",
            sql=sql,
            span=span,
            hint="'null' makes a failed row NULL and counts it; 'fail' ends the query.",
        )
    return CallOptions(
        share("selectivity"), share("threshold"), OnError(on_error), share("max_error_ratio")
    )


def _is_share(value: Any) -> bool:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return False
    return math.isfinite(number) and 0.0 <= number <= 1.0
