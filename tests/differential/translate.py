"""Covey's SQL written over for the oracle: each AI call becomes a planted function.

A small reader of its own: it finds calls by name, splits arguments at commas outside
quotes and brackets, and leaves every other character as it is. It knows the spellings
of the calls that tests use, and nothing of tables, types or clauses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from differential.tree import Bare, Call, Kind, Options, Pieces, Prompt, Sql, Template, sql

NAMES = {
    "AI.IF": Kind.IF,
    "AI_IF": Kind.IF,
    "AI_FILTER": Kind.IF,
    "AI_JOIN": Kind.IF,
    "AI.SCORE": Kind.SCORE,
    "AI_SCORE": Kind.SCORE,
    "AI.CLASSIFY": Kind.CLASSIFY,
    "AI_CLASSIFY": Kind.CLASSIFY,
}
# Names may be quoted, as some tools write them.
CALL = re.compile(
    r"(?<![\w.])\"?AI(?:\"?\s*\.\s*\"?|_)(?:IF|FILTER|JOIN|SCORE|CLASSIFY)\"?\s*\(", re.IGNORECASE
)
QUOTED_NAME = re.compile(r'"(AI|IF|FILTER|SCORE|CLASSIFY|AI_\w+|PROMPT)"', re.IGNORECASE)
QUERY = re.compile(r"\(\s*(?:SELECT|WITH|FROM|VALUES)\b", re.IGNORECASE)
# Quoted text, quoted names and comments: no call and no bracket counts inside.
OPAQUE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
TEXT = re.compile(r"\s*'((?:[^']|'')*)'\s*")
NAMED = re.compile(r"\s*(\w+)\s*(?:=>|:=)\s*(.*)", re.DOTALL)
OPTION = re.compile(r"\s*'?(\w+)'?\s*:\s*(.*)", re.DOTALL)


class TranslationError(Exception):
    """A call whose form this reader does not know."""


def translate(text: str) -> str:
    """The text for the oracle."""
    return parse(text).oracle()


def parse(text: str) -> Sql:
    """The text with its calls as nodes."""
    text = QUOTED_NAME.sub(r"\1", text)
    parts: list[str | Call] = []
    start = 0
    for match in _outside_quotes(CALL, text):
        if match.start() < start:
            continue
        end = _closing(text, match.end())
        parts.append(text[start : match.start()])
        name = re.sub(r"\s", "", match[0][:-1]).upper()
        parts.append(_call(name, text[match.end() : end]))
        start = end + 1
    parts.append(text[start:])
    return sql(*parts)


def _outside_quotes(form: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    hidden = OPAQUE.sub(lambda match: " " * len(match[0]), text)
    return form.finditer(hidden)


def _closing(text: str, start: int) -> int:
    """Where the bracket that was opened before `start` closes."""
    depth = 1
    for match in _outside_quotes(re.compile(r"[()\[\]{}]"), text):
        if match.start() >= start:
            depth += 1 if match[0] in "([{" else -1
            if depth == 0:
                return match.start()
    raise TranslationError(f"no closing bracket: {text}")


def split(text: str) -> list[str]:
    """The parts between commas outside quotes and brackets."""
    parts, depth, start = [], 0, 0
    for match in _outside_quotes(re.compile(r"[()\[\]{},]"), text):
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
        elif depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def _call(name: str, inside: str) -> Call:
    kind = NAMES[name]
    positional: list[str] = []
    options: dict[str, str] = {}
    for argument in split(inside):
        named = NAMED.fullmatch(argument)
        if named:
            options[named[1].lower()] = named[2]
        elif argument.startswith("{"):
            for option in split(argument[1:-1]):
                found = OPTION.fullmatch(option)
                if found is None:
                    raise TranslationError(f"no option: {option}")
                options[found[1].lower()] = found[2]
        else:
            positional.append(argument)
    for key in ("prompt", "input", "categories", "labels"):
        if key in options:
            positional.append(options.pop(key))
    threshold = float(options["threshold"]) if "threshold" in options else None
    labels = _labels(positional[1]) if kind is Kind.CLASSIFY else ()
    return Call(kind, name, _prompt(positional[0]), Options(threshold), labels)


def _prompt(text: str) -> Prompt:
    if re.match(r"PROMPT\s*\(", text, re.IGNORECASE):
        template, *arguments = split(text[text.index("(") + 1 : _last(text)])
        return Template(_literal(template), tuple(parse(each) for each in arguments))
    in_brackets = text.startswith("(") and _closing(text, 1) == len(text) - 1
    if in_brackets and QUERY.match(text) is None:
        pieces = split(text[1:-1])
        if len(pieces) > 1:
            return Pieces(tuple(_piece(piece) for piece in pieces))
        return _prompt(pieces[0])
    piece = _piece(text)
    return Pieces((piece,)) if isinstance(piece, str) else Bare(piece)


def _last(text: str) -> int:
    return len(text.rstrip()) - 1


def _piece(text: str) -> str | Sql:
    return _literal(text) if TEXT.fullmatch(text) else parse(text)


def _literal(text: str) -> str:
    found = TEXT.fullmatch(text)
    if found is None:
        raise TranslationError(f"no text literal: {text}")
    return found[1].replace("''", "'")


def _labels(text: str) -> tuple[str, ...]:
    inside = text[text.index("[") + 1 : text.rindex("]")]
    return tuple(_label(label) for label in split(inside))


def _label(text: str) -> str:
    """A label, or the first field of a label with its description."""
    if text.startswith(("{", "(")):
        first = split(text[1:-1])[0]
        found = OPTION.fullmatch(first)
        return _literal(found[2] if found and not TEXT.fullmatch(first) else first)
    return _literal(text)
