"""Documents longer than the context: failed, cut, or asked part by part."""

from __future__ import annotations

import pyarrow as pa
import pytest

import covey
from covey.testing import PlantedModel

LONG = "word " * 300
CONTEXT = 100  # tokens of four bytes


def answer(question: str, documents: tuple[str, ...]) -> float | None:
    """TRUE of a text that holds "needle"; a text with "crash" fails."""
    if any("crash" in text for text in documents):
        return None
    return 0.9 if any("needle" in text for text in documents) else 0.2


def label(question: str, labels: tuple[str, ...], documents: tuple[str, ...]) -> list[float]:
    return [0.8, 0.2] if "needle" in documents[0] else [0.4, 0.6]


def run(query: str, texts: list[str], **options: object):
    model = PlantedModel(answer, label, fingerprint="long", context=CONTEXT)
    with covey.connect(model, **options) as con:
        con.register("t", pa.table({"id": range(len(texts)), "s": texts}))
        done = con.run(query)
    return [row[-1] for row in done.fetchall()], model, done.report


def ask(function: str, how: str) -> str:
    return (
        f"SELECT id, {function}(PROMPT('? {{0}}', s), long_documents => '{how}') FROM t ORDER BY 1"
    )


TEXTS = ["short needle", LONG, LONG + " needle", "needle " + LONG, "short"]


def test_an_error_is_the_default_and_names_the_lengths():
    for query in (ask("AI.IF", "error"), "SELECT AI.IF(PROMPT('? {0}', s)) FROM t"):
        values, _, report = run(query, TEXTS, cache=False)
        assert values == [True, None, None, None, False]
        assert report.operators[0].failed == 3
        assert "tokens long" in report.errors[0].reason


def test_truncate_asks_about_the_beginning():
    values, model, report = run(ask("AI.IF", "truncate"), TEXTS)
    assert values == [True, False, False, True, False]
    assert len(model.calls) <= 5
    assert report.operators[0].failed == 0
    assert "too long" in report.notes[0]
    assert all(len(documents[0]) <= 4 * CONTEXT for _, documents in model.calls)


@pytest.mark.parametrize(
    ("function", "yes", "no"), [("AI.IF", True, False), ("AI.SCORE", 0.9, 0.2)]
)
def test_split_is_or_for_if_and_the_largest_score(function, yes, no):
    values, model, _ = run(ask(function, "split"), TEXTS)
    assert values == pytest.approx([yes, no, yes, yes, no])
    assert model.calls
    again, second, _ = run(ask(function, "split"), TEXTS)
    assert again == values
    assert not second.calls, "windows are stored like any other prompt"
    # The answer of windows is not that of the whole.
    assert run(ask(function, "error"), TEXTS)[0][1:4] == [None] * 3


def test_every_part_of_a_split_text_is_asked_about():
    words = [f"w{i}" for i in range(400)]
    _, model, _ = run(ask("AI.IF", "split"), [" ".join(words)])
    asked = sorted(
        (documents[0] for _, documents in model.calls), key=lambda t: words.index(t.split()[0])
    )
    assert " ".join(words) == "".join(asked)


def test_a_part_that_fails_leaves_the_answer_open_unless_it_is_decided():
    texts = [LONG + "crash", LONG + "crash " + LONG + "needle"]
    assert run(ask("AI.IF", "split"), texts)[0] == [None, True]
    assert run(ask("AI.SCORE", "split"), texts)[0] == [None, None]


def test_both_ways_in_one_query_and_in_conditions():
    query = (
        "SELECT id FROM t WHERE AI.IF(PROMPT('? {0}', s), long_documents => 'split') "
        "AND NOT AI.IF(PROMPT('? {0}', s), long_documents => 'truncate') ORDER BY id"
    )
    assert run(query, TEXTS)[0] == [2]


def test_pairs_are_cut_at_their_longer_side():
    query = (
        "SELECT t.id * 10 + u.id FROM t JOIN t AS u ON "
        "AI.IF(PROMPT('? {0} {1}', t.s, u.s), long_documents => 'split') "
        "WHERE t.id < 3 AND u.id = 4 ORDER BY 1"
    )
    assert run(query, TEXTS)[0] == [4, 24]


def test_a_class_is_that_of_the_surest_part():
    query = "SELECT id, AI.CLASSIFY(s, ['a', 'b'], long_documents => 'split') FROM t ORDER BY id"
    assert run(query, TEXTS)[0] == ["a", "b", "a", "a", "b"]


def test_text_without_blanks_and_hopeless_prompts():
    values, _, _ = run(ask("AI.IF", "split"), ["x" * 5000 + "needle"])
    assert values == [True]
    query = "SELECT AI.IF(PROMPT('? {0} {1}', s, s), long_documents => 'split') FROM t"
    values, _, report = run(query, [LONG])
    assert values == [None]
    assert report.operators[0].failed == 1
