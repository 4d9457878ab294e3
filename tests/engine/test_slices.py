"""Slices of a batch: every document once, cut where neighbours have little in common."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from covey.engine.slices import alike, slices

openings = st.sampled_from(["", "a", "the same long opening of many documents ", "b " * 40])
documents = st.lists(st.builds(str.__add__, openings, st.text("xyz ", max_size=30)), max_size=60)


@given(documents, st.integers(1, 60))
def test_every_document_is_in_one_slice_and_alike_ones_in_the_same(
    texts: list[str], first_tokens: int
) -> None:
    found = slices(texts, first_tokens)
    assert sorted(i for part in found for i in part.tolist()) == list(range(len(texts)))
    for one, other in combinations(found, 2):
        for a in one.tolist():
            for b in other.tolist():
                assert alike(texts[a], texts[b]) <= 16


def test_slices_double() -> None:
    texts = [f"{i * 7919 % 10000:04d} " + "word " * 99 for i in range(1000)]
    sizes = [len(part) for part in slices(texts, 1250)]
    assert sizes[0] in range(10, 21) and sum(sizes) == 1000 and len(sizes) in range(4, 9)
    assert all(later > earlier for earlier, later in pairwise(sizes[:-1]))


def test_documents_that_all_begin_alike_are_one_slice() -> None:
    texts = ["a log of the same machine, entry " + "x" * i for i in range(500)]
    assert [len(part) for part in slices(texts, 100)] == [500]
