"""Free stretches: best fit, coalescing, and pieces only where nothing longer is free."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.engine.kv_cache.allocator import SlotAllocator
from covey.engine.kv_cache.node import Segment
from covey.errors import RunError
from kv_cache.books import bare_node

NODES = [bare_node(number) for number in range(10)]


def holes(slots: SlotAllocator) -> list[Segment]:
    """The free stretches by address."""
    return [Segment(*hole) for hole in sorted(slots._length_at.items())]


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60))
def test_no_slot_has_two_owners_and_none_is_lost(capacity: int, steps: list) -> None:
    slots, owner, owned = SlotAllocator(capacity), np.zeros(capacity, dtype=int), []
    for take, number in steps:
        if take and number <= slots.free:
            largest = slots.largest
            segments = slots.allocate(number, NODES[1])
            assert sum(e.length for e in segments) == number
            assert (len(segments) == 1) == (largest >= number)
            for start, length in segments:
                assert not owner[start : start + length].any()
                owner[start : start + length] = 1
            owned.append(segments)
        elif owned:
            segments = owned.pop(number % len(owned))
            slots.release(segments)
            for start, length in segments:
                owner[start : start + length] = 0
        free = "".join("x" if used else "." for used in owner)
        assert slots.free == free.count(".")
        assert [h.length for h in holes(slots)] == [len(run) for run in free.split("x") if run]
    for segments in owned:
        slots.release(segments)
    assert holes(slots) == [Segment(0, capacity)]


def test_the_smallest_stretch_that_fits_is_taken() -> None:
    slots = SlotAllocator(30)
    blocks = [slots.allocate(n, NODES[0])[0] for n in (6, 1, 3, 1, 9, 10)]
    for block in (blocks[0], blocks[2], blocks[4]):
        slots.release([block])
    assert slots.allocate(3, NODES[0]) == (blocks[2],)
    assert slots.allocate(7, NODES[0]) == (Segment(blocks[4].start, 7),)


def test_a_long_request_is_split_over_the_longest_holes() -> None:
    slots = SlotAllocator(20)
    blocks = [slots.allocate(4, NODES[n])[0] for n in range(5)]
    slots.release([blocks[0], blocks[2], blocks[3]])
    assert slots.allocate(10, NODES[9]) == (Segment(8, 8), Segment(0, 2))


def test_misuse_is_refused() -> None:
    slots = SlotAllocator(4)
    for count in (0, 5):
        with pytest.raises(RunError, match="4 are free"):
            slots.allocate(count, NODES[0])
    (segment,) = slots.allocate(2, NODES[0])
    slots.release([segment])
    for wrong in (segment, Segment(0, 4)):
        with pytest.raises(RunError, match="not in use"):
            slots.release([wrong])


def test_the_owners_beside_the_longest_hole_are_known() -> None:
    slots = SlotAllocator(12)
    blocks = [slots.allocate(3, NODES[owner])[0] for owner in (7, 8, 9)]
    assert slots.around_largest() == [NODES[9]]
    slots.release([blocks[1]])
    slots.allocate(3, NODES[6])  # the lower of two equal holes
    assert slots.around_largest() == [NODES[9]]
    slots.release([blocks[2]])
    assert slots.around_largest() == [NODES[6]]
    slots.allocate(6, NODES[5])
    assert slots.around_largest() == []
