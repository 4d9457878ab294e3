"""Which resident span goes first when the arena is short.

What keeping a span saves is the time to compute it again, times how often it is expected
to be read. The span that saves least per slot goes first. Only spans on which nothing
resident stands are offered, so an ancestor never goes before its descendants.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecomputeCost:
    """What it takes to compute tokens again: linear work and attention.

    Attributes:
        token_seconds: linear work of one token.
        pair_seconds: attention of one (query, key) pair.
    """

    token_seconds: float
    pair_seconds: float

    def seconds(self, depth: int, length: int) -> float:
        """Seconds for `length` tokens under `depth` tokens, each seeing all before it."""
        pairs = length * depth + length * (length + 1) / 2
        return length * self.token_seconds + pairs * self.pair_seconds


class Retention:
    """A queue of evictable spans by value.

    Args:
        cost: of computing a span again.
    """

    def __init__(self, cost: RecomputeCost) -> None:
        self.cost = cost
        self._values: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def __contains__(self, span: int) -> bool:
        return span in self._values

    def __getitem__(self, span: int) -> float:
        """The value at which a span is on offer."""
        return self._values[span]

    def value(self, depth: int, length: int, reads: float) -> float:
        """Expected seconds saved per slot by keeping a span that is read so often."""
        return reads * self.cost.seconds(depth, length) / length

    def offer(self, span: int, value: float) -> None:
        """Let a span be evicted, or change its value. `span` is its number."""
        if self._values.get(span) != value:
            self._values[span] = value
            # Among equals the newest goes: plans read spans in the order they were made,
            # so it is the one needed last.
            heapq.heappush(self._heap, (value, -span))
            if len(self._heap) > 2 * len(self._values) + 64:
                self._heap = [(value, -span) for span, value in self._values.items()]
                heapq.heapify(self._heap)

    def withdraw(self, span: int) -> None:
        """Take a span off the offer, if it is on it."""
        self._values.pop(span, None)

    def least(self) -> int | None:
        """The span that saves least per slot, None where none is on offer."""
        while self._heap:
            value, negated = self._heap[0]
            if self._values.get(-negated) == value:
                return -negated
            heapq.heappop(self._heap)
        return None

    def forget(self) -> None:
        """Empty the offer."""
        self._values.clear()
        self._heap.clear()
