"""The oracle's own parts: what it compares, how it reads calls, how it answers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from differential.compare import difference
from differential.oracle import Oracle, planted_answer, rendered
from differential.translate import TranslationError, translate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT AI.SCORE(s)", "SELECT planted_score('{0}', [CAST(s AS VARCHAR)]::VARCHAR[])"),
        (
            "WHERE ai_filter(prompt('It''s {1}, {0}?', f(a, 'x)'), b), {'threshold': 0.25})",
            "WHERE (planted_score('It''s {1}, {0}?', "
            "[CAST(f(a, 'x)') AS VARCHAR), CAST(b AS VARCHAR)]::VARCHAR[]) > 0.25)",
        ),
        (
            "AI.IF(('a {', s, '}'))",
            "(planted_score('a {{{0}}}', [CAST(s AS VARCHAR)]::VARCHAR[]) > 0.5)",
        ),
        ("AI.IF('late?')", "(planted_score('late?', []::VARCHAR[]) > 0.5)"),
        (
            "AI.CLASSIFY(s, ['x', 'it''s'])",
            "planted_label('', ['x', 'it''s'], [CAST(s AS VARCHAR)]::VARCHAR[])",
        ),
        ("SELECT 'AI.IF(s)' -- AI.IF(", "SELECT 'AI.IF(s)' -- AI.IF("),
    ],
)
def test_calls_are_written_over(text: str, expected: str) -> None:
    assert translate(text) == expected


def test_a_call_without_its_bracket_is_no_text_for_the_oracle() -> None:
    with pytest.raises(TranslationError):
        translate("SELECT AI.IF(s")


def test_only_doubled_braces_and_numbers_mean_something() -> None:
    assert rendered("{{0}} {x} {1}{0} }", ["a", "{0}"]) == "{0} {x} ⟨{0}⟩⟨a⟩ }"


def test_null_documents_and_failed_prompts_are_null() -> None:
    oracle = Oracle(answer=lambda template, documents: None if documents == ("bad",) else 0.75)
    call = translate("AI.IF(PROMPT('Q {0}', s))")
    rows = oracle.arrow(f"SELECT {call} AS v FROM (VALUES ('good'), ('bad'), (NULL)) AS t(s)")
    assert rows.column("v").to_pylist() == [True, None, None]


def test_scores_tie_with_no_threshold_and_some_prompts_fail() -> None:
    scores = [planted_answer("Q {0}", (str(i),)) for i in range(500)]
    assert None in scores
    assert all(score is None or (score * 64) % 1 == 0.5 for score in scores)


def test_differences_are_seen() -> None:
    one = pa.table({"a": [1, 2, 2], "x": [0.1, 0.2, 0.2]})
    turned = one.take(pa.array([2, 1, 0]))
    assert difference(turned, one, ordered=False) is None
    assert difference(turned, one, ordered=True) is not None
    assert difference(one.slice(0, 2), one, ordered=False) is not None
    assert difference(one.slice(0, 2), one, ordered=False, limit=2) is None
    assert difference(one.take(pa.array([0, 0])), one, ordered=False, limit=2) is not None
    assert difference(one.rename_columns(["b", "x"]), one, ordered=False) is not None
    near = one.set_column(1, "x", pa.array([0.1 + 1e-12, 0.2, 0.2]))
    assert difference(near, one, ordered=True) is None
    far = one.set_column(1, "x", pa.array([0.1 + 1e-6, 0.2, 0.2]))
    assert difference(far, one, ordered=True) is not None
    typed = one.set_column(0, "a", pa.array([1, 2, 2], pa.int32()))
    assert difference(typed, one, ordered=True) is not None
