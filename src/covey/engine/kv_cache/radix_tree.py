"""The shared prefixes whose keys and values are resident, as a radix tree by token.

Bookkeeping only; `pool` holds the tensors. A node's tokens lie in slots of its own: in one
segment, for which neighbours are evicted if need be, or in several where locked nodes stand
in the way, so that fragmentation never refuses what the counts allow. Where another prompt
leaves a node in its middle, the node is split there, so that sharing is exact at any token.

**Locks.** A slot is *locked* (its node or one below is in use), *kept* (its node waits for
prompts below it or for a later batch) or *free*; locked + kept + free == capacity after every
public call. Whatever is kept can be evicted, leaves first: room is refused only for what is
locked, and never while nothing but the root is. There is no deadlock to detect.

**Lifetime.** A node that is not locked stays while it is `unfinished` or with `reads` > 0;
then it is freed, and so are ancestors that stayed only for it. While it stays it may be
evicted (see `eviction`) and leaves its plan to the node above, which is read whenever it is:
that is unfinished then if it was, and has its reads if they are more.

A *read* of a document is a batch that will ask about it as its anchor. Nodes at which a
document's prefixes end stay while reads of it are expected.

    node, known = tree.match(tree.root, tokens)
    node = tree.insert(node, tokens[known:], unfinished=False)   # None: unlock something first
    tree.unlock(node)                                            # when the batch is packed
"""

from __future__ import annotations

import itertools

from covey.arrays import Int32
from covey.engine.kv_cache.allocator import SlotAllocator
from covey.engine.kv_cache.eviction import EvictionQueue, RecomputeCost
from covey.engine.kv_cache.node import PrefixSegment, RadixNode, Segment, clip
from covey.errors import InputError, RunError

# What a prefix that two documents share is worth when its batch is over: a further
# document may begin with it. Little, so that it goes before what will surely be read.
SHARED_PREFIX_READS = 0.1


