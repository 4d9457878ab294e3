"""Free stretches: best fit, coalescing, and pieces only where nothing longer is free."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.engine.slots import Extent, Slots
from covey.errors import RunError


def holes(slots: Slots) -> list[Extent]:
    """The free stretches by address."""
    return [Extent(*hole) for hole in sorted(slots._length_at.items())]


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60))
def test_no_slot_has_two_owners_and_none_is_lost(capacity: int, steps: list) -> None:
    slots, owner, owned = Slots(capacity), np.zeros(capacity, dtype=int), []
    for take, number in steps:
        if take and number <= slots.free:
            largest = slots.largest
            extents = slots.take(number, 1)
            assert sum(e.length for e in extents) == number
            assert (len(extents) == 1) == (largest >= number)
            for start, length in extents:
                assert not owner[start : start + length].any()
                owner[start : start + length] = 1
            owned.append(extents)
        elif owned:
            extents = owned.pop(number % len(owned))
            slots.give(extents)
            for start, length in extents:
                owner[start : start + length] = 0
        free = "".join("x" if used else "." for used in owner)
        assert slots.free == free.count(".")
        assert [h.length for h in holes(slots)] == [len(run) for run in free.split("x") if run]
    for extents in owned:
        slots.give(extents)
    assert holes(slots) == [Extent(0, capacity)]


def test_the_smallest_stretch_that_fits_is_taken() -> None:
    slots = Slots(30)
    blocks = [slots.take(n, n)[0] for n in (6, 1, 3, 1, 9, 10)]
    for block in (blocks[0], blocks[2], blocks[4]):
        slots.give([block])
    assert slots.take(3, 0) == (blocks[2],)
    assert slots.take(7, 0) == (Extent(blocks[4].start, 7),)


def test_a_long_span_is_split_over_the_longest_holes() -> None:
    slots = Slots(20)
    blocks = [slots.take(4, n)[0] for n in range(5)]
    slots.give([blocks[0], blocks[2], blocks[3]])
    assert slots.take(10, 9) == (Extent(8, 8), Extent(0, 2))


def test_misuse_is_refused() -> None:
    slots = Slots(4)
    for count in (0, 5):
        with pytest.raises(RunError, match="4 are free"):
            slots.take(count, 0)
    (extent,) = slots.take(2, 0)
    slots.give([extent])
    for wrong in (extent, Extent(0, 4)):
        with pytest.raises(RunError, match="not in use"):
            slots.give([wrong])


def test_the_owners_beside_the_longest_hole_are_known() -> None:
    slots = Slots(12)
    blocks = [slots.take(3, owner)[0] for owner in (7, 8, 9)]
    assert slots.around_largest() == [9]
    slots.give([blocks[1]])
    slots.take(3, 6)  # the lower of two equal holes
    assert slots.around_largest() == [9]
    slots.give([blocks[2]])
    assert slots.around_largest() == [6]
    slots.take(6, 5)
    assert slots.around_largest() == []
