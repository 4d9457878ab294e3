"""The free stretches of a fixed row of slots."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from covey.engine.kv_cache.node import RadixNode, Segment
from covey.errors import RunError


class SlotAllocator:
    """Best fit, lowest address first among equals; freed neighbours join at once.

    Attributes:
        free: slots in no one's hands.
    """

    def __init__(self, capacity: int) -> None:
        self.free = 0
        self._by_size: list[tuple[int, int]] = []  # (length, start), ascending
        self._length_at: dict[int, int] = {}  # start -> length
        self._start_before: dict[int, int] = {}  # end -> start
        self._owner_at: dict[int, RadixNode] = {}  # start of a taken stretch -> owner
        self._owner_before: dict[int, RadixNode] = {}  # end of a taken stretch -> owner
        if capacity:
            self._add(0, capacity)

    @property
    def largest(self) -> int:
        """The longest free stretch."""
        return self._by_size[-1][0] if self._by_size else 0

    def around_largest(self) -> list[RadixNode]:
        """Who owns the slots right before and right behind the longest free stretch."""
        if not self._by_size:
            return []
        length, start = self._by_size[-1]
        owners = (self._owner_before.get(start), self._owner_at.get(start + length))
        return [owner for owner in owners if owner is not None]

    def allocate(self, count: int, owner: RadixNode) -> tuple[Segment, ...]:
        """Give an owner `count` slots: one stretch if any is long enough, else the longest ones.

        Raises:
            RunError: fewer than `count` slots are free; nothing was taken.
        """
        if not 0 < count <= self.free:
            raise RunError(f"asked for {count} slots of the KV cache, {self.free} are free")
        taken = []
        while count:
            at = bisect_left(self._by_size, (count, -1))
            length, start = self._by_size[min(at, len(self._by_size) - 1)]
            used = min(length, count)
            self._remove(start, length)
            if used < length:
                self._add(start + used, length - used)
            self._owner_at[start] = self._owner_before[start + used] = owner
            taken.append(Segment(start, used))
            count -= used
        return tuple(taken)

    def release(self, segments: Iterable[Segment]) -> None:
        """Return stretches as they were taken.

        Raises:
            RunError: a stretch is not one that was taken, or was freed already.
        """
        for start, length in segments:
            end = start + length
            owner = self._owner_at.get(start)
            if owner is None or self._owner_before.get(end) != owner:
                raise RunError(f"slots {start} to {end} of the KV cache are freed, but not in use")
            del self._owner_at[start], self._owner_before[end]
            before = self._start_before.get(start)
            after = self._length_at.get(end)
            if before is not None:
                self._remove(before, start - before)
                start = before
            if after is not None:
                self._remove(end, after)
                end += after
            self._add(start, end - start)

    def split(
        self, segments: Iterable[Segment], count: int, owner: RadixNode
    ) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
        """Hand the first `count` slots of some taken stretches, in order, to another owner.

        Returns:
            the stretches of the new owner, and those that stay.
        """
        first: list[Segment] = []
        rest: list[Segment] = []
        for start, length in segments:
            used = min(count, length)
            count -= used
            if used:
                end, stays = start + used, self._owner_at[start]
                if used < length:
                    self._owner_at[end] = stays
                    rest.append(Segment(end, length - used))
                self._owner_at[start] = self._owner_before[end] = owner
                first.append(Segment(start, used))
            else:
                rest.append(Segment(start, length))
        return tuple(first), tuple(rest)

    def _add(self, start: int, length: int) -> None:
        insort(self._by_size, (length, start))
        self._length_at[start] = length
        self._start_before[start + length] = start
        self.free += length

    def _remove(self, start: int, length: int) -> None:
        del self._by_size[bisect_left(self._by_size, (length, start))]
        del self._length_at[start]
        del self._start_before[start + length]
        self.free -= length
