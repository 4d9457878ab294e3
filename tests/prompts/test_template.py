"""Braces in templates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.prompts.question import escape_braces, parse_template


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("no document", ["no document"]),
        ("{0}", [0]),
        ("Is {0} like {1}?", ["Is ", 0, " like ", 1, "?"]),
        ("{10}{2}{10}", [10, 2, 10]),
        ('Is {{"a": 1}} valid? {0}', ['Is {"a": 1} valid? ', 0]),
        ("{name} { 0 } {-1} {0", ["{name} { 0 } {-1} {0"]),
        ("{{0}}", ["{0}"]),
        ("{{{0}}}", ["{", 0, "}"]),
        ("}{", ["}{"]),
    ],
)
def test_only_a_number_in_single_braces_is_a_placeholder(
    text: str, pieces: list[str | int]
) -> None:
    assert parse_template(text) == pieces


@given(st.text(alphabet="{}01 a"))
def test_escaped_text_is_one_literal(text: str) -> None:
    assert parse_template(escape_braces(text)) == ([text] if text else [])
