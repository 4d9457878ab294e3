"""Take the AI calls out of a text: each becomes the call of a UDF."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial

import duckdb
from sqlglot import TokenType

from covey.logical.calls import AICall, Reading
from covey.logical.text_span import TextSpan
from covey.prompts.question import Method, Question, QuestionKind, parse_template
from covey.sql.bind import Binder, has_function
from covey.sql.braces import Purpose, Words, refuse_columns_in_braces
from covey.sql.call_parser import Argument, RawCall, check, check_templates, detect
from covey.sql.classify import read_classification
from covey.sql.conditions import refuse_as_condition
from covey.sql.edited_text import EditedText
from covey.sql.examples import read_calibration, read_examples
from covey.sql.functions import Dialect, example
from covey.sql.options import Arguments
from covey.sql.prompt import read_prompt
from covey.sql.statements import refuse_kept_calls
from covey.sql.text import TokenList, read_tokens


@dataclass(slots=True)
class ExtractedCalls:
    """A statement whose AI calls are known and replaced by calls of UDFs.

    Attributes:
        edited: the same text with every call replaced by its UDF call over texts.
        calls: the calls; `calls[i].index == i`.
        binder: DuckDB's view of the edited text.
        words: of each call its constant words.
        dialect: whose spelling alone is accepted.
    """

    tokens: TokenList
    edited: EditedText
    calls: list[AICall]
    binder: Binder
    words: list[tuple[Words, ...]]
    dialect: Dialect | None

    def refuse_columns_in_braces(self, scope: Callable[[AICall], Hashable]) -> None:
        """See `covey.sql.braces`; the statement binds, and its UDFs are known to DuckDB."""
        refuse_columns_in_braces(
            self.words, self.calls, self.tokens, self.binder, self.dialect, scope
        )


def extract_calls(
    sql: str,
    found: tuple[RawCall, ...],
    connection: duckdb.DuckDBPyConnection,
    dialect: Dialect | None = None,
    prefix: str = "covey",
) -> ExtractedCalls:
    """Read every AI call of one statement.

    Args:
        sql: the statement.
        found: its calls, as `find_calls` gives them.
        connection: where its names are known.
        dialect: whose spelling alone is accepted; None accepts both.
        prefix: of the names of the UDFs, free on the connection.

    Raises:
        QueryError: a call is wrong; says where, why and the mend.
        UnsupportedError: a function of another system.
    """
    tokens = read_tokens(sql)
    edited = EditedText(sql)
    binder = Binder(connection, edited)
    calls: list[AICall] = []
    alike: dict[Hashable, int] = {}
    # Where DuckDB groups rows it compares expressions, whichever way they are written.
    grouped = "GROUP BY" in tokens.words(tokens.whole)
    sharing: dict[Hashable, int] = {}
    templates: dict[tuple[str | int, ...], str] = {}
    known = partial(has_function, connection)
    words: list[tuple[Words, ...]] = []
    fixed = dialect
    check_templates(found, tokens, dialect, known)
    refuse_kept_calls(tokens, found)
    if dialect is None:
        dialect = detect(found, tokens)
    else:
        check(found, tokens, dialect)
    for raw in found:
        call, own = _read_call(raw, len(calls), tokens, binder, dialect)
        words.append(own)
        refuse_as_condition(call, raw.spelling, tokens)
        # However braces are escaped, what reads alike is one question: as it is written first.
        question = call.question
        template = templates.setdefault(tuple(parse_template(question.template)), question.template)
        call = replace(call, question=replace(question, template=template))
        same_as = alike.setdefault(_written(call, sql), call.index)
        shares = sharing.setdefault(_asked(call), call.index) if grouped else same_as
        call = replace(call, same_as=same_as, shares=shares, prefix=prefix)
        calls.append(call)
        edited.replace(call.span, *udf_call(call))
    return ExtractedCalls(tokens, edited, _share_scores(calls), binder, words, fixed)


def _written(call: AICall, sql: str) -> tuple[Hashable, ...]:
    """What calls that are written alike have in common."""
    arguments = tuple(" ".join(sql[slice(*span)].split()) for span in call.arguments)
    return *_asked(call), arguments


def _asked(call: AICall) -> tuple[Hashable, ...]:
    """What calls have in common that give the same for the same documents."""
    return call.reading, call.question, call.options


def udf_call(call: AICall, may_fold: bool = False) -> list[str | TextSpan]:
    """The call of the UDF that stands for an AI call, over the texts of its documents.

    Args:
        may_fold: whether DuckDB may look a constant up while it binds, for rows that may
            not exist. A subquery in its arguments keeps it from that.
    """
    parts: list[str | TextSpan] = [f"{call.text_udf}("]
    for number, span in enumerate(call.arguments):
        parts += [", CAST((" if number else "CAST((", span, ") AS VARCHAR)"]
    if call.constant and not may_fold:
        parts += [", (SELECT NULL)" if call.arguments else "(SELECT NULL)"]
    elif not call.arguments:
        # Only an argument tells a function how many rows are wanted.
        parts.append("NULL")
    return [*parts, ")"]


def _read_call(
    raw: RawCall, index: int, tokens: TokenList, binder: Binder, dialect: Dialect | None
) -> tuple[AICall, tuple[Words, ...]]:
    """A call, and its constant words."""
    given = Arguments(raw, tokens, binder, dialect)
    argument = _text_argument(given, raw, tokens, dialect)
    prompt = read_prompt(tokens, argument.first, argument.last, binder)
    words = prompt.words
    arity = len(prompt.arguments)
    options, reading = given.call_options(), raw.function.reading
    judged = reading is not Reading.LABEL
    calibration, labelled = read_calibration(given, arity, judged)
    anchor = given.anchor(prompt.arguments)
    question = Question(
        QuestionKind.JUDGE, prompt.template, arity, anchor=anchor, calibration=calibration
    )
    if not judged:
        wanted = read_classification(given, raw, tokens, binder)
        reading = wanted.reading
        task = given.text("task_description")
        words += wanted.words
        if task is not None:
            words += (Words(task, given.options["task_description"].span, Purpose.TASK),)
        options = replace(options, fallback=wanted.fallback, top_k=wanted.top_k)
        question = replace(
            question,
            kind=wanted.kind,
            template=_task(prompt.template, task),
            labels=wanted.labels,
            method=wanted.method,
            full=wanted.full,
        )
    each = question.kind is QuestionKind.EACH
    examples = read_examples(given, arity, question.labels, each)
    call = AICall(
        index=index,
        name=raw.function.name,
        reading=reading,
        question=replace(question, examples=examples),
        arguments=prompt.arguments,
        span=raw.span,
        name_span=raw.name_span,
        same_as=index,
        shares=index,
        prefix="",
        constant=not any(_names_column(tokens, span) for span in prompt.arguments),
        options=replace(options, labelled=labelled),
    )
    return call, words


def _text_argument(
    given: Arguments, raw: RawCall, tokens: TokenList, dialect: Dialect | None
) -> Argument:
    argument = given.parameters.get(raw.function.parameters[0])
    if argument is None:
        hint = f"Write {example(raw.function, dialect, raw.spelling)}."
        raise tokens.error(f"{raw.spelling} needs a text argument", raw.span, hint)
    return argument


def _task(template: str, description: str | None) -> str:
    """The template of a classification; "" where it asks nothing."""
    asked = "" if template == "{0}" else template
    return f"{description} {asked}".strip() if description else asked


def _share_scores(calls: list[AICall]) -> list[AICall]:
    """Let questions that differ in whether all scores are wanted be one that gives them."""
    full = {replace(call.question, full=False) for call in calls if call.question.full}
    return [
        replace(call, question=replace(call.question, full=True))
        if call.question.method is not Method.STEPWISE and call.question in full
        else call
        for call in calls
    ]


def _names_column(tokens: TokenList, span: TextSpan) -> bool:
    return any(t.kind is TokenType.IDENTIFIER or t.word for t in tokens.inside(span))
