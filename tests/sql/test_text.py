"""Edits of a text: the rest stays letter for letter, and offsets find their way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import QueryError
from covey.sql.edited_text import EditedText
from covey.sql.text import TokenList


@st.composite
def edited_texts(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]], list[str]]:
    """A text with edits of disjoint, non-empty spans."""
    text = draw(st.text("ab \n'é", min_size=1, max_size=30))
    cuts = sorted(set(draw(st.lists(st.integers(0, len(text)), max_size=8))))
    spans = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False) if a < b]
    return text, spans, [draw(st.text("XY", max_size=4)) for _ in spans]


@given(edited_texts())
def test_edits_replace_their_spans_and_nothing_else(case):
    text, spans, news = case
    edited = EditedText(text)
    for span, new in zip(spans, news, strict=True):
        edited.replace(span, new)
    expected, at = "", 0
    for (start, stop), new in zip(spans, news, strict=True):
        expected += text[at:start] + new
        at = stop
    assert edited.render() == expected + text[at:]


@given(edited_texts())
def test_every_copied_character_maps_back_to_itself(case):
    text, spans, news = case
    edited = EditedText(text)
    for span, new in zip(spans, news, strict=True):
        edited.replace(span, new)
    rendered, offsets = edited.render_mapped()
    for i, character in enumerate(rendered):
        if character not in "XY":
            assert text[offsets.original(i)] == character


def test_a_span_copied_by_an_edit_carries_its_own_edits_and_places():
    text = "f(g(x))"
    edited = EditedText(text)
    edited.replace((2, 6), "h(", (4, 5), ")")
    edited.replace((0, 7), "F[", (2, 6), "]")
    edited.replace((4, 5), "yy")
    rendered, offsets = edited.render_mapped()
    assert rendered == "F[h(yy)]"
    assert offsets.original(rendered.index("yy")) == 4


def test_an_insertion_belongs_to_what_follows_it():
    edited = EditedText("ab")
    edited.replace((1, 1), "-")
    assert edited.render((0, 1)) == "a"
    assert edited.render((1, 2)) == "-b"
    assert edited.render() == "a-b"


def test_reverting_gives_back_the_edits_of_the_snapshot():
    edited = EditedText("abc")
    edited.replace((0, 1), "X")
    kept = edited.snapshot()
    edited.replace((1, 2), "Y")
    edited.revert(kept)
    assert edited.render() == "Xbc"


@given(edited_texts(), st.integers(0, 8))
def test_edits_that_are_tried_show_as_if_made_and_are_not_kept(case, kept):
    text, spans, news = case
    edited, made = EditedText(text), EditedText(text)
    for span in spans[:kept]:
        edited.replace(span, "before")
    before = edited.render()
    for span, new in zip(spans, news, strict=True):
        made.replace(span, new)
    assert edited.render(also=dict(zip(spans, ([new] for new in news), strict=True))) == (
        made.render()
    )
    assert edited.render() == before


def test_every_token_knows_the_bracket_around_it():
    tokens = TokenList("f(a, (b), [c]) d")
    around = [None if i is None else tokens[i].start for i in tokens.opening]
    assert around == [None, None, 1, 1, 1, 5, 1, 1, 1, 10, 1, None, None]
    assert [tokens[i].text for i in tokens.level_before(len(tokens) - 1)] == ["(", "f"]
    assert [tokens[i].text for i in tokens.level_before(8)] == [",", "(", ",", "a"]
    assert (tokens.level_end(2), tokens.level_end(0)) == (11, len(tokens))


def test_split_sees_no_separator_inside_brackets_or_strings():
    tokens = TokenList("f(a, b), 'c, d', [e, f], {'g': 1, 'h': 2}")
    from sqlglot import TokenType

    parts = tokens.split(0, len(tokens), TokenType.COMMA)
    texts = [tokens.text[slice(*tokens.span(*part))] for part in parts]
    assert texts == ["f(a, b)", "'c, d'", "[e, f]", "{'g': 1, 'h': 2}"]


@pytest.mark.parametrize("text", ["SELECT (1", "SELECT 1)", "SELECT (1]"])
def test_brackets_that_do_not_match_are_named_with_their_place(text):
    with pytest.raises(QueryError) as caught:
        TokenList(text)
    assert caught.value.span is not None
    assert "racket" in caught.value.reason


@pytest.mark.parametrize("text", ["$$FROM$$", "E'FROM'", "e'FROM'", "$q$FROM$q$", "'FROM'"])
def test_a_text_is_no_word_however_it_is_quoted(text):
    tokens = TokenList(f"SELECT {text} FROM t")
    assert [token.word for token in tokens] == ["SELECT", "", "FROM", "T"]
    assert tokens[1].text == "FROM" and not tokens[1].is_name
    assert tokens.text[slice(*tokens.span(1, 2))] == text