class RadixTree:
    """The resident shared prefixes of a session.

    Args:
        capacity: slots.
        cost: of computing tokens again.
        preamble: tokens before every document; they stay for the whole session.
        key_tokens: shares of fewer tokens are not looked for, at least 1.

    Attributes:
        root: the preamble's node, always locked.
        locked: slots, as in the module's text.
        peak: the most slots that were locked or kept at a time.
        evictions: nodes evicted.

    Raises:
        InputError: there are no slots.
        RunError: too few for the preamble.
    """

    def __init__(
        self, capacity: int, cost: RecomputeCost, preamble: Int32, key_tokens: int = 1
    ) -> None:
        if capacity < 1:
            raise InputError(f"a KV cache needs at least one slot, not {capacity}")
        self.capacity = capacity
        self.locked = 0
        self.peak = 0
        self.evictions = 0
        self._cost = cost
        self._key_tokens = key_tokens
        self._allocator = SlotAllocator(capacity)
        self._queue = EvictionQueue()
        self._numbers = itertools.count()
        self._nodes_of: dict[int, set[RadixNode]] = {}
        self._reads: dict[int, float] = {}
        self.root = RadixNode(next(self._numbers), None, preamble, references=1)
        if len(preamble):
            self._check_fits(len(preamble))
            self.root.segments = self._allocate(self.root, len(preamble))

    @property
    def free(self) -> int:
        """Slots of no node."""
        return self._allocator.free

    def match(self, node: RadixNode, tokens: Int32) -> tuple[RadixNode, int]:
        """Follow tokens down from a node, splitting the last one where they leave it.

        Returns:
            the deepest node all of whose tokens, and those above, are computed and as
            given, and how many of the tokens that is.
        """
        done = 0
        while done < len(tokens):
            child = self._child(node, tokens[done:])
            if child is None or child.filled < child.length:
                break
            size = min(child.length, len(tokens) - done)
            differs = child.tokens[:size] != tokens[done : done + size]
            same = int(differs.argmax()) if differs.any() else size
            node = child if same == child.length else self._split(child, same)
            done += same
            if same < size:
                break
        return node, done

    def insert(self, parent: RadixNode, tokens: Int32, *, unfinished: bool) -> RadixNode | None:
        """Add a locked node, whose tokens follow its parent's, and give it slots.

        Args:
            parent: resident, as `match` returned it.
            tokens: at least one, none of which `match` found.
            unfinished: whether prompts go on below, so that it stays until `finish`.

        Returns:
            None while too much is locked.

        Raises:
            RunError: the prompt is longer than the cache, or `match` would find the tokens
                once a node is filled.
        """
        key = self._key(tokens)
        if key in parent.children:
            raise RunError("KV accounting is off: tokens are added twice")
        if not self._lock_with_room(parent, len(tokens)):
            return None
        node = RadixNode(next(self._numbers), parent, tokens.copy(), references=1)
        node.segments = self._allocate(node, len(tokens))
        node.unfinished = unfinished
        parent.children[key] = node
        return node

    def reserve(self, node: RadixNode, count: int) -> tuple[Segment, ...] | None:
        """Lock a resident node and take slots for tokens below it that no other prompt shares.

        Returns:
            the slots, for `give_back`; None while too much is locked.

        Raises:
            RunError: the prompt is longer than the cache.
        """
        return self._allocate(node, count) if self._lock_with_room(node, count) else None

    def give_back(self, node: RadixNode, segments: tuple[Segment, ...]) -> None:
        """Free the slots that `reserve` gave, and unlock the node."""
        self._allocator.release(segments)
        self.locked -= sum(length for _, length in segments)
        self.unlock(node)

    def fill(self, node: RadixNode, count: int) -> list[PrefixSegment]:
        """The next tokens of a node are computed; returns where they go."""
        first = node.start + node.filled
        node.filled += count
        return clip(node.prefix_segments(), first, first + count)

    def lock(self, node: RadixNode) -> None:
        """Keep a resident node, and those above, where they are.

        Raises:
            RunError: the node is not resident.
        """
        if not node.resident:
            raise RunError("KV accounting is off: a node that was evicted is locked")
        above: RadixNode | None = node
        while above is not None:
            above.references += 1
            if above.references > 1:
                return
            self.locked += above.length
            self._queue.remove(above)
            above = above.parent

    def unlock(self, node: RadixNode) -> None:
        """Take back one lock; nodes no longer locked are kept or freed.

        Raises:
            RunError: the node is not locked.
        """
        at: RadixNode | None = node
        while at is not None:
            if not at.references:
                raise RunError("KV accounting is off: a node is unlocked more often than locked")
            at.references -= 1
            if at.references:
                return
            self.locked -= at.length
            above = at.parent
            self._settle(at)
            at = above

    def finish(self, node: RadixNode) -> None:
        """All prompts below a node that was `unfinished` have been packed."""
        if node.resident and node.unfinished:
            node.unfinished = False
            node.reads = max(node.reads, SHARED_PREFIX_READS)
            self._settle(node)

    def expect(self, document: int, node: RadixNode | None, reads: float) -> None:
        """A document will be read so often; a prompt's anchor ends at `node`, if given.

        With no reads left its nodes go, unless others need them.

        Raises:
            InputError: `reads` is less than 0.
        """
        if not reads >= 0.0:
            raise InputError(f"reads must be 0 or more, not {reads}")
        nodes = self._nodes_of.setdefault(document, set())
        if node is not None and node.segments and node.resident:
            nodes.add(node)
            node.documents.add(document)
        if reads > 0 and nodes:
            self._reads[document] = reads
        else:
            del self._nodes_of[document]
            self._reads.pop(document, None)
        for each in tuple(nodes):
            if reads <= 0:
                each.documents.discard(document)
            each.reads = max((self._reads[d] for d in each.documents), default=0.0)
            self._settle(each)

    def keeps(self, document: int) -> bool:
        """Whether a document is kept for later batches."""
        return document in self._nodes_of

    @property
    def documents(self) -> int:
        """How many documents are kept for later batches."""
        return len(self._nodes_of)

    def is_worth_keeping(self, start: int, length: int, reads: float) -> bool:
        """Whether keeping tokens saves more a slot than the least of what it would evict."""
        least = self._queue.min()
        if self.free >= length or least is None:
            return True
        return self._queue[least] < self._cost.saved(start, length, reads)

    def _child(self, node: RadixNode, tokens: Int32) -> RadixNode | None:
        key = self._key(tokens)
        found = node.children.get(key)
        if found is None and self._key_tokens > 1:
            # A node may be shorter than a key.
            for size in range(len(key) - 4, 0, -4):
                found = node.children.get(key[:size])
                if found is not None:
                    break
        return found

    def _key(self, tokens: Int32) -> bytes:
        return tokens[: self._key_tokens].tobytes()

    def _split(self, node: RadixNode, length: int) -> RadixNode:
        """Split a node after some of its tokens; returns the upper part, which is new.

        Slots, locks and plans stay; `node` becomes the lower part.
        """
        parent = node.parent
        if parent is None:
            raise RunError("KV accounting is off: the root was to be split")
        number, locked = next(self._numbers), min(node.references, 1)
        upper = RadixNode(number, parent, node.tokens[:length], references=locked)
        upper.filled = length
        upper.segments, node.segments = self._allocator.split(node.segments, length, upper)
        parent.children[self._key(node.tokens)] = upper
        node.parent, node.tokens = upper, node.tokens[length:]
        node.start, node.filled = upper.end, node.filled - length
        upper.children[self._key(node.tokens)] = node
        self._settle(node)
        return upper

    def _lock_with_room(self, node: RadixNode, count: int) -> bool:
        """Lock a resident node if there is room for so many tokens below it."""
        self._check_fits(node.end + count)
        self.lock(node)
        if count > self.capacity - self.locked:
            self.unlock(node)
            return False
        return True

    def _check_fits(self, tokens: int) -> None:
        if tokens > self.capacity:
            raise RunError(
                f"a prompt of {tokens:,} tokens needs as many KV slots; the KV cache has "
                f"{self.capacity:,}. Shorten the document or give the model more memory."
            )

    def _allocate(self, owner: RadixNode, count: int) -> tuple[Segment, ...]:
        """Take locked slots, evicting what is kept if need be."""
        self._make_room(count)
        segments = self._allocator.allocate(count, owner)
        self.locked += count
        self.peak = max(self.peak, self.capacity - self.free)
        return segments

    def _make_room(self, count: int) -> None:
        """Evict until so many slots are free, and in one segment if that can be had."""
        while self.free < count:
            least = self._queue.min()
            if least is None:
                raise RunError("KV accounting is off: slots that are not locked cannot be freed")
            self._evict(least)
        while self._allocator.largest < count:
            beside = [node for node in self._allocator.around_largest() if node in self._queue]
            if not beside:  # locked nodes, or ancestors of others, stand on both sides
                return
            self._evict(min(beside, key=lambda node: (self._queue[node], -node.number)))

    def _evict(self, node: RadixNode) -> None:
        self.evictions += 1
        above = node.parent
        self._drop(node)
        if above is not None:
            above.unfinished |= node.unfinished  # it has to run again before its children
            above.reads = max(above.reads, node.reads)
            self._settle(above)

    def _settle(self, node: RadixNode) -> None:
        """Let a node be evicted, or free it, if it is not locked and nothing stands on it."""
        at: RadixNode | None = node
        while at is not None and not at.references and not at.children:
            if at.wanted:
                reads = max(at.reads, float(at.unfinished))
                self._queue.push(at, self._cost.saved(at.start, at.length, reads))
                return
            above = at.parent
            self._drop(at)
            at = above

    def _drop(self, node: RadixNode) -> None:
        """Free a kept node without children."""
        self._allocator.release(node.segments)
        self._queue.remove(node)
        node.resident = False
        if node.parent is not None:
            del node.parent.children[self._key(node.tokens)]
        for document in node.documents:
            nodes = self._nodes_of[document]
            nodes.discard(node)
            if not nodes:
                del self._nodes_of[document]
                self._reads.pop(document, None)
        node.documents.clear()
