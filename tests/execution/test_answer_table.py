"""The answers of a query, found again by question and documents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.arrays import distinct_rows
from covey.execution.answers import AnswerTable
from covey.prompts.question import Question, QuestionKind

ids = st.integers(0, 6)


@given(st.integers(0, 3), st.data())
def test_an_answer_is_found_for_exactly_the_tuples_that_were_added(arity, data):
    rows = st.lists(st.tuples(*[ids] * arity), min_size=1, max_size=12)
    table = AnswerTable(Question(QuestionKind.JUDGE, "?", arity))
    known: dict[tuple[int, ...], float] = {}
    for value, batch in enumerate(data.draw(st.lists(rows, max_size=4))):
        new = list(dict.fromkeys(row for row in batch if row not in known))
        known.update(dict.fromkeys(new, float(value)))
        documents = np.array(new, np.int64).reshape(len(new), arity)
        table.add(documents, np.full((len(new), 1), float(value)), {})
    wanted = data.draw(rows)
    found, scores = table.find(np.array(wanted, np.int64).reshape(len(wanted), arity))
    assert found.tolist() == [row in known for row in wanted]
    for row, hit, score in zip(wanted, found, scores[:, 0], strict=True):
        assert (score == known[row]) if hit else np.isnan(score)


@pytest.mark.parametrize("arity", [0, 1, 2, 3])
@given(data=st.data())
def test_distinct_rows_are_a_set(arity, data):
    rows = data.draw(st.lists(st.tuples(*[ids] * arity), min_size=1, max_size=20))
    given = np.array(rows, np.int64).reshape(len(rows), arity)
    found, number = distinct_rows(given)
    assert (found[number] == given).all()
    assert sorted(map(tuple, found.tolist())) == sorted(set(rows))
