"""Which resident node goes first when slots are short.

What keeping a node saves is the time to compute it again, times how often it is expected
to be read. The node that saves least per slot goes first. Only nodes on which nothing
resident stands are in the queue, so an ancestor never goes before its descendants.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from covey.engine.kv_cache.node import RadixNode


@dataclass(frozen=True, slots=True)
class RecomputeCost:
    """What it takes to compute tokens again: linear work and attention.

    Attributes:
        token_seconds: linear work of one token.
        pair_seconds: attention of one (query, key) pair.
    """

    token_seconds: float
    pair_seconds: float

    def seconds(self, start: int, length: int) -> float:
        """Seconds for `length` tokens under `start` tokens, each seeing all before it."""
        pairs = length * start + length * (length + 1) / 2
        return length * self.token_seconds + pairs * self.pair_seconds

    def saved(self, start: int, length: int, reads: float) -> float:
        """Expected seconds saved per slot by keeping tokens that are read so often."""
        return reads * self.seconds(start, length) / length


class EvictionQueue:
    """Nodes that may be evicted, by what keeping them saves."""

    def __init__(self) -> None:
        self._values: dict[RadixNode, float] = {}
        self._heap: list[tuple[float, int, RadixNode]] = []

    def __contains__(self, node: RadixNode) -> bool:
        return node in self._values

    def __getitem__(self, node: RadixNode) -> float:
        """The value of a node in the queue."""
        return self._values[node]

    def push(self, node: RadixNode, value: float) -> None:
        """Let a node be evicted, or change its value."""
        if self._values.get(node) != value:
            self._values[node] = value
            # Among equals the newest goes: plans read nodes in the order they were made,
            # so it is the one needed last.
            heapq.heappush(self._heap, (value, -node.number, node))
            if len(self._heap) > 2 * len(self._values) + 64:
                self._heap = [(value, -node.number, node) for node, value in self._values.items()]
                heapq.heapify(self._heap)

    def remove(self, node: RadixNode) -> None:
        """Take a node out, if it is in."""
        self._values.pop(node, None)

    def min(self) -> RadixNode | None:
        """The node that saves least per slot, None where there is none."""
        while self._heap:
            value, _, node = self._heap[0]
            if self._values.get(node) == value:
                return node
            heapq.heappop(self._heap)
        return None
