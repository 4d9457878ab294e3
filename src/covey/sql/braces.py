"""Braces in constant words that name a column: a question about a row that names none.

    AI.IF('Is {body} a refund?')    asks the same of every row

Placeholders are numbers, and any other brace is plain text. Where it names a column that the
call can see, nobody means that: it is refused, and the call that was meant is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from covey.errors import QueryError
from covey.logical.calls import AICall
from covey.logical.text_span import TextSpan
from covey.sql.bind import Binder
from covey.sql.functions import Dialect
from covey.sql.text import TokenList, quote_name, quote_text

# Numbers are placeholders, even where a column goes by one.
NAMED = re.compile(r"(?<!\{)\{(?!\d+\})([^{}]+)\}(?!\})")
NAMED_OR_EMPTY = re.compile(r"(?<!\{)\{(?!\d+\})[^{}]*\}(?!\})")
# `body`, `body!r` and `body:>10` as Python's formats have them.
_FORMATTED = re.compile(r"""([^!:"']+?)\s*(?:![rsa])?(?::\S*)?""")
# Different braces of one text that are looked at; what has more is no question about columns.
_MOST_LOOKS = 30
# What DuckDB says of a name that several tables have, and of one that is no key of the group.
_AMBIGUOUS = "Ambiguous reference"
_NO_KEY = "must appear in the GROUP BY"
# A name that no table has.
_NO_COLUMN = quote_name("\x01")


class Purpose(Enum):
    """What words are for."""

    QUESTION = "question"
    LABEL = "label"
    TASK = "task description"


@dataclass(frozen=True, slots=True)
class Words:
    """Constant words of a call.

    Attributes:
        text: as the model sees them.
        span: the literal, or what else gives them.
        purpose: what they are for.
    """

    text: str
    span: TextSpan
    purpose: Purpose = Purpose.QUESTION


def refuse_columns_in_braces(
    words: list[tuple[Words, ...]],
    calls: list[AICall],
    tokens: TokenList,
    binder: Binder,
    dialect: Dialect | None,
    scope: Callable[[AICall], Hashable],
) -> None:
    """Refuse constant words with braces that name a column in sight.

    Args:
        words: of each call.
        calls: the calls; their UDFs are known to DuckDB, and called in the binder's text.
        binder: of the statement, which binds.
        dialect: how the mend is written; None is PROMPT.
        scope: what calls have in common that see the same columns.

    Raises:
        QueryError: at the braces.
    """
    # Every look is a statement bound: one for all calls that see the same columns.
    known: dict[tuple[Hashable, str], str | None] = {}

    def column(content: str, call: AICall) -> str | None:
        place = (scope(call), content)
        if place not in known:
            known[place] = _column(content, call, binder)
        return known[place]

    for call, own in zip(calls, words, strict=True):
        for each in own:
            contents = islice(dict.fromkeys(NAMED.findall(each.text)), _MOST_LOOKS)
            columns = ((content, column(content, call)) for content in contents)
            found = {f"{{{content}}}": name for content, name in columns if name is not None}
            if found:
                raise _refusal(each, found, call, tokens, dialect)


def without_format(content: str) -> str:
    """What stands in braces, without a conversion or format as Python has them."""
    formatted = _FORMATTED.fullmatch(content.strip())
    return formatted[1] if formatted else content


def _column(content: str, call: AICall, binder: Binder) -> str | None:
    """The column, or expression of columns, in braces as SQL; None where it is none."""
    for form in _forms(content):
        if binder.binds(f"SELECT ({form})"):
            continue  # It needs no row: a constant, or now().
        # DuckDB looks at nothing in a WINDOW clause that nobody uses.
        if _is_seen(form, call, binder) and not _is_seen(_NO_COLUMN, call, binder):
            return form
    return None


def _is_seen(form: str, call: AICall, binder: Binder) -> bool:
    """Whether DuckDB finds all that SQL names, at the place of a call."""
    reason = _refused(form, call, binder)
    if reason is not None and _NO_KEY in reason:
        # HAVING says so of whatever is no key of the group, whether it is a column or not.
        reason = _refused(f"any_value({form})", call, binder)
    return reason is None or _AMBIGUOUS in reason


def _refused(form: str, call: AICall, binder: Binder) -> str | None:
    """Why DuckDB does not bind SQL at the place of a call; None where it does."""
    try:
        binder.check({call.span: [f"{call.text_udf}(CAST(({form}) AS VARCHAR))"]})
    except QueryError as error:
        return error.reason
    return None


def _forms(content: str) -> Iterator[str]:
    """What braces may mean: an expression, one with a format behind it, a name with blanks."""
    plain = content.strip()
    forms = [plain, without_format(plain), quote_name(plain)]
    for form in dict.fromkeys(forms):
        try:
            if len(TokenList(form)) and '""' not in form:
                yield form
        except QueryError:
            continue


def _refusal(
    words: Words, found: dict[str, str], call: AICall, tokens: TokenList, dialect: Dialect | None
) -> QueryError:
    braces, column = next(iter(found.items()))
    start = tokens.text.find(braces, *words.span)
    span = words.span if start < 0 else TextSpan(start, start + len(braces))
    if words.purpose is not Purpose.QUESTION:
        hint = (
            f"A {words.purpose.value} is the same for all rows. Put the column into the input: "
            f"PROMPT('… {{0}}', {column})."
        )
    else:
        hint = f"Write {_mended(words, found, call, tokens, dialect)}."
        if dialect is not Dialect.BIGQUERY:
            hint += " In PROMPT {{ and }} are braces."
    return tokens.error(f"{braces} is plain text here, though {column} is a column", span, hint)


def _mended(
    words: Words, found: dict[str, str], call: AICall, tokens: TokenList, dialect: Dialect | None
) -> str:
    """The prompt that was meant."""
    if dialect is Dialect.BIGQUERY:
        pieces = NAMED.split(words.text)
        fields = [
            found.get(f"{{{piece}}}", quote_text(piece)) if i % 2 else quote_text(piece)
            for i, piece in enumerate(pieces)
            if piece
        ]
        return f"({', '.join(fields)})"
    arguments = [tokens.cut(span) for span in call.arguments]
    if call.question.template == "{0}":
        arguments = []  # The words are a part of the one argument.
    columns = list(dict.fromkeys(found.values()))
    text = NAMED.sub(
        lambda match: (
            f"{{{len(arguments) + columns.index(found[match[0]])}}}"
            if match[0] in found
            else match[0]
        ),
        words.text,
    )
    return f"PROMPT({', '.join([quote_text(text), *arguments, *columns])})"
