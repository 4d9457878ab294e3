"""Prompt templates: literal text and numbered placeholders.

`{0}`, `{1}` … are documents, `{{` and `}}` are literal braces, and any other brace is
plain text.
"""

from __future__ import annotations

import re

_BRACES = re.compile(r"\{\{|\}\}|\{(\d+)\}")


def parse_template(text: str) -> list[str | int]:
    """Split a template into literal texts and placeholder indexes, in order.

    Neighbouring literals are joined and empty ones left out.

    >>> parse_template("Is {0} a {{json}} object?")
    ['Is ', 0, ' a {json} object?']
    """
    pieces: list[str | int] = []
    literal: list[str] = []
    end = 0

    def flush() -> None:
        joined = "".join(literal)
        if joined:
            pieces.append(joined)
        literal.clear()

    for match in _BRACES.finditer(text):
        literal.append(text[end : match.start()])
        end = match.end()
        if match[1] is None:
            literal.append(match[0][0])
        else:
            flush()
            pieces.append(int(match[1]))
    literal.append(text[end:])
    flush()
    return pieces


def escape_braces(literal: str) -> str:
    """The template text that parses back to this literal, whatever braces it holds.

    >>> parse_template(escape_braces("a {0} b"))
    ['a {0} b']
    """
    return literal.replace("{", "{{").replace("}", "}}")
