"""What the radix tree is made of."""

from __future__ import annotations

from typing import NamedTuple

from covey.arrays import Int32


class Segment(NamedTuple):
    """Slots start … start + length - 1."""

    start: int
    length: int


class PrefixSegment(NamedTuple):
    """Neighbouring tokens of a prompt in neighbouring slots."""

    position: int
    slot: int
    length: int


class RadixNode:
    """Tokens that one or more prompts begin with, and the slots of their keys and values.

    Read it; only its tree changes it.

    Attributes:
        number: unique in its tree, ascending in time.
        parent: the node above, None at the root.
        tokens: (n,) int32.
        start: tokens above the node.
        segments: its slots, in token order.
        filled: how many of the tokens are computed, from the first on.
        references: locks on the node, and children that are referenced.
        children: resident nodes right below by their first tokens' bytes.
        unfinished: whether prompts below it are still to be packed.
        reads: how often later batches are expected to read it.
        documents: those of which a prompt's anchor ends here and that are expected to be read.
        resident: False once its slots are given away.
    """

    __slots__ = (
        "children", "documents", "filled", "number", "parent", "reads", "references", "resident",
        "segments", "start", "tokens", "unfinished",
    )  # fmt: skip

    def __init__(
        self, number: int, parent: RadixNode | None, tokens: Int32, references: int
    ) -> None:
        self.number = number
        self.parent = parent
        self.tokens = tokens
        self.start = 0 if parent is None else parent.end
        self.segments: tuple[Segment, ...] = ()
        self.filled = 0
        self.references = references
        self.children: dict[bytes, RadixNode] = {}
        self.unfinished = False
        self.reads = 0.0
        self.documents: set[int] = set()
        self.resident = True

    @property
    def length(self) -> int:
        """Tokens of the node."""
        return len(self.tokens)

    @property
    def end(self) -> int:
        """Tokens from the root to the node's end."""
        return self.start + len(self.tokens)

    @property
    def wanted(self) -> bool:
        """Whether anything planned will read it."""
        return self.unfinished or self.reads > 0

    def prefix_segments(self) -> list[PrefixSegment]:
        """Where the tokens from the root to the node's end are, in their order."""
        found: list[PrefixSegment] = []
        node: RadixNode | None = self
        while node is not None:
            position, own = node.start, []
            for slot, length in node.segments:
                own.append(PrefixSegment(position, slot, length))
                position += length
            found[:0] = own
            node = node.parent
        return found


def clip(segments: list[PrefixSegment], first: int, stop: int) -> list[PrefixSegment]:
    """The parts of some segments between two positions."""
    found: list[PrefixSegment] = []
    for position, slot, length in segments:
        low, high = max(position, first), min(position + length, stop)
        if low < high:
            found.append(PrefixSegment(low, slot + low - position, high - low))
    return found
