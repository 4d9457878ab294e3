"""Pairs asked in rounds: each once, in scan order, until their outer row is decided."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.execution.partners import Partners

pairs = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 9)), max_size=40, unique=True
)


def columns(rows: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return [np.array([row[i] for row in rows], np.int64) for i in range(width)]


@given(pairs, st.data())
def test_every_pair_is_taken_once_or_dropped_with_its_decided_row(rows, data):
    left = Partners(columns(rows, 3), keys=2)
    open_rows = {row[:2] for row in rows}
    taken: list[tuple[int, ...]] = []
    size = 1
    while left.count:
        batch = [tuple(row) for row in np.stack(left.take(size), axis=1).tolist()]
        assert {row[:2] for row in batch} == {
            row[:2] for row in rows if row[:2] in open_rows and row not in taken
        }
        taken += batch
        decided = data.draw(st.sets(st.sampled_from(sorted(open_rows))))
        left.drop(columns(sorted(decided), 2))
        open_rows -= decided
        size *= 2
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(rows)
    for outer in {row[:2] for row in rows}:
        order = [row[2] for row in taken if row[:2] == outer]
        assert order == sorted(row[2] for row in rows if row[:2] == outer)[: len(order)]
        if outer in open_rows:
            assert len(order) == len([row for row in rows if row[:2] == outer])
