"""Blocks of tree attention against the definition, pair by pair."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.kernels.base import Chunk
from covey.kernels.blocks import Block, attention_blocks

NO_ROWS = np.empty(0, dtype=np.int64)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    """A random forest in depth-first order, with arena spans over ranges of rows."""
    parents: list[int] = []
    path: list[int] = []
    for length in draw(st.lists(st.integers(1, 30), min_size=1, max_size=6)):
        del path[draw(st.integers(0, len(path))) :]
        for _ in range(length):
            parents.append(path[-1] if path else -1)
            path.append(len(parents) - 1)
    count = len(parents)
    exits = np.arange(1, count + 1, dtype=np.int32)
    depths = np.zeros(count, dtype=np.int32)
    for row in range(count - 1, -1, -1):
        if parents[row] >= 0:
            exits[parents[row]] = max(exits[parents[row]], exits[row])
    for row, parent in enumerate(parents):
        depths[row] = depths[parent] + 1 if parent >= 0 else 0
    spans = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(1, count)), max_size=3))
    ranges = [(a, min(a + n, count)) for a, n in spans]
    slots = [(100 * i, 100 * i + 1 + i) for i in range(len(ranges))]
    return Chunk(
        tokens=np.zeros(count, dtype=np.int32),
        depths=depths,
        exits=exits,
        answers=NO_ROWS,
        past_rows=np.array(ranges, dtype=np.int64).reshape(-1, 2),
        past_slots=np.array(slots, dtype=np.int64).reshape(-1, 2),
        kept_rows=NO_ROWS,
        kept_slots=NO_ROWS,
    )


def seen_by_definition(chunk: Chunk, row: int) -> tuple[set[int], set[int]]:
    """Chunk rows and arena slots that a row sees."""
    rows = {k for k in range(row + 1) if row < chunk.exits[k]}
    slots = {
        slot
        for (first, last), span in zip(chunk.past_rows, chunk.past_slots, strict=True)
        if first <= row < last
        for slot in range(*span)
    }
    return rows, slots


def seen_by_block(block: Block, query: int) -> tuple[set[int], set[int]]:
    keys = np.arange(*block.keys) if isinstance(block.keys, tuple) else block.keys
    place = query - block.queries[0]
    if block.causal:
        assert block.mask is None and not block.past
        keys = keys[: block.lead + place + 1]
    elif block.mask is not None:
        keys = keys[block.mask[place]]
    return set(keys.tolist()), {slot for span in block.past for slot in range(*span)}


@settings(max_examples=150, deadline=None)
@given(chunk=chunks(), limit=st.integers(1, 12), data=st.data())
def test_every_row_sees_exactly_its_ancestors_and_its_spans(
    chunk: Chunk, limit: int, data: st.DataObject
) -> None:
    count = len(chunk)
    chosen = data.draw(st.none() | st.sets(st.integers(0, count - 1)))
    if chosen and data.draw(st.booleans()):
        chosen |= set(range(max(chosen)))  # whole runs, as well as single rows
    rows = None if chosen is None else np.array(sorted(chosen), dtype=np.int64)
    asking = list(range(count)) if rows is None else rows.tolist()
    answered = []
    for block in attention_blocks(chunk, rows, limit):
        for query in range(*block.queries):
            answered.append(query)
            assert block.lead == 0 or rows is None
            assert seen_by_block(block, query) == seen_by_definition(chunk, asking[query])
    assert answered == list(range(len(asking)))


@given(length=st.integers(16, 300))
def test_an_unbranched_prompt_is_one_causal_block_whatever_its_length(length: int) -> None:
    chunk = Chunk(
        tokens=np.zeros(length, dtype=np.int32),
        depths=np.arange(length, dtype=np.int32),
        exits=np.full(length, length, dtype=np.int32),
        answers=NO_ROWS,
        past_rows=np.empty((0, 2), dtype=np.int64),
        past_slots=np.empty((0, 2), dtype=np.int64),
        kept_rows=NO_ROWS,
        kept_slots=NO_ROWS,
    )
    (block,) = attention_blocks(chunk, None, limit=16)
    assert block.causal and block.keys == (0, length) and block.mask is None
    (last,) = attention_blocks(chunk, np.array([length - 1]), limit=16)
    assert last.mask is None and last.queries == (0, 1)
