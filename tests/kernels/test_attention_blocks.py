"""Blocks of tree attention against the definition, pair by pair."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.kernels.attention_blocks import AttentionBlock, attention_blocks
from covey.kernels.base import ForwardBatch
from effort import examples
from kernels.forests import NO_ROWS, forest


@st.composite
def batches(draw: st.DrawFn) -> ForwardBatch:
    """A random forest in depth-first order, with KV cache spans over ranges of rows."""
    parents: list[int] = []
    path: list[int] = []
    for length in draw(st.lists(st.integers(1, 30), min_size=1, max_size=6)):
        del path[draw(st.integers(0, len(path))) :]
        for _ in range(length):
            parents.append(path[-1] if path else -1)
            path.append(len(parents) - 1)
    count = len(parents)
    spans = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(1, count)), max_size=3))
    return forest(
        parents,
        [(a, min(a + n, count), 100 * i, 100 * i + 1 + i) for i, (a, n) in enumerate(spans)],
    )


def seen_by_definition(batch: ForwardBatch, row: int) -> tuple[set[int], set[int]]:
    """Batch rows and KV cache slots that a row sees."""
    rows = {k for k in range(row + 1) if row < batch.subtree_ends[k]}
    slots = {
        slot
        for (first, last), span in zip(batch.prefix_rows, batch.prefix_slots, strict=True)
        if first <= row < last
        for slot in range(*span)
    }
    return rows, slots


def seen_by_block(block: AttentionBlock, query: int) -> tuple[set[int], set[int]]:
    keys = np.arange(*block.keys) if isinstance(block.keys, tuple) else block.keys
    place = query - block.queries[0]
    if block.causal:
        assert block.mask is None and not block.prefix
        keys = keys[: block.lead + place + 1]
    elif block.mask is not None:
        keys = keys[block.mask[place]]
    return set(keys.tolist()), {slot for span in block.prefix for slot in range(*span)}


@examples(150)
@given(batch=batches(), limit=st.integers(1, 12), data=st.data())
def test_every_row_sees_exactly_its_ancestors_and_its_spans(
    batch: ForwardBatch, limit: int, data: st.DataObject
) -> None:
    count = len(batch)
    chosen = data.draw(st.none() | st.sets(st.integers(0, count - 1)))
    if chosen and data.draw(st.booleans()):
        chosen |= set(range(max(chosen)))  # whole runs, as well as single rows
    rows = None if chosen is None else np.array(sorted(chosen), dtype=np.int64)
    asking = list(range(count)) if rows is None else rows.tolist()
    answered = []
    for block in attention_blocks(batch, rows, limit):
        for query in range(*block.queries):
            answered.append(query)
            assert block.lead == 0 or rows is None
            assert seen_by_block(block, query) == seen_by_definition(batch, asking[query])
    assert answered == list(range(len(asking)))


@given(length=st.integers(16, 300))
def test_an_unbranched_prompt_is_one_causal_block_whatever_its_length(length: int) -> None:
    batch = ForwardBatch(
        tokens=np.zeros(length, dtype=np.int32),
        positions=np.arange(length, dtype=np.int32),
        subtree_ends=np.full(length, length, dtype=np.int32),
        logits_indices=NO_ROWS,
        prefix_rows=np.empty((0, 2), dtype=np.int64),
        prefix_slots=np.empty((0, 2), dtype=np.int64),
        slot_mapping=np.full(length, -1, dtype=np.int32),
    )
    (block,) = attention_blocks(batch, None, limit=16)
    assert block.causal and block.keys == (0, length) and block.mask is None
    (last,) = attention_blocks(batch, np.array([length - 1]), limit=16)
    assert last.mask is None and last.queries == (0, 1)
