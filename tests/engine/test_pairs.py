"""Pairs in blocks and one by one are the same pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.engine.pairs import Pairs, pairs_of
from covey.engine.questions import QuestionEncoder
from covey.prompts.question import Question, QuestionKind
from engine.symbolic import LAYOUT, CharEncoder

ENCODER = QuestionEncoder(LAYOUT, CharEncoder(), None)
numbers = st.integers(0, 30)


def named(pairs: Pairs) -> list[tuple[int, ...]]:
    """(row, anchor, partners…) of every row."""
    return [
        (int(row), int(pairs.anchors[a]), *pairs.partners[p].tolist())
        for row, a, p in zip(pairs.rows, pairs.anchor_of, pairs.partner_of, strict=True)
    ]


@given(
    st.lists(numbers, min_size=1, max_size=6, unique=True),
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5, unique=True),
    st.integers(0, 2),
    st.data(),
)
def test_a_grid_is_blocks_and_selects_as_any_rows_do(
    anchors: list[int], partners: list[tuple[int, int]], anchor: int, data: st.DataObject
) -> None:
    asked = ENCODER.encode(Question(QuestionKind.JUDGE, "{0} {1} {2}", 3, anchor=anchor))
    others = [i for i in range(3) if i != anchor]
    ids = np.zeros((len(anchors) * len(partners), 3), dtype=np.int64)
    ids[:, anchor] = np.repeat(anchors, len(partners))
    ids[:, others] = np.tile(np.array(partners), (len(anchors), 1))
    pairs = pairs_of(ids, np.arange(len(ids)), asked)
    assert named(pairs) == [
        (i, int(row[anchor]), *row[others].tolist()) for i, row in enumerate(ids)
    ]
    assert bool(pairs.block) == (len(partners) > 1 and len(anchors) > 1)
    chosen = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(anchors), max_size=len(anchors)))
    )
    plain = replace(pairs, owners=pairs.anchor_of, pattern=pairs.partner_of, block=0)
    some = pairs.of_anchors(chosen)
    assert named(some) == named(plain.of_anchors(chosen))
    assert (
        some.block in (0, pairs.block) and some.anchors.tolist() == pairs.anchors[chosen].tolist()
    )


@pytest.mark.parametrize(
    "ids",
    [
        [[0, 1], [0, 2], [1, 1]],
        [[0, 1], [0, 2], [1, 2], [1, 1]],
        [[0, 1], [0, 2], [0, 1], [0, 2]],
        [[0, 1], [0, 1], [1, 1], [1, 1]],
        [[0, 1], [1, 1]],
    ],
)
def test_other_rows_are_no_blocks(ids: list[list[int]]) -> None:
    asked = ENCODER.encode(Question(QuestionKind.JUDGE, "{0} {1}", 2))
    pairs = pairs_of(np.array(ids), np.arange(len(ids)), asked)
    assert pairs.block == 0
    assert named(pairs) == [(i, *row) for i, row in enumerate(ids)]
