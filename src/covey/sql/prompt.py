"""Read the prompt argument of an AI call into a template and document expressions.

Three forms: PROMPT('… {0} …', a), a tuple ('text ', a, ' text') in which braces are
plain text, and a single expression, which is a document without a question.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import TokenType

from covey.logical.text_span import TextSpan
from covey.prompts.question import escape_braces, parse_template
from covey.sql.bind import Binder
from covey.sql.braces import NAMED_OR_EMPTY, Words
from covey.sql.call_parser import split_arguments
from covey.sql.text import TokenList

_TUPLE_NAMES = ("STRUCT", "ROW")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, here `PROMPT('Is {0} in {1}?', t.a, u.b)`.

    Attributes:
        template: "Is {0} in {1}?".
        arguments: places of what its placeholders stand for, `t.a` and `u.b`.
        words: the constant words in which a reader may look for placeholders.
    """

    template: str
    arguments: tuple[TextSpan, ...]
    words: tuple[Words, ...] = ()


def read_prompt(tokens: TokenList, first: int, last: int, binder: Binder) -> Prompt:
    """Read the prompt in the token range [first, last).

    Raises:
        QueryError: a template that is no constant text, a placeholder without an
            argument or an argument without a placeholder.
    """
    opening = _called(tokens, first, last)
    if opening is not None and tokens[first].name == "PROMPT":
        return _read_template(tokens, first, opening, binder)
    in_brackets = opening == first and not tokens.begins_query(opening + 1)
    if opening is not None and (in_brackets or tokens[first].word in _TUPLE_NAMES):
        fields = split_arguments(tokens, opening + 1, last - 1)
        if not fields:
            raise tokens.error(
                "This tuple is empty",
                tokens.span(first, last),
                "Write texts and columns: ('Is it urgent? ', t.body).",
            )
        if len(fields) > 1 or opening != first:
            return _read_tuple(tokens, fields)
    text = _literal(tokens, first, last)
    words = _words(tokens, first, last)
    if text is not None:
        return Prompt(escape_braces(text), (), words)
    return Prompt("{0}", (tokens.span(first, last),), words)


# Functions that put texts together.
_JOINS_TEXTS = ("", "CONCAT", "CONCAT_WS")


def _words(tokens: TokenList, first: int, last: int) -> tuple[Words, ...]:
    """The literals that an expression puts together: not the arguments of other functions."""
    found: list[Words] = []
    for i in tokens.top_level(first, last):
        if tokens[i].kind in (TokenType.STRING, TokenType.BYTE_STRING):
            found.append(Words(tokens[i].text, tokens.span(i, i + 1)))
        elif tokens[i].kind is TokenType.L_PAREN and (
            i == first or not tokens[i - 1].is_name or tokens[i - 1].word in _JOINS_TEXTS
        ):
            found += _words(tokens, i + 1, tokens.partner[i])
    return tuple(found)


def _called(tokens: TokenList, first: int, last: int) -> int | None:
    """Index of the bracket when the whole range is `(…)` or `name(…)`."""
    return next(
        (
            opening
            for opening in (first, first + 1)
            if tokens.kind(opening) is TokenType.L_PAREN and tokens.in_brackets(opening, last)
        ),
        None,
    )


def _literal(tokens: TokenList, first: int, last: int) -> str | None:
    """The text of a range that is one plain string literal."""
    is_literal = last - first == 1 and tokens[first].kind is TokenType.STRING
    return tokens[first].text if is_literal else None


def _read_template(tokens: TokenList, first: int, opening: int, binder: Binder) -> Prompt:
    closing = tokens.partner[opening]
    if closing == opening + 1:
        raise tokens.error(
            "PROMPT needs a text",
            tokens.span(first, closing + 1),
            "Write PROMPT('Is it urgent? {0}', t.body).",
        )
    (start, stop), *rest = split_arguments(tokens, opening + 1, closing)
    span = tokens.span(start, stop)
    template = _literal(tokens, start, stop)
    if template is None:
        value = binder.constant(span)
        if not isinstance(value, str):
            raise tokens.error(
                "The first argument of PROMPT must be a constant text",
                span,
                "Write the question as a literal and put columns behind it: "
                "PROMPT('Is it urgent? {0}', t.body).",
            )
        template = value
    for a, b in rest:
        if tokens[a].kind is TokenType.STAR or tokens[b - 1].kind is TokenType.STAR:
            raise tokens.error(
                "A star stands for several columns, and a placeholder for one document",
                tokens.span(a, b),
                "Name the columns, or write COLUMNS(*) for a call about each of them.",
            )
    arguments = tuple(tokens.span(a, b) for a, b in rest)
    _check_placeholders(tokens, template, span, arguments)
    return Prompt(template, arguments, (Words(template, span),))


def _check_placeholders(
    tokens: TokenList, template: str, template_span: TextSpan, arguments: tuple[TextSpan, ...]
) -> None:
    used = {piece for piece in parse_template(template) if isinstance(piece, int)}
    for number in sorted(used):
        if number >= len(arguments):
            count = len(arguments)
            behind = f"{count} argument{'' if count == 1 else 's'} follow{'s' * (count == 1)}"
            raise tokens.error(
                f"The placeholder {{{number}}} has no argument: {behind} the text",
                template_span,
                "Add the argument, or write {{ and }} for literal braces.",
            )
    named = NAMED_OR_EMPTY.search(template)
    for number, span in enumerate(arguments):
        if number not in used:
            hint = f"Put {{{number}}} where it belongs, or remove the argument."
            if named is not None:
                hint = f"{named[0]} is plain text: placeholders are numbers. {hint}"
            reason = f"This argument has no placeholder: the text has no {{{number}}}"
            raise tokens.error(reason, span, hint)


def _read_tuple(tokens: TokenList, fields: list[tuple[int, int]]) -> Prompt:
    pieces: list[str] = []
    arguments: list[TextSpan] = []
    words: list[Words] = []
    for first, last in fields:
        text = _literal(tokens, first, last)
        if text is not None:
            pieces.append(escape_braces(text))
            words.append(Words(text, tokens.span(first, last)))
        else:
            pieces.append(f"{{{len(arguments)}}}")
            arguments.append(tokens.span(first, last))
    # Braces in a tuple are plain text; one without a column is the same for all rows.
    return Prompt("".join(pieces), tuple(arguments), () if arguments else tuple(words))
