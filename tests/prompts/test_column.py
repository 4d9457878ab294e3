"""Token columns in memory and in a file."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.prompts.column import Column
from covey.prompts.documents import DocumentStore
from covey.prompts.tokens import DocumentTokens
from engine.symbolic import CharEncoder


@given(sizes=st.lists(st.integers(0, 3000), max_size=8), spill=st.sampled_from([0, 8_000, 1 << 30]))
def test_a_column_holds_what_was_appended_wherever_it_lies(sizes: list[int], spill: int) -> None:
    column, expected = Column(np.int32, spill), np.empty(0, dtype=np.int32)
    views = []
    for number, size in enumerate(sizes):
        ids = np.full(size, number, dtype=np.int32)
        assert column.append(ids) == len(expected)
        expected = np.concatenate([expected, ids])
        views.append((column.flat, expected))
    for view, content in views:
        np.testing.assert_array_equal(view, content)
    if sum(sizes) > 2000 and spill < 8_001:
        assert isinstance(column.flat, np.memmap)
    if spill == 1 << 30:
        assert not isinstance(column.flat, np.memmap)


def test_documents_past_the_limit_lie_in_a_file_and_read_the_same() -> None:
    texts = [f"{i} " * (i % 40) for i in range(500)]
    store = DocumentStore()
    ids = store.add(texts)
    tokens = DocumentTokens(store, CharEncoder(), spill_bytes=4_096)
    found = tokens.take(ids)
    assert isinstance(tokens.flat, np.memmap)
    for i, text in enumerate(texts):
        assert "".join(map(chr, found.run(i))) == text
