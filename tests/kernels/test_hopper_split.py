"""The split of tree attention against the definition: every seen key once, no other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.kernels.base import ForwardBatch
from covey.kernels.hopper.attention_split import AttentionSplit, DenseLimits, split_attention
from effort import examples
from kernels.forests import forest, random_forest, some_rows

Keys = Counter[tuple[str, int]]


def seen_by_definition(batch: ForwardBatch, row: int) -> Keys:
    found: Keys = Counter(("row", k) for k in range(row + 1) if row < batch.subtree_ends[k])
    for (first, last), (low, high) in zip(batch.prefix_rows, batch.prefix_slots, strict=True):
        if first <= row < last:
            found.update(("slot", slot) for slot in range(low, high))
    return found


def seen_by_work(batch: ForwardBatch, work: AttentionSplit) -> list[Keys]:
    """What each asking row is given, by its parts and its tile."""
    found: list[Keys] = [Counter() for _ in work.asked]
    for number, call in enumerate(work.parts):
        for (first, last), (low, high) in zip(call.queries, call.keys, strict=True):
            for place in range(first, last):
                assert work.has[place] >> number & 1
                stop = low + place - first + 1 if call.causal else high
                found[place].update(("slot" if call.prefix else "row", k) for k in range(low, stop))
    for tile, (first, last) in enumerate(work.tiles):
        own = work.own[work.own_offsets[tile] : work.own_offsets[tile + 1]]
        prefix = work.prefix[work.prefix_offsets[tile] : work.prefix_offsets[tile + 1]]
        for place in range(first, last):
            row = work.asked[place]
            for low, high in own:
                keys = range(low, high)
                found[place].update(("row", k) for k in keys if k <= row < batch.subtree_ends[k])
            for low, high, begin, end in prefix:
                if begin <= row < end:
                    found[place].update(("slot", slot) for slot in range(low, high))
    return found


def check(batch: ForwardBatch, work: AttentionSplit, tile_rows: int) -> None:
    lengths = work.tiles[:, 1] - work.tiles[:, 0]
    assert lengths.sum() == len(work.asked) and (lengths > 0).all()
    assert (lengths <= tile_rows).all()
    assert (work.tiles[1:, 0] == work.tiles[:-1, 1]).all()
    for row, found in zip(work.asked.tolist(), seen_by_work(batch, work), strict=True):
        assert found == seen_by_definition(batch, row)


@examples(200)
@given(
    seed=st.integers(0, 2**32),
    mean_run=st.sampled_from([0.5, 3.0, 12.0]),
    rows=st.integers(1, 60),
    limits=st.builds(
        DenseLimits,
        tile_rows=st.sampled_from([1, 4, 16]),
        dense_keys=st.integers(1, 12),
        dense_rows=st.integers(1, 6),
        hanging_rows=st.integers(1, 6),
        causal_rows=st.integers(1, 20),
        parts=st.integers(0, 3),
    ),
    share=st.sampled_from([None, 0.05, 0.5]),
)
def test_every_seen_key_is_in_one_place(
    seed: int, mean_run: float, rows: int, limits: DenseLimits, share: float | None
) -> None:
    rng = np.random.default_rng(seed)
    batch = random_forest(rng, rows, mean_run, kv_cache=40)
    asked = None if share is None else some_rows(rng, batch, share)
    work = split_attention(batch, asked, limits)
    assert len(work.parts) <= max(limits.parts, 1)
    check(batch, work, limits.tile_rows)


def test_an_anchor_in_the_kv_cache_is_one_dense_call_and_its_suffixes_are_packed() -> None:
    suffixes = [(-1 if i % 5 == 0 else i - 1) for i in range(500)]
    batch = forest(suffixes, [(0, 500, 7000, 11000)])
    work = split_attention(batch, None, DenseLimits())
    (call,) = work.parts
    assert call.prefix and not call.causal
    assert call.queries.tolist() == [[0, 500]] and call.keys.tolist() == [[7000, 11000]]
    assert len(work.tiles) == 32 and not len(work.prefix)
    assert (work.own[:, 1] - work.own[:, 0] <= 20).all()


def test_a_long_document_with_partners_is_causal_over_itself_and_dense_under_them() -> None:
    document = [i - 1 for i in range(700)]
    partners = [699 if i % 4 == 0 else 699 + i for i in range(400)]
    work = split_attention(forest(document + partners, []), None, DenseLimits())
    kinds = [(call.causal, call.queries.tolist(), call.keys.tolist()) for call in work.parts]
    assert kinds == [(True, [[0, 704]], [[0, 704]]), (False, [[704, 1100]], [[0, 700]])]


def test_questions_under_a_chain_of_snapshots_are_one_dense_call() -> None:
    chain = [i - 1 for i in range(3000)]
    tails = []
    for end in (3000, 2000, 1000):
        tails += [end - 1, *range(3000 + len(tails), 3000 + len(tails) + 39)]
    work = split_attention(forest(chain + tails, []), None, DenseLimits())
    own, dense = work.parts
    assert own.causal and own.keys.tolist() == [[0, 3040]]
    assert dense.queries.tolist() == [[3040, 3080], [3080, 3120]]
    assert dense.keys.tolist() == [[0, 2000], [0, 1000]]
    assert (work.own[:, 1] - work.own[:, 0] < 40 + 16).all()


@pytest.mark.parametrize("rows", [None, np.array([], dtype=np.int64)])
def test_nothing_to_ask_is_no_work(rows: np.ndarray | None) -> None:
    batch = forest([] if rows is None else [-1, 0], [])
    work = split_attention(batch, rows, DenseLimits())
    assert not len(work.tiles) and not work.parts and work.own_offsets.tolist() == [0]
